#!/usr/bin/env bash
# `make bench`: builds what measures, gets the public peers, and runs run.py.
#
#   e2e/bench/run.sh [--quick] [--write] ...      see e2e/bench/run.py --help
#   e2e/bench/run.sh --only tokens [--write]      tokenizing alone: no servers, no peers, a minute
#   e2e/bench/run.sh --only redis [--write]       one view through Redis alone: a redis-server, no peers, a minute
#   e2e/bench/run.sh --only cluster [--write]     a large cluster alone: etcd and kube-apiserver, no peers, four minutes
#
# Peers come from pip and apt into ${KVASIR_CACHE:-$HOME/.cache/kvasir}/bench, once. One that cannot be had is named in
# the report with the reason; it is never left out in silence.
set -euo pipefail
cd "$(dirname "$0")/../.."
export KVASIR_CACHE=${KVASIR_CACHE:-$HOME/.cache/kvasir}
root=$KVASIR_CACHE/bench
target=${CARGO_TARGET_DIR:-target}
peers=(vllm-router==0.1.17 sglang-router==0.3.2 smg==1.13.0)
mkdir -p "$root/missing"

nginx=$root/nginx/usr/sbin/nginx

get_peers() {
  if [ ! -x "$root/peers/bin/pip" ]; then
    rm -rf "$root/peers"
    python3 -m venv "$root/peers" 2>"$root/missing/venv.log" || echo "peers: no venv: $(tail -n 1 "$root/missing/venv.log")"
  fi
  for peer in "${peers[@]}"; do
    name=${peer%%=*}
    shown=$("$root/peers/bin/pip" show "$name" 2>/dev/null || true)
    if grep -qx "Version: ${peer##*=}" <<<"$shown"; then
      rm -f "$root/missing/$name"
      continue
    fi
    echo "installing $peer"
    if "$root/peers/bin/pip" install -q --disable-pip-version-check "$peer" 2>"$root/missing/$name.log"; then
      rm -f "$root/missing/$name" "$root/missing/$name.log"
    else
      { grep -v '^WARNING' "$root/missing/$name.log" || echo "pip cannot be run"; } | tail -n 1 >"$root/missing/$name"
    fi
  done

  # The binary alone: an installed nginx would start to serve on port 80.
  nginx=$(command -v nginx || ls /usr/sbin/nginx "$root/nginx/usr/sbin/nginx" 2>/dev/null | head -n 1 || true)
  if [ -z "$nginx" ]; then
    (cd "$root" && apt-get download -qq nginx && dpkg -x nginx_*.deb nginx && rm -f nginx_*.deb) 2>"$root/missing/nginx.log" || true
    nginx=$root/nginx/usr/sbin/nginx
  fi
  if "$nginx" -v 2>>"$root/missing/nginx.log"; then
    rm -f "$root/missing/nginx" "$root/missing/nginx.log"
  else
    tail -n 1 "$root/missing/nginx.log" >"$root/missing/nginx"
  fi
}

# What `--only` names; parts that need no network need no peers.
only='' before=''
for word in "$@"; do
  case $word in --only=*) only=${word#*=} ;; esac
  if [ "$before" = --only ]; then only=$word; fi
  before=$word
done
part='(tokens|decision|index|redis|cluster|demo)'
if ! [[ $only =~ ^$part(,$part)*$ ]]; then get_peers; fi

if [ "$only" != cluster ]; then cargo build --release -p kvasir-bench; fi
if [[ -z $only || $only =~ cluster ]]; then cargo build --release -p kvasir-suite --bin kvasir-bench-cluster; fi

[ "$only" = cluster ] || e2e/tokenizers/fetch.sh || echo "tokenizers: not all could be fetched"

exec python3 e2e/bench/run.py --binaries "$target/release" --cache "$root" --nginx "$nginx" \
  --tokenizers "$KVASIR_CACHE/tokenizers" --report docs/benchmarks.md "$@"
