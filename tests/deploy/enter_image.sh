#!/usr/bin/env bash
# enter_image.sh TREE MODELS USER COMMAND... runs COMMAND in the image's TREE as Docker would with
# --read-only, --user USER and MODELS mounted on /models. With an empty MODELS the tree's own models
# stay. Requires a mount namespace of its own.
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
