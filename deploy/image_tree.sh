#!/usr/bin/env bash
# Builds the image's whole file tree without Docker: the three stripped programs, the Debian
# packages of tools/packages-runtime.txt with their dependencies, the configuration, the demo model
# and a user. The tree has no shell and no package manager. The Dockerfile runs this script too, so
# the tests check the files of the image.
#
# The script needs no root. File times are at most SOURCE_DATE_EPOCH (0 by default), so the same
# inputs give the same tree.
set -euo pipefail
usage="usage: deploy/image_tree.sh BUILD_DIRECTORY TREE [LIBRARY...]
  LIBRARY  a shared library beside Debian's, such as CUDA's, under the name that the programs ask for"
build=$(realpath "${1:?$usage}")
tree=$(realpath -m "${2:?$usage}")
shift 2
libraries=()
for library in "$@"; do libraries+=("$(realpath --no-symlinks "$library")"); done
cd "$(dirname "$0")/.."
. tools/common.sh

user=10001
architecture=$(architecture_of "$build/server/sluiced")
triplet=$(dpkg-architecture -a "$architecture" -q DEB_HOST_MULTIARCH)
packages=build/image-packages-$architecture
library_directory=$tree/usr/lib/$triplet

# download fills the folder with exactly these packages, unless it has them already.
download() {
  local list=$packages/packages.txt wanted
  cmp -s tools/packages-runtime.txt "$list" && return
  rm -rf "$packages"
  wanted=$(sed 's/#.*//' tools/packages-runtime.txt)
  # shellcheck disable=SC2086  # The list is split into words.
  download_packages "$architecture" "$packages" $wanted
  cp tools/packages-runtime.txt "$list"
}

# unpack FILE extracts a package without its documentation, and writes its control data where
# scanners of images look for it.
unpack() {
  dpkg-deb --fsys-tarfile "$1" |
    tar -x -C "$tree" --keep-directory-symlink --exclude=./usr/share/{man,locale,lintian,gdb,gcc,doc-base}
  dpkg-deb --field "$1" >"$tree/var/lib/dpkg/status.d/$(dpkg-deb --field "$1" Package)"
}

lay_out() {
  rm -rf "$tree"
  mkdir -p "$tree"/{usr/{lib,lib64,local/bin},etc/sluice,models,proc,dev,sys,tmp,var/lib/dpkg/status.d}
  ln -s usr/lib "$tree/lib"
  ln -s usr/lib64 "$tree/lib64"
  chmod 1777 "$tree/tmp"
  printf 'root:x:0:0::/:/nonexistent\nsluice:x:%d:%d::/nonexistent:/nonexistent\n' $user $user >"$tree/etc/passwd"
  printf 'root:x:0:\nsluice:x:%d:\n' $user >"$tree/etc/group"
  printf 'hosts: files dns\n' >"$tree/etc/nsswitch.conf"
}

# Deletes all documentation but the licences.
drop_documentation() {
  find "$tree/usr/share/doc" -type f ! -name copyright -delete
  find "$tree" -type d -empty -path "$tree/usr/share/*" -delete
}

install_own() {
  local program
  for program in server/sluiced client/sluice client/sluice-analysis; do
    "$triplet-strip" -o "$tree/usr/local/bin/${program#*/}" "$build/$program"
  done
  install -m 644 config/sluice.yaml "$tree/etc/sluice/sluice.yaml"
  install -D -m 644 -t "$tree/models/demo" models/demo/{config.json,model.safetensors}
  deploy/copy_licences.py "$tree/usr"
  [ ${#libraries[@]} -eq 0 ] || install -m 644 -t "$library_directory" "${libraries[@]}"
}

umask 022
download
lay_out
for file in "$packages"/*.deb; do unpack "$file"; done
drop_documentation
install_own
deploy/check_image_tree.sh "$tree"
find "$tree" -newermt "@${SOURCE_DATE_EPOCH:-0}" -exec touch --no-dereference --date="@${SOURCE_DATE_EPOCH:-0}" {} +
