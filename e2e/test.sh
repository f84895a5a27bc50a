#!/usr/bin/env bash
# Runs every test of the workspace and closes with the counts on a line of their own.
set -uo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT

cargo test --workspace --no-fail-fast 2>&1 | tee "$log"
code=${PIPESTATUS[0]}

awk '/^test result:/ { passed += $4; failed += $6; skipped += $8 }
     /^NOT RUN: / && !said[$3]++ { skipped += 1; passed -= 1 }
     END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped }' "$log" | tee "$log.counts"
passed=$(awk '{ print $1 }' "$log.counts")
rm -f "$log.counts"

# A build that failed, or a run that tested nothing, is no success.
if [ "$code" -ne 0 ]; then exit "$code"; fi
[ "$passed" -gt 0 ] || { echo "no test ran" >&2; exit 1; }
