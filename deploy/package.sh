#!/usr/bin/env bash
# Builds the programs, and makes packages of them in build/packages.
set -euo pipefail
. "$(dirname "$0")/../tools/common.sh"
usage() {
  cat <<'USAGE'
usage: deploy/package.sh [deb] [wheel] [image]

Without arguments it makes all three:
  deb    a Debian package with a systemd unit, for Debian 12 and 13
  wheel  the Python packages sluice-server and sluice-client
  image  an OCI image archive, for `podman load`, `docker load`, `skopeo copy` and `ctr image import`
USAGE
}
[ $# -gt 0 ] || set -- deb wheel image
for kind in "$@"; do
  case $kind in
    deb | wheel | image) ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; fail "unknown package: $kind" ;;
  esac
done

install_packages tools/packages-build.txt tools/packages-package.txt
say "building (the first time takes some minutes)"
options=()
grep -qs '^SLUICE_TESTS:BOOL=ON$' build/release/CMakeCache.txt ||
  options=(-DSLUICE_TESTS=OFF -DSLUICE_BENCHMARKS=OFF)
build release sluiced sluice sluice-analysis -- "${options[@]}"
packages=build/packages
mkdir -p "$packages"
for kind in "$@"; do
  began=$SECONDS
  case $kind in
    deb)
      rm -f "$packages"/*.deb
      (cd build/release && cpack -B ../packages >../packages/cpack.log) ||
        { cat "$packages/cpack.log"; fail "making the Debian package failed"; }
      rm -rf "$packages/_CPack_Packages"
      ;;
    wheel)
      rm -f "$packages"/*.whl
      deploy/make_wheel.py build/release "$packages" >/dev/null
      ;;
    image)
      deploy/image_tree.sh build/release build/image
      deploy/image_archive.py build/image "$packages/sluice-image.tar"
      ;;
  esac
  say "made the $kind in $((SECONDS - began)) s"
done
du -h --apparent-size "$packages"/*.deb "$packages"/*.whl "$packages"/*.tar 2>/dev/null || true
