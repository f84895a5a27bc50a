#!/usr/bin/env bash
# Checks licences, sources and bans with cargo-deny; advisories too where their database can be reached.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! cargo deny --version >/dev/null 2>&1; then
  echo "deny: NOT CHECKED, cargo-deny is not installed (cargo install --locked cargo-deny)"
  exit 0
fi
cargo deny check licenses bans sources
cargo deny check advisories || echo "deny: advisories NOT CHECKED, or a finding above"
