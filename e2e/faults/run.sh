#!/usr/bin/env bash
# `make faults-long`: every fault at full length, one test after the other, and what was seen in docs/faults.md.
#
#   e2e/faults/run.sh [--outage-ms N]     how long an outage lasts, 30,000 by default; that of an API server twice as long
#
# The figures are those that the tests themselves hold against their bounds; a test that fails is named on the page, and
# the exit code is not 0.
set -uo pipefail
cd "$(dirname "$0")/../.."

outage=30000
while [ $# -gt 0 ]; do
  case $1 in
    --outage-ms) outage=${2:?--outage-ms takes milliseconds} && shift 2 ;;
    --outage-ms=*) outage=${1#*=} && shift ;;
    *) echo "unknown: $1" >&2 && exit 2 ;;
  esac
done

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export KVASIR_OUTAGE_MS=$outage KVASIR_FAULT_REPORT=$folder/tables RUST_BACKTRACE=0
touch "$KVASIR_FAULT_REPORT"

# Built before the clock runs.
cargo test -p kvasir-suite --test redis --test faults --test kube --no-run || exit 1
began=$(date +%s)
# Those with Redis alone on the machine, for their times are the page's; the others wait most of the time.
cargo test -p kvasir-suite --test redis --no-fail-fast -- --test-threads=1 2>&1 | tee "$folder/redis"
code=${PIPESTATUS[0]}
cargo test -p kvasir-suite --test faults --no-fail-fast -- --test-threads=2 2>&1 | tee "$folder/faults"
second=${PIPESTATUS[0]}
KVASIR_OUTAGE_MS=$((2 * outage)) \
  cargo test -p kvasir-suite --test kube --no-fail-fast rolling:: -- --test-threads=1 2>&1 | tee "$folder/kube"
third=${PIPESTATUS[0]}

python3 e2e/faults/report.py --tables "$KVASIR_FAULT_REPORT" \
  --log "$folder/redis" --log "$folder/faults" --log "$folder/kube" \
  --outage-ms "$outage" --seconds $(($(date +%s) - began)) --page docs/faults.md || exit 1
for code in "$code" "$second" "$third"; do
  [ "$code" -eq 0 ] || exit "$code"
done
