#!/usr/bin/env bash
# A generated corpus through a real engine's renderer and through ours, for all kinds of tokenizers. Results go to docs/exactness.md.
#
#   e2e/exactness/run.sh [--only NAME,...] [--count N] [--seed N] [--reuse] [--freeze router/tokenize/tests/data/frozen]
set -euo pipefail
cd "$(dirname "$0")/../.."
export KVASIR_CACHE=${KVASIR_CACHE:-$HOME/.cache/kvasir}
export PYTHONDONTWRITEBYTECODE=1
e2e/vllm/setup.sh
binary=${KVASIR_BINARY:-${CARGO_TARGET_DIR:-target}/release/kvasir}
exec python3 e2e/exactness/run.py --kvasir "$binary" --root "$KVASIR_CACHE/vllm" --tokenizers "$KVASIR_CACHE/tokenizers" \
  --work "$KVASIR_CACHE/exactness" --report docs/exactness.md "$@"
