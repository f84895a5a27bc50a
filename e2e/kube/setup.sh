#!/usr/bin/env bash
# Builds what the cluster tests run, once: a real etcd and kube-apiserver, helm and kubeconform, from Go modules.
#
#   e2e/kube/setup.sh [NAME...]      all of them when no name is given
#
# They land in ${KVASIR_CACHE:-$HOME/.cache/kvasir}/kube/bin, 200 MB. The first run takes five minutes on two cores, 2 GB of
# memory, and 4.4 GB of disk for sources and objects, which are deleted again. Later runs do nothing, and need no Go and no
# network: each program has a stamp of the module files and flags that it was built from.
#
# kube-apiserver and helm share one module, so that what both are made of is compiled once.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=${KVASIR_CACHE:-$HOME/.cache/kvasir}/kube
bin=$root/bin
attempts=2

# What the go.mod files of tools/ ask for, and what is taken where the system's Go is older. Any that is new enough does.
go_needed=1.26.0
go_fetched=go1.27.3
# What that is, for linux-amd64, where an old Go fetches it without asking anybody else.
go_sum=h1:r0ub+FnqzZxoWm/dSUOI9DcIqYWn/mNYGFJcv7PyBzs=

kubernetes=$(sed -n 's/^\tk8s.io\/kubernetes v\([0-9.]*\).*/\1/p' "$here/tools/kubernetes/go.mod")
helm=$(sed -n 's/^\thelm.sh\/helm\/v3 \(v[0-9.]*\).*/\1/p' "$here/tools/kubernetes/go.mod")
minor=$(cut -d . -f 2 <<<"$kubernetes")
version=k8s.io/component-base/version

# name, module folder, package, what the linker writes: a server and a client that know no version of theirs say v0.0.0,
# and charts ask for it.
table="
kube-apiserver kubernetes  k8s.io/kubernetes/cmd/kube-apiserver    -X $version.gitVersion=v$kubernetes -X $version.gitMajor=1 -X $version.gitMinor=$minor
helm           kubernetes  helm.sh/helm/v3/cmd/helm                -X helm.sh/helm/v3/internal/version.version=$helm -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=$minor -X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor=$minor
etcd           etcd        go.etcd.io/etcd/server/v3
kubeconform    kubeconform github.com/yannh/kubeconform/cmd/kubeconform
"

fail() { echo "e2e/kube/setup.sh: $*" >&2; exit 1; }

stamp_of() { # FOLDER PACKAGE FLAGS
  { sha256sum <"$here/tools/$1/go.mod"; sha256sum <"$here/tools/$1/go.sum"; echo "$2 $3"; } | sha256sum | cut -d ' ' -f 1
}

is_built() { # NAME STAMP
  [ -x "$bin/$1" ] && [ "$(cat "$bin/.$1.stamp" 2>/dev/null)" = "$2" ]
}

is_known() { # NAME
  grep -q "^$1 " <<<"$table"
}

# Lists "name folder package flags" of what is missing or built from something else.
missing() { # NAME...
  local name folder package flags
  while read -r name folder package flags; do
    [ -n "$name" ] || continue
    if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
    is_built "$name" "$(stamp_of "$folder" "$package" "$flags")" || echo "$name $folder $package $flags"
  done <<<"$table"
}

at_least() { # VERSION WANTED
  [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

prepare_go() {
  command -v go >/dev/null || PATH=$PATH:/usr/local/go/bin
  if ! command -v go >/dev/null; then
    command -v apt-get >/dev/null || fail "Go is missing; install Go $go_needed or newer"
    local sudo=''
    [ "$(id -u)" -eq 0 ] || sudo=sudo
    echo "installing Go"
    { $sudo apt-get update -qq && $sudo apt-get install -y -qq --no-install-recommends golang-go; } ||
      fail "Go is missing and could not be installed; install Go $go_needed or newer"
  fi
  # Outside any module, so that the version is that of the program itself.
  local have
  have=$(cd / && GOTOOLCHAIN=local go env GOVERSION | sed 's/^go//; s/[^0-9.].*//')
  if at_least "$have" "$go_needed"; then
    export GOTOOLCHAIN=local
  elif at_least "$have" 1.21; then
    echo "Go $have is older than $go_needed: the go command takes $go_fetched"
    export GOTOOLCHAIN=$go_fetched
  else
    fetch_go "$have"
    export GOTOOLCHAIN=local
  fi
}

# A Go before 1.21, as Debian 12 has it, knows no toolchains, but they are modules like any other.
fetch_go() { # VERSION
  local module="golang.org/toolchain@v0.0.1-$go_fetched.linux-amd64" told from
  echo "Go $1 is older than 1.21: taking $go_fetched as a module"
  [ "$(go env GOOS)-$(go env GOARCH)" = linux-amd64 ] || fail "Go $go_needed or newer is needed; install it"
  mkdir -p "$root"
  told=$(cd / && GOMODCACHE=$root/go/toolchain GOFLAGS=-modcacherw GONOSUMDB='*' go mod download -json "$module") ||
    fail "Go $go_needed is needed, and $module could not be fetched: $told"
  [[ $told == *"$go_sum"* ]] || fail "$module is not what it was; install Go $go_needed or newer"
  from=$(sed -n 's/^\t"Dir": "\(.*\)",\{0,1\}$/\1/p' <<<"$told")
  # Modules are unpacked without the right to run them.
  chmod +x "$from"/bin/* "$from"/pkg/tool/*/*
  PATH=$from/bin:$PATH
  unset GOROOT
  hash -r
}

build() { # NAME FOLDER PACKAGE FLAGS
  local name=$1 folder=$2 package=$3 flags=$4 try started=$SECONDS
  for try in $(seq "$attempts"); do
    echo "building $name (try $try of $attempts)"
    if (cd "$here/tools/$folder" &&
      nice go build -trimpath -ldflags "-s -w $flags" -o "$bin/.$name.part" "$package") >"$root/$name.log" 2>&1; then
      mv -f "$bin/.$name.part" "$bin/$name"
      stamp_of "$folder" "$package" "$flags" >"$bin/.$name.stamp"
      rm -f "$root/$name.log"
      echo "$name: built in $((SECONDS - started)) s, $(du -m "$bin/$name" | cut -f 1) MB"
      return 0
    fi
  done
  tail -n 20 "$root/$name.log" >&2
  fail "$name could not be built from $package; the whole output is in $root/$name.log"
}

for name in "$@"; do is_known "$name" || fail "unknown program $name"; done
mkdir -p "$bin"
[ -n "$(missing "$@")" ] || exit 0

# One builds at a time; who waited finds the work done.
exec 9>"$root/.lock"
flock 9
todo=$(missing "$@")
[ -n "$todo" ] || exit 0

prepare_go
export GOMODCACHE=$root/go/mod GOCACHE=$root/go/build GOWORK=off CGO_ENABLED=0
export GOFLAGS='-mod=readonly -modcacherw -buildvcs=false'
while read -r name folder package flags; do
  build "$name" "$folder" "$package" "$flags"
done <<<"$todo"
rm -rf "$root/go"
