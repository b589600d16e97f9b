#!/usr/bin/env bash
# Unpacks Debian's packages for ARM64 and all their dependencies to build/arm64-root, where the
# preset arm64 and qemu find them. Installs nothing and needs no root.
set -euo pipefail
. "$(dirname "$0")/common.sh"
usage="usage: tools/arm64_root.sh LIST...
  LIST  a file of packages, such as tools/packages-arm64.txt"
[ -f "${1:-}" ] || fail "$usage"

root=build/arm64-root
archives=build/arm64-archives
unpacked=$root/packages.txt
packages=$(sed 's/#.*//' "$@" | xargs -n 1)
[ -f "$unpacked" ] && ! grep -qvxFf "$unpacked" <<<"$packages" && exit
packages=$({ [ ! -f "$unpacked" ] || cat "$unpacked"; echo "$packages"; } | sort -u)
rm -rf "$root" "$archives"
mkdir -p "$root"/usr/{bin,sbin,lib}
for folder in bin sbin lib; do ln -s "usr/$folder" "$root/$folder"; done
# shellcheck disable=SC2086  # The list is split into words.
download_packages arm64 "$archives" $packages
for file in "$archives"/*.deb; do
  dpkg-deb --fsys-tarfile "$file" |
    tar -x -C "$root" --keep-directory-symlink --exclude=./usr/share/{doc,man,locale,lintian}
done
printf '%s\n' "$packages" >"$unpacked"
rm -rf "$archives"
