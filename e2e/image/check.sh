#!/usr/bin/env bash
# Builds the Dockerfile's stages without a container engine and checks the result: what the binary needs is in the base
# image, and it runs there as nobody with a root that it cannot write to.
#
# The base image, distroless cc for Debian 12, is unpacked Debian packages; here they are unpacked by hand, which needs
# Debian 12 and root. PROFILE=release takes what `make build` left, in place of the image's smaller `dist`.
set -euo pipefail
cd "$(dirname "$0")/../.."
profile=${PROFILE:-dist}
base_packages=(base-files netbase tzdata ca-certificates libc6 libgcc-s1 libgomp1 libstdc++6)
# The newest symbols that the base's C library has.
glibc_of_base=2.36

work=$(mktemp -d)
router=''
finish() {
  [ -z "$router" ] || kill "$router" 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT

step() { printf '== %s\n' "$*"; }
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

[ "$(id -u)" -eq 0 ] || fail 'chroot needs root'
grep -q 'VERSION_CODENAME=bookworm' /etc/os-release || fail 'the packages of Debian 12 are needed, and this is another release'

step "stage 1: cargo build --locked --profile $profile"
cargo build --locked --profile "$profile" -p kvasir
binary=${CARGO_TARGET_DIR:-target}/$([ "$profile" = dev ] && echo debug || echo "$profile")/kvasir

step "stage 2: the base image's packages, and the binary"
apt-cache policy libc6 | grep -q Candidate || apt-get update -qq
(cd "$work" && apt-get download -qq "${base_packages[@]}" 2>said) || { cat "$work/said" >&2; fail 'the packages cannot be fetched'; }
mkdir "$work/root"
for package in "$work"/*.deb; do dpkg-deb -x "$package" "$work/root"; done
e2e/image/stage.sh "$binary" "$work/root"
# In Debian 12, /lib and /lib64 are links into /usr.
for directory in lib lib64; do
  if [ -d "$work/root/$directory" ] && [ ! -L "$work/root/$directory" ]; then
    mkdir -p "$work/root/usr/$directory" && cp -a "$work/root/$directory/." "$work/root/usr/$directory/"
    rm -r "${work:?}/root/$directory" && ln -s "usr/$directory" "$work/root/$directory"
  fi
done
# What ca-certificates does when it is installed; the base image has the result.
mkdir -p "$work/root/etc/ssl/certs"
cat "$work"/root/usr/share/ca-certificates/mozilla/*.crt >"$work/root/etc/ssl/certs/ca-certificates.crt"
mkdir -p "$work/root/dev" "$work/root/proc" && mknod -m 0666 "$work/root/dev/null" c 1 3 && mknod -m 0666 "$work/root/dev/urandom" c 1 9

step 'what it links against'
needed=$(readelf -d "$binary" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
for library in $needed; do
  found=$(find "$work/root/" -name "$library" | head -1)
  [ -n "$found" ] || fail "$library is not in the base image"
  printf '%-24s %s\n' "$library" "${found#"$work/root"}"
done
newest=$(readelf -V "$binary" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -1)
printf 'newest symbols           %s (base: %s)\n' "$newest" "$glibc_of_base"
[ "$(printf '%s\n' "${newest#GLIBC_}" "$glibc_of_base" | sort -V | tail -1)" = "$glibc_of_base" ] || fail "the binary needs $newest"

step 'it runs there'
inside() { timeout 120 chroot --userspec=65532:65532 "$work/root" "$@"; }
inside /usr/local/bin/kvasir --version
inside /kthena-router --help >/dev/null || fail 'it does not run under the name kthena-router'
inside /usr/local/bin/kvasir demo --help >/dev/null
if inside /usr/local/bin/kvasir router --access-log-output /log --model m=http://127.0.0.1:1 2>"$work/said"; then
  fail 'the root can be written to'
fi
grep -qi 'access log' "$work/said" || { cat "$work/said" >&2; fail 'it failed for another reason than the root it cannot write to'; }

step 'it serves there'
chroot --userspec=65532:65532 "$work/root" /kthena-router --listen=127.0.0.1:0 --metrics-listen=127.0.0.1:0 \
  --admin-listen=127.0.0.1:0 --drain-settle=0s --model=m=http://127.0.0.1:1 >"$work/said" 2>&1 &
router=$!
for _ in $(seq 100); do
  address=$(sed -n 's/.*inference=\([0-9.:]*\).*/\1/p' "$work/said")
  [ -z "$address" ] || break
  kill -0 "$router" 2>/dev/null || break
  sleep 0.1
done
[ -n "$address" ] || { cat "$work/said" >&2; fail 'the router does not listen'; }
exec 3<>"/dev/tcp/${address%:*}/${address#*:}"
printf 'GET /healthz HTTP/1.1\r\nhost: image\r\nconnection: close\r\n\r\n' >&3
answer=$(timeout 10 head -n 1 <&3 | tr -d '\r')
exec 3>&-
[ "$answer" = 'HTTP/1.1 200 OK' ] || fail "/healthz: $answer"
kill -TERM "$router"
wait "$router" || { cat "$work/said" >&2; fail 'it does not end cleanly'; }
router=''
echo '/healthz is 200, SIGTERM ends it cleanly'

printf 'size                     %s MiB with the base, %s MiB the binary\n' \
  "$(du -sm "$work/root" | cut -f1)" "$(du -m "$binary" | cut -f1)"
echo 'image check: passed'
