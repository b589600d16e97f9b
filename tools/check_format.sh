#!/usr/bin/env bash
# check_format.sh [FILE...] fails if clang-format would change one of the given C++ or CUDA files,
# or any of them if none is given. It also fails if a line of the project is too long.
cd "$(dirname "$0")/.." || exit 1
if [ $# -eq 0 ]; then
  set -- base cascades client config engine kernels loadtest server tests verify
fi
find "$@" -type f \( -name '*.cc' -o -name '*.h' -o -name '*.inc' -o -name '*.cu' \) -print0 |
  xargs -0 -r -n 32 -P "$(nproc)" clang-format --dry-run --Werror || exit 1
tools/check_lines.py
