#!/usr/bin/env bash
# Measures ./run --once and ./test on a new installation of Debian 12.
set -uo pipefail
. "$(dirname "$0")/common.sh"

usage() {
  cat <<'USAGE'
usage: tools/cold_times.sh ROOT [COMMIT]

Makes a root of Debian 12 in the folder ROOT with debootstrap, clones COMMIT (HEAD) of this
repository into it, and prints the wall-clock and processor seconds of these steps:

  packages   downloading and installing the Debian packages of the build, then of the tests
  run        ./run --once
  again      ./run --once with nothing changed
  test       ./test, in a second clone

No compiler cache is used. Needs root and debootstrap. Nothing else should run on the machine. The
folder is kept, so that another commit can be measured with the packages in place.
USAGE
}

case ${1:-} in
  -h | --help) usage; exit 0 ;;
  "") usage >&2; exit 2 ;;
esac
root=$(realpath -m "$1")
commit=$(git rev-parse "${2:-HEAD}") || fail "unknown commit: $2"
name=${commit:0:8}

if [ ! -e "$root/etc/debian_version" ]; then
  say "making a root of Debian 12 in $root"
  debootstrap --variant=minbase --include=ca-certificates,git,time bookworm "$root" \
    "${SLUICE_DEBIAN_MIRROR:-http://deb.debian.org/debian}" >/dev/null || fail "debootstrap failed"
fi
# The root is its own mount, because tests change its propagation.
mountpoint -q "$root" || mount --bind "$root" "$root"
for each in proc sys dev; do
  mountpoint -q "$root/$each" && continue
  # As a slave, so that unmounting it here does not affect the host's mounts.
  mount --rbind "/$each" "$root/$each" && mount --make-rslave "$root/$each"
done
unmount() { umount --recursive --lazy "$root"; }
trap unmount EXIT
cp /etc/resolv.conf "$root/etc/"
# Certificates and variables for a network with its own proxy.
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
variables=()
while IFS= read -r line; do variables+=("$line"); done < <(env | grep -E '^(PIP_|[a-z]+_proxy=)')

# inside COMMAND runs a command in the clone.
inside() {
  env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
    CCACHE_DISABLE=1 "${variables[@]}" chroot "$root" bash -c "cd /src && $1"
}
# fresh_clone puts the commit into the root's folder /src.
fresh_clone() {
  rm -rf "$root/src"
  git clone -q --no-local . "$root/src" && git -C "$root/src" checkout -q "$commit"
}
# timed NAME COMMAND runs a command inside and prints its times.
timed() {
  inside "command time -f '$name $1: %e s, %U s user, %S s system' bash -c '$2'"
}

fresh_clone || fail "cloning failed"
install=". tools/common.sh && install_packages"
timed "packages of the build" "$install tools/packages-build.txt"
timed "packages of the tests" "$install tools/packages-test.txt tools/packages-test-run.txt"
timed run "./run --once"
timed again "./run --once"
fresh_clone
timed test ./test
