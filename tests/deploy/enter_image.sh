#!/usr/bin/env bash
# enter_image.sh TREE MODELS USER COMMAND... runs COMMAND in the image's TREE like Docker with
# --read-only, --user USER and MODELS mounted on /models. If MODELS is empty, the tree's own models
# are used. Must be run in a separate mount namespace.
set -euo pipefail
tree=$1 models=$2 user=$3
shift 3
mount --bind "$tree" "$tree"
mount -o remount,bind,ro "$tree"
if [ -n "$models" ]; then
  mount --bind "$models" "$tree/models"
  mount -o remount,bind,ro "$tree/models"
fi
mount -t proc proc "$tree/proc"
mount --rbind /dev "$tree/dev"
exec setpriv --no-new-privs chroot --userspec="$user" --groups="" "$tree" "$@"
