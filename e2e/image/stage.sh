#!/usr/bin/env bash
# Lays out what the image's last stage adds to its base: BINARY under DIRECTORY, with kthena's name, licence, and the
# lock file, from which scanners read the list of what is inside.
set -euo pipefail
binary=$1 out=$2
root=$(cd "$(dirname "$0")/../.." && pwd)

install -D -m 0755 "$binary" "$out/usr/local/bin/kvasir"
ln -sf kvasir "$out/usr/local/bin/kthena-router"
# kthena's Deployment may name the entrypoint by its path.
ln -sf usr/local/bin/kvasir "$out/kthena-router"
install -D -m 0644 "$root/LICENSE" "$out/usr/share/doc/kvasir/LICENSE"
install -D -m 0644 "$root/Cargo.lock" "$out/usr/share/doc/kvasir/Cargo.lock"
