#!/usr/bin/env bash
# `kvasir tokenizer` on real `vllm launch render` children, and the native engine beside it. Results go to
# docs/e2e-tokenizer-service.md. Takes about six minutes; KVASIR_BINARY names another binary.
set -euo pipefail
cd "$(dirname "$0")/../.."
export KVASIR_CACHE=${KVASIR_CACHE:-$HOME/.cache/kvasir}
e2e/vllm/setup.sh
binary=${KVASIR_BINARY:-${CARGO_TARGET_DIR:-target}/release/kvasir}
exec python3 e2e/tokenizer-service/run.py --kvasir "$binary" --root "$KVASIR_CACHE/vllm" \
  --tokenizers "$KVASIR_CACHE/tokenizers" --report docs/e2e-tokenizer-service.md "$@"
