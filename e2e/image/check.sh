#!/usr/bin/env bash
# Builds the Dockerfile's stages without a container engine and checks the result: what the binary needs is in the base
# image, and it runs there as nobody with a root that it cannot write to.
#
# The base image, distroless cc for Debian 12, is unpacked Debian packages; here they are unpacked by hand.
set -euo pipefail
cd "$(dirname "$0")/../.."
profile=${PROFILE:-dist}
base_packages=(base-files netbase tzdata ca-certificates libc6 libgcc-s1 libgomp1 libstdc++6)
# The newest symbols that the base's C library has.
glibc_of_base=2.36

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

step() { printf '== %s\n' "$*"; }
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

step "stage 1: cargo build --locked --profile $profile"
cargo build --locked --profile "$profile" -p kvasir
binary=${CARGO_TARGET_DIR:-target}/$([ "$profile" = dev ] && echo debug || echo "$profile")/kvasir

step "stage 2: the base image's packages, and the binary"
grep -q 'VERSION_CODENAME=bookworm' /etc/os-release || fail 'the packages of Debian 12 are needed, and this is another release'
apt-cache policy libc6 | grep -q Candidate || apt-get update -qq
(cd "$work" && apt-get download -qq "${base_packages[@]}" 2>/dev/null)
mkdir "$work/root"
for package in "$work"/*.deb; do dpkg-deb -x "$package" "$work/root"; done
e2e/image/stage.sh "$binary" "$work/root"
# In Debian 12, /lib and /lib64 are links into /usr.
for directory in lib lib64; do
  if [ -d "$work/root/$directory" ] && [ ! -L "$work/root/$directory" ]; then
    mkdir -p "$work/root/usr/$directory" && cp -a "$work/root/$directory/." "$work/root/usr/$directory/"
    rm -r "${work:?}/root/$directory" && ln -s "usr/$directory" "$work/root/$directory"
  fi
done
mkdir -p "$work/root/dev" "$work/root/proc" && mknod -m 0666 "$work/root/dev/null" c 1 3 && mknod -m 0666 "$work/root/dev/urandom" c 1 9

step 'what it links against'
needed=$(readelf -d "$binary" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
for library in $needed; do
  found=$(find "$work/root/" -name "$library" | head -1)
  [ -n "$found" ] || fail "$library is not in the base image"
  printf '%-24s %s\n' "$library" "${found#"$work/root"}"
done
newest=$(readelf -V "$binary" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -1)
printf 'newest symbols           %s (base: %s)\n' "$newest" "$glibc_of_base"
[ "$(printf '%s\n' "${newest#GLIBC_}" "$glibc_of_base" | sort -V | tail -1)" = "$glibc_of_base" ] || fail "the binary needs $newest"

step 'it runs there'
inside() { timeout 120 chroot --userspec=65532:65532 "$work/root" "$@"; }
inside /usr/local/bin/kvasir --version
inside /kthena-router --help >/dev/null || fail 'it does not run under the name kthena-router'
inside /usr/local/bin/kvasir demo --help >/dev/null
if inside /usr/local/bin/kvasir router --access-log-output /log --model m=http://127.0.0.1:1 2>"$work/said"; then
  fail 'the root can be written to'
fi
grep -qi 'access log' "$work/said" || { cat "$work/said" >&2; fail 'it failed for another reason than the root it cannot write to'; }
printf 'size                     %s MiB with the base, %s MiB the binary\n' \
  "$(du -sm "$work/root" | cut -f1)" "$(du -m "$binary" | cut -f1)"
echo 'image check: passed'
