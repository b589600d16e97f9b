#!/usr/bin/env bash
# Checks that the runtime image has every shared library that the two binaries load: each must come
# from a package of tools/packages-runtime.txt or from one that these depend on.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:?usage: deploy/check_runtime_packages.sh BUILD_DIRECTORY}

listed=$(sed 's/#.*//' tools/packages-runtime.txt | xargs)
# shellcheck disable=SC2086  # a list of words
provided=$(apt-cache depends --installed --recurse --no-recommends --no-suggests --no-conflicts \
  --no-breaks --no-replaces --no-enhances $listed | grep -E '^[a-z]' | sort -u)
missing=0
for library in $(ldd "$build/server/sluiced" "$build/client/sluice" | awk '$3 ~ /^\// { print $3 }' | sort -u); do
  file=$(realpath "$library")
  # Where /lib is a link to /usr/lib, some packages still list their files under /lib.
  package=$({ dpkg -S "$file" || dpkg -S "${file#/usr}"; } 2>/dev/null | cut -d: -f1 | head -n 1)
  if ! grep -qx "$package" <<<"$provided"; then
    echo "$library is in $package, which the runtime image would not have"
    missing=1
  fi
done
exit $missing
