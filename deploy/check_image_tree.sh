#!/usr/bin/env bash
# Checks that the loader of an image's tree finds the libraries of every program and library within
# the tree.
set -euo pipefail
tree=$(realpath "${1:?usage: deploy/check_image_tree.sh TREE}")
loader=$(echo "$tree"/lib*/ld-linux-*.so.*)
directory=$(dirname "$(find "$tree/usr/lib" -name libc.so.6)")
# The tree's loader runs under qemu if this machine cannot run it.
run=()
"$loader" --version >/dev/null 2>&1 || run=("qemu-$(basename "$directory" | cut -d - -f 1)-static")

missing=0
while read -r file; do
  # The loader also looks into the host's folders, as in "libz.so.1 => /lib/..".
  while read -r library; do
    echo "${file#"$tree"} loads $library, which the image does not have" >&2
    missing=1
  done < <("${run[@]}" "$loader" --inhibit-cache --library-path "$directory" --list "$file" |
    awk -v tree="$tree/" '/=>/ && index($3, tree) != 1 && $1 !~ /^\// { print $1 }')
done < <(find "$tree/usr/local/bin" "$directory" -maxdepth 1 -type f \( -name '*.so*' -o -path '*/bin/*' \))
exit $missing
