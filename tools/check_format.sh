#!/usr/bin/env bash
# Fails if clang-format would change a C++ or CUDA file, or if a line is too long.
cd "$(dirname "$0")/.." || exit 1
find base client config engine kernels loadtest server tests verify \
  \( -name '*.cc' -o -name '*.h' -o -name '*.inc' -o -name '*.cu' \) -print0 |
  xargs -0 -n 32 -P "$(nproc)" clang-format --dry-run --Werror || exit 1
tools/check_lines.py
