#!/usr/bin/env bash
# Runs clang-tidy over the sources (not the tests) of a build directory. A file that passed is not
# read again until it, a header or the checks change.
cd "$(dirname "$0")/.." || exit 1
build=${1:?usage: tools/check_tidy.sh BUILD_DIRECTORY}
state=$build/tidy
mkdir -p "$state"

headers=$(find client config engine kernels loadtest server proto -name '*.h' -o -name '*.inc' -o -name '*.proto' |
  sort | xargs cat .clang-tidy | sha256sum | cut -c1-16)
check() {
  local file=$1 mark
  mark=$state/$(cat "$file" | sha256sum | cut -c1-16)-$headers
  [ -e "$mark" ] && return
  if clang-tidy --quiet -p "$build" "$file" 2>/dev/null; then touch "$mark"; else
    echo "clang-tidy: $file" && return 1; fi
}
export -f check
export build state headers
# The inner kernels are left out: they use flags and vector types of GCC that clang does not know. So
# is what only the CUDA toolkit's headers make readable.
find client config engine kernels server -name '*.cc' -not -path 'kernels/cpu/simd/*' \
  -not -path 'engine/cuda/cuda_device.cc' | sort |
  xargs -P "$(nproc)" -I{} bash -c 'check {}'
