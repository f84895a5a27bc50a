#!/usr/bin/env bash
# `make soak`: minutes of churn, then every router's view against the engines' truth, and memory that must stay flat.
#
#   e2e/soak/run.sh [--minutes N]     10 by default; memory is judged from 5 on
#
# Writes docs/soak.md and docs/soak.svg, also when it fails; the exit code is that of the test.
set -uo pipefail
cd "$(dirname "$0")/../.."

minutes=10
while [ $# -gt 0 ]; do
  case $1 in
    --minutes) minutes=${2:?--minutes takes a number} && shift 2 ;;
    --minutes=*) minutes=${1#*=} && shift ;;
    *) echo "unknown: $1" >&2 && exit 2 ;;
  esac
done

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
seconds=$(awk -v minutes="$minutes" 'BEGIN { printf "%d", minutes * 60 }')
export KVASIR_SOAK_SECONDS=$seconds KVASIR_SOAK_REPORT=$folder/report.json RUST_BACKTRACE=0

cargo test -p kvasir-suite --test soak --no-run || exit 1
echo "$minutes minutes of churn ..."
cargo test -p kvasir-suite --test soak -- --nocapture
code=$?
if [ ! -s "$KVASIR_SOAK_REPORT" ]; then
  echo "soak: ended with $code before the comparison" >&2
  exit 1
fi
python3 e2e/soak/report.py --figures "$KVASIR_SOAK_REPORT" --minutes "$minutes" --code "$code" --page docs/soak.md || exit 1
exit "$code"
