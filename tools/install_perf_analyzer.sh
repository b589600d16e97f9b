#!/usr/bin/env bash
# Installs perf_analyzer into VENV/bin. Its own wheel needs a newer C library than Debian 12 has.
# The last tritonclient wheel with the binary works, but it needs libb64 (a Debian package) and the
# CUDA runtime library (a wheel), which is never called here.
set -euo pipefail
venv=${1:?usage: tools/install_perf_analyzer.sh VENV}
target=$venv/perf_analyzer
"$venv/bin/pip" install -q --no-deps --upgrade --target "$target" tritonclient==2.50.0 nvidia-cuda-runtime-cu12==12.9.79
library=$(dirname "$(find "$(realpath "$target")" -name 'libcudart.so.12' | head -n 1)")
binary=$(find "$(realpath "$target")" -name perf_analyzer -type f | head -n 1)
chmod +x "$binary"
printf '#!/bin/sh\nLD_LIBRARY_PATH="%s" exec "%s" "$@"\n' "$library" "$binary" >"$venv/bin/perf_analyzer"
chmod +x "$venv/bin/perf_analyzer"
