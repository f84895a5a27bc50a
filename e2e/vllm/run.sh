#!/usr/bin/env bash
# Two real vLLM engines on the CPU behind the router: the claims of the README, checked. Results go to docs/e2e-vllm.md.
set -euo pipefail
cd "$(dirname "$0")/../.."
export KVASIR_CACHE=${KVASIR_CACHE:-$HOME/.cache/kvasir}
PYTHONDONTWRITEBYTECODE=1 python3 -m unittest discover -q -s e2e/vllm
e2e/vllm/setup.sh
binary=${CARGO_TARGET_DIR:-target}/release/kvasir
exec python3 e2e/vllm/run.py --kvasir "$binary" --root "$KVASIR_CACHE/vllm" --tokenizer "$KVASIR_CACHE/tokenizers/qwen2_5" \
  --report docs/e2e-vllm.md "$@"
