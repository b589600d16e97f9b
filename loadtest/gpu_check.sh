#!/usr/bin/env bash
# Checks and times the CUDA engine on a GPU within nine minutes. The table of results is the last
# output.
set -uo pipefail

usage() {
  cat <<'USAGE'
usage: loadtest/gpu_check.sh [--programs FILE | --libraries FILE] [--out FOLDER] [--rehearse]
       loadtest/gpu_check.sh --pack FILE [--architectures LIST]
       loadtest/gpu_check.sh --pack-libraries FILE

Runs the device tests, the benchmarks of kernels and plans, PyTorch's peers and compute-sanitizer on the
first GPU. What fails is reported and the rest goes on; what the time does not suffice for is named.
Writes gpu_check.json, gpu_check.md and a table of cuBLASLt's algorithms for this GPU. Exit status: 0 all
well, 1 a part failed, 3 no device.

  --programs FILE       what --pack made; without it the programs are built here, with nvcc and cmake
  --libraries FILE      what --pack-libraries made: for a build here where there are no packages and no
                        network to get them
  --out FOLDER          where the results go (loadtest/results)
  --rehearse            in the emulator, with the release build's programs: proves the script, times
                        nothing
  --pack FILE           builds the programs and packs them, with the libraries that they need, for a
                        machine that has a driver, PyTorch or not, and no network
  --architectures LIST  of the GPUs to build for, as CMake lists them (80;90;100 for a pack, else native)
  --pack-libraries FILE packs the libraries and headers of Debian that the programs are built with
USAGE
}

cd "$(dirname "$0")/.." || exit 1
readonly budget=530 # in seconds, out of nine minutes
# The build targets: the benchmark, and the tests that run on a device.
readonly targets=(gpu_bench kernels_cuda_device_test cuda_backend_device_test)
# The Debian packages with the headers and libraries that the programs are built with.
readonly packages=(libabsl-dev libgmock-dev libgtest-dev libicu-dev nlohmann-json3-dev)
programs='' libraries='' out=loadtest/results rehearse=false pack='' pack_libraries='' architectures=''
while [ $# -gt 0 ]; do
  case $1 in
    --rehearse) rehearse=true ;;
    --programs | --libraries | --out | --pack | --pack-libraries | --architectures)
      [ $# -ge 2 ] || { usage >&2; exit 2; }
      option=${1#--}
      declare "${option//-/_}=$2"
      shift
      ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$work/parts.tsv"
failed=0

# record NAME OUTCOME SECONDS: adds a part to the list of outcomes.
record() {
  printf '%s\t%s\t%s\n' "$1" "$2" "$3" >>"$work/parts.tsv"
  printf -- '-- %s: %s (%s s)\n' "$1" "$2" "$3"
}

# part NAME SECONDS FILE COMMAND...: runs a part for at most SECONDS, within the budget, and writes
# its output to FILE of the work folder.
part() {
  local name=$1 limit=$2 file=$3 left=$((budget - SECONDS)) start=$SECONDS status
  shift 3
  [ "$left" -lt "$limit" ] && limit=$left
  if [ "$limit" -lt 5 ]; then
    record "$name" "not measured: no time" 0
    return 1
  fi
  timeout -k 5 "$limit" "$@" >"$work/$file" 2>"$work/$name.log"
  status=$?
  case $status in
    0) record "$name" ok $((SECONDS - start)); return 0 ;;
    124 | 137) record "$name" "not measured: longer than $limit s" $((SECONDS - start)) ;;
    *) record "$name" "failed with status $status" $((SECONDS - start)) ;;
  esac
  failed=1
  tail -n 15 "$work/$file" "$work/$name.log"
  return 1
}

# build ARCHITECTURES: builds the programs for a GPU, without the daemon, below build/cuda.
build() {
  local prefix=()
  command -v nvcc >/dev/null || PATH=$PATH:/usr/local/cuda/bin
  if [ -n "$libraries" ]; then
    # They are not in the work folder, because CMake remembers their place.
    mkdir -p build/gpu-libraries && tar -xzf "$libraries" -C build/gpu-libraries || return 1
    prefix=("-DCMAKE_PREFIX_PATH=$PWD/build/gpu-libraries/usr")
    export CPLUS_INCLUDE_PATH=$PWD/build/gpu-libraries/usr/include # searched like /usr/include
  fi
  cmake --preset cuda -DSLUICE_SERVER=OFF -DSLUICE_BENCHMARKS=OFF "-DSLUICE_CUDA_ARCHITECTURES=$1" \
    "${prefix[@]}" && cmake --build build/cuda --target "${targets[@]}"
}

# pack_libraries FILE: packs the shared libraries that the packages' links point to.
pack_libraries() {
  local runtime
  runtime=$(dpkg-query -W -f '${Depends}\n' "${packages[@]}" | tr ',' '\n' |
    sed -nE 's/^ *((libabsl|libicu)[0-9]+) .*/\1/p' | sort -u) || return 1
  # shellcheck disable=SC2086 # one name per word
  dpkg -L "${packages[@]}" $runtime | sort -u |
    grep -E '^/usr/(include|lib|share/cmake|src/googletest)' | grep -v '/libicu[a-z0-9]*\.a$' |
    while read -r file; do if [ ! -d "$file" ] || [ -L "$file" ]; then echo "$file"; fi; done |
    tar -czf "$1" -C / --transform 's,^/,,' -P -T - && ls -l "$1"
}

# pack FILE: packs the programs of build/cuda with their libraries, except those of the C and C++
# runtimes.
pack() {
  local folder=$work/programs program
  mkdir -p "$folder/lib"
  for program in "${targets[@]}"; do
    find build/cuda -type f -name "$program" -exec strip -o "$folder/$program" {} \; || return 1
    ldd "$folder/$program" |
      awk '$2 == "=>" && $3 ~ /^\// && $1 !~ /^(lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)\.so|ld-linux)/ { print $3 }'
  done | sort -u | xargs -r cp -L -t "$folder/lib" || return 1
  tar -czf "$1" -C "$folder" . && ls -l "$1"
}

if [ -n "$pack_libraries" ]; then
  pack_libraries "$pack_libraries"
  exit
fi
if [ -n "$pack" ]; then
  build "${architectures:-80;90;100}" && pack "$pack"
  exit
fi

tests=(kernels_cuda_device_test cuda_backend_device_test)
bench=gpu_bench scale=() tuning=()
sanitized='TopK*:RowReduce*:RowOps*:ExcludeSelf*:Projection*:Attention*'
folder=$work/programs
mkdir -p "$folder"
if $rehearse; then
  for program in gpu_bench_emulated kernels_cuda_test cuda_backend_test; do
    find "$PWD/build/release" -type f -name "$program" -exec ln -s {} "$folder/" \;
  done
  tests=(kernels_cuda_test cuda_backend_test)
  bench=gpu_bench_emulated scale=(--rehearse --seconds 0.01) tuning=(--rehearse --seconds 60)
elif [ -n "$programs" ]; then
  tar -xzf "$programs" -C "$folder" || { echo "gpu_check: $programs cannot be unpacked" >&2; exit 1; }
else
  if ! build "${architectures:-native}" >"$work/build.log" 2>&1; then
    tail -n 20 "$work/build.log"
    echo "gpu_check: the programs cannot be built here; on a machine with the build's packages --pack-libraries packs those, and --pack the programs" >&2
    exit 1
  fi
  for program in "${targets[@]}"; do
    find "$PWD/build/cuda" -type f -name "$program" -exec ln -s {} "$folder/" \;
  done
fi
[ -x "$folder/$bench" ] || { echo "gpu_check: there is no $bench" >&2; exit 1; }
# cuBLASLt comes with the CUDA toolkit or with PyTorch.
torch_lib=$(python3 -c 'import nvidia; print(next(iter(nvidia.__path__)) + "/cu13/lib")' 2>/dev/null)
taken_along=$([ -z "$libraries" ] || echo "$PWD"/build/gpu-libraries/usr/lib/*-linux-gnu)
# The path is set for our programs only; other programs have their own libraries.
ours=(env "LD_LIBRARY_PATH=$folder/lib:$taken_along:${LD_LIBRARY_PATH:-}:/usr/local/cuda/lib64:$torch_lib")

"${ours[@]}" "$folder/$bench" device >"$work/device.json" 2>"$work/device.log"
case $? in
  0) ;;
  3) sed 's/^/gpu_check: /' "$work/device.log" >&2; exit 3 ;;
  *) cat "$work/device.log" >&2; exit 1 ;;
esac
machine=$(nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv,noheader 2>/dev/null | head -n 1)

# The parts run in the order of their importance, each with its share of the time. In a rehearsal,
# these tests show whether programs and script work; ./test runs all tests of the emulator.
filter='*'
$rehearse && filter='TopKTest.*:RowReduceTest.*:CudaModelTest.One*'
part "kernel tests" 120 kernel_tests.txt "${ours[@]}" "$folder/${tests[0]}" --gtest_brief=1 "--gtest_filter=$filter"
part "plans" 80 plans.json "${ours[@]}" "$folder/$bench" plans "${scale[@]}"
# This part makes a table of cuBLASLt's algorithms, which is to be committed.
if grep -q '"library": "[^"]' "$work/device.json"; then
  part "algorithms" 60 algorithms.json "${ours[@]}" "$folder/$bench" tune "${tuning[@]}"
else
  record "algorithms" "not measured: no cuBLASLt" 0
fi
for kernels in rows products draws; do
  part "kernels, $kernels" 50 "$kernels.json" "${ours[@]}" "$folder/$bench" "$kernels" "${scale[@]}"
done
# The engine tests include invariance over bucket sizes.
part "engine tests" 150 engine_tests.txt "${ours[@]}" "$folder/${tests[1]}" --gtest_brief=1 "--gtest_filter=$filter"
if ! $rehearse && python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
  part "PyTorch" 110 torch.json python3 loadtest/gpu/torch_peers.py --seconds 100
else
  record "PyTorch" "not measured: no PyTorch with a GPU" 0
fi
for tool in memcheck racecheck; do
  if ! $rehearse && command -v compute-sanitizer >/dev/null; then
    part "compute-sanitizer $tool" 60 "$tool.txt" "${ours[@]}" compute-sanitizer --tool "$tool" --error-exitcode 9 \
      "$folder/${tests[0]}" --gtest_brief=1 "--gtest_filter=$sanitized"
  else
    record "compute-sanitizer $tool" "not measured: no compute-sanitizer with a GPU" 0
  fi
done

rehearsal=()
$rehearse && rehearsal=(--rehearsal)
python3 loadtest/gpu/report.py "$work" --out "$out" --machine "$machine" "${rehearsal[@]}" || failed=1
exit $failed
