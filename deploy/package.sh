#!/usr/bin/env bash
# Builds the programs, and makes packages of them in build/packages or build/packages-arm64.
set -euo pipefail
. "$(dirname "$0")/../tools/common.sh"
usage() {
  cat <<'USAGE'
usage: deploy/package.sh [--arm64] [deb] [wheel] [image]

Without a kind it makes all three:
  deb    a Debian package with a systemd unit, for Debian 12 and 13
  wheel  the Python packages sluice-server and sluice-client
  image  an OCI image archive, for `podman load`, `docker load`, `skopeo copy` and `ctr image import`

  --arm64  for ARM64, by Debian's cross compiler and its libraries for ARM64
USAGE
}
preset=release
architecture=""
kinds=()
for argument in "$@"; do
  case $argument in
    deb | wheel | image) kinds+=("$argument") ;;
    --arm64) preset=arm64-programs architecture=-arm64 ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; fail "unknown argument: $argument" ;;
  esac
done
[ ${#kinds[@]} -gt 0 ] || kinds=(deb wheel image)

install_packages tools/packages-build.txt tools/packages-package.txt
options=()
if [ -n "$architecture" ]; then
  install_packages tools/packages-cross.txt
  tools/arm64_root.sh tools/packages-arm64.txt tools/packages-arm64-programs.txt
fi
say "building (the first time takes some minutes)"
grep -qs '^SLUICE_TESTS:BOOL=ON$' build/$preset/CMakeCache.txt ||
  options=(-DSLUICE_TESTS=OFF -DSLUICE_BENCHMARKS=OFF)
build $preset sluiced sluice sluice-analysis -- "${options[@]}"
packages=build/packages$architecture
mkdir -p "$packages"
for kind in "${kinds[@]}"; do
  began=$SECONDS
  case $kind in
    deb)
      rm -f "$packages"/*.deb
      (cd build/$preset && cpack -B "../../$packages" >"../../$packages/cpack.log") ||
        { cat "$packages/cpack.log"; fail "making the Debian package failed"; }
      rm -rf "$packages/_CPack_Packages"
      ;;
    wheel)
      rm -f "$packages"/*.whl
      deploy/make_wheel.py build/$preset "$packages" >/dev/null
      ;;
    image)
      deploy/image_tree.sh build/$preset "build/image$architecture"
      deploy/image_archive.py "build/image$architecture" "$packages/sluice-image.tar"
      ;;
  esac
  say "made the $kind in $((SECONDS - began)) s"
done
du -h --apparent-size "$packages"/*.deb "$packages"/*.whl "$packages"/*.tar 2>/dev/null || true
