#!/usr/bin/env bash
# Checks and times the CUDA engine on a GPU, in parts, within nine minutes. The report is the last
# output. loadtest/gpu/check.py runs the parts; this script builds, packs and finds the programs.
set -uo pipefail

usage() {
  cat <<'USAGE'
usage: gpu_check.sh [--out FOLDER] [--only PART,...] [--budget SECONDS] [--resume [FOLDER]] [--rehearse]
                    [--trace FILE] [--programs FILE | --libraries FILE]
       gpu_check.sh --pack FILE [--trace FILE] [--architectures LIST] [--cuda FOLDER] [--rehearse]
       gpu_check.sh --pack-libraries FILE

Runs, on the first GPU: the tests of kernels, the evidence for buckets, the benchmarks of kernels,
ncu, steps, the tests of the engine, the search for cuBLASLt's algorithms, compute-sanitizer, and
the daemon under load. PyTorch's peers run only if --only names them. A machine that is lent for 15
minutes has time for two commands:
  gpu_check.sh --only kernel-tests,buckets,ceilings,products,draws,rows --budget 330
  gpu_check.sh --only ncu,steps,tune,engine-own,engine-cublaslt,table --budget 380
The rest is for the start and the transfers. Give the second command within 30 s of the first one's
end. Each has a report of its own: a lent machine keeps no results, which --resume would read.
If a case fails, crashes or hangs, it is reported and the others run. Cases for which there is
no time are listed. Exit status: 0 all succeeded, 1 something failed, 3 no device.

  --out FOLDER          folder of the results, which are written during the run (default: $OUT if
                        that is set, else loadtest/results/gpu)
  --only PART,...       only these parts: kernel-tests buckets ceilings products draws rows ncu
                        steps engine-own engine-cublaslt tune table plans memcheck racecheck trace
                        daemon peers
  --budget SECONDS      for all parts together (530); with few parts each gets more
  --resume [FOLDER]     skips the cases that have an outcome in this folder of an earlier run
                        (default: the folder of --out)
  --trace FILE          CSV of arrivals (arrival_s, input_tokens, output_tokens) whose lengths the
                        part trace sends; a pack includes it. Without it the part is not measured
  --rehearse            uses the emulator and the release build: tests the kit, times nothing
  --programs FILE       a pack made by --pack; not needed in an unpacked pack. Without it the
                        programs are built here, with nvcc and cmake
  --libraries FILE      a pack made by --pack-libraries, to build here without Debian's packages and
                        without a network
  --pack FILE           builds the programs and packs them with their libraries, the demo model and
                        this kit, for a machine with a driver and Python 3 and without a network;
                        with --rehearse packs the emulator's programs
  --architectures LIST  GPU architectures to build for, in CMake's format (90 for a pack, else
                        native)
  --cuda FOLDER         the CUDA toolkit to build with
  --pack-libraries FILE packs the libraries and headers of Debian that the programs are built with
USAGE
}

invoked_from=$PWD
cd "$(dirname "$0")/.." || exit 1
# The build targets for a GPU and for a rehearsal, with their names in a pack.
readonly gpu_targets=(gpu_bench kernels_cuda_device_test cuda_backend_device_test)
readonly emulator_targets=(gpu_bench_emulated kernels_cuda_test cuda_backend_test)
readonly names=(gpu_bench kernels_test backend_test)
readonly server_targets=(sluiced sluice sluice-analysis sluice-load)
# The files that the programs read, relative to the root of the sources.
readonly data=(loadtest/gpu_check.sh loadtest/gpu models/demo tests/goldens tests/support/ports.py)
# The Debian packages with headers and libraries for building the programs.
readonly packages=(libabsl-dev libgmock-dev libgtest-dev libicu-dev nlohmann-json3-dev)
readonly most_pack_bytes=$((56 << 20))  # 64 MiB without the sources, which travel too

trace='' programs='' libraries='' out='' only='' budget='' resume='' rehearse=false pack='' architectures=''
cuda='' pack_libraries=''
while [ $# -gt 0 ]; do
  case $1 in
    --rehearse) rehearse=true ;;
    --resume)
      resume=.
      if [ $# -ge 2 ] && [ "${2#--}" = "$2" ]; then resume=$2; shift; fi
      ;;
    --trace | --programs | --libraries | --out | --only | --budget | --pack | --pack-libraries | --architectures | --cuda)
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

# absolute PATH: resolves PATH from the folder in which the script was called.
absolute() { case $1 in /*) echo "$1" ;; *) echo "$invoked_from/$1" ;; esac; }
for option in trace programs libraries out pack cuda pack_libraries; do
  [ -z "${!option}" ] || declare "$option=$(absolute "${!option}")"
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# build ARCHITECTURES SERVER: builds the programs in build/cuda, or in build/release for a
# rehearsal, with the daemon if SERVER is ON.
build() {
  local targets=("${gpu_targets[@]}") options=() prefix=()
  [ "${SLUICE_GPU_CHECK_BUILD:-1}" = 1 ] || return 0 # A test has already built the programs.
  if $rehearse; then
    targets=("${emulator_targets[@]}")
    [ "$2" = OFF ] || targets+=("${server_targets[@]}")
    [ -f build/release/build.ninja ] || cmake --preset release || return 1
    cmake --build build/release --target "${targets[@]}"
    return
  fi
  [ "$2" = OFF ] || targets+=("${server_targets[@]}")
  if [ -n "$cuda" ]; then
    options=("-DCMAKE_CUDA_COMPILER=$cuda/bin/nvcc" "-DCUDAToolkit_ROOT=$cuda")
  else
    command -v nvcc >/dev/null || PATH=$PATH:/usr/local/cuda/bin
  fi
  if [ -n "$libraries" ]; then
    # The libraries are not in the work folder, because CMake caches their paths.
    mkdir -p build/gpu-libraries && tar -xzf "$libraries" -C build/gpu-libraries || return 1
    prefix=("-DCMAKE_PREFIX_PATH=$PWD/build/gpu-libraries/usr")
    export CPLUS_INCLUDE_PATH=$PWD/build/gpu-libraries/usr/include # searched like /usr/include
  fi
  cmake --preset cuda "-DSLUICE_SERVER=$2" "-DSLUICE_BENCHMARKS=$2" "-DSLUICE_CUDA_ARCHITECTURES=$1" \
    "${options[@]}" "${prefix[@]}" && cmake --build build/cuda --target "${targets[@]}"
}

# built NAME: prints the path of a built program.
built() {
  local folder=build/cuda
  ! $rehearse || folder=build/release
  find "$PWD/$folder" -type f -perm -u+x -name "$1" | head -n 1
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

# link_programs FOLDER COMMAND: puts the programs into the folder with COMMAND FROM TO.
link_programs() {
  local targets=("${gpu_targets[@]}") i program
  ! $rehearse || targets=("${emulator_targets[@]}")
  mkdir -p "$1/lib"
  for i in "${!names[@]}"; do
    program=$(built "${targets[$i]}")
    [ -z "$program" ] || $2 "$program" "$1/${names[$i]}" || return 1
  done
  for i in "${server_targets[@]}"; do
    program=$(built "$i")
    [ -z "$program" ] || $2 "$program" "$1/$i" || return 1
  done
}

strip_to() { strip -o "$2" "$1"; }

# pack FILE: packs this folder, and the programs with their libraries. The C and C++ runtimes are
# left out, because the machine's profilers may need its newer versions.
pack() {
  local folder=$work/pack
  link_programs "$folder/programs" strip_to || return 1
  find "$folder/programs" -maxdepth 1 -type f -exec ldd {} + |
    awk '$2 == "=>" && $3 ~ /^\// && $1 !~ /^(lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)\.so|ld-linux)/ { print $3 }' |
    sort -u | xargs -r cp -L -t "$folder/programs/lib" || return 1
  ! $rehearse || touch "$folder/programs/emulator"
  tar -cf - --exclude=__pycache__ "${data[@]}" | tar -xf - -C "$folder" || return 1
  [ -z "$trace" ] || cp "$trace" "$folder/trace.csv" || return 1
  case $1 in
    *.xz) tar -cJf "$1" -C "$folder" . ;;
    *) tar -czf "$1" -C "$folder" . ;;
  esac || return 1
  ls -l "$1"
  if ! $rehearse && [ "$(stat -c %s "$1")" -gt $most_pack_bytes ]; then
    echo "gpu_check: the pack is larger than $most_pack_bytes bytes; give it a name that ends in .xz to compress it better" >&2
    return 1
  fi
}

if [ -n "$pack_libraries" ]; then
  pack_libraries "$pack_libraries"
  exit
fi
if [ -n "$pack" ]; then
  build "${architectures:-90}" ON && pack "$pack"
  exit
fi

folder=$work/programs
if [ -n "$programs" ]; then
  mkdir -p "$work/pack"
  # Python unpacks archives of xz if the program is missing.
  python3 -m tarfile -e "$programs" "$work/pack" ||
    { echo "gpu_check: cannot unpack $programs" >&2; exit 1; }
  folder=$work/pack/programs
elif [ -d programs ]; then
  folder=$PWD/programs
elif $rehearse; then
  link_programs "$folder" "ln -s" || exit 1
else
  if ! build "${architectures:-native}" OFF >"$work/build.log" 2>&1; then
    tail -n 20 "$work/build.log"
    echo "gpu_check: the programs cannot be built here. On a machine with the build's packages, --pack-libraries packs the libraries and --pack the programs" >&2
    exit 1
  fi
  link_programs "$folder" "ln -s" || exit 1
fi
[ -x "$folder/gpu_bench" ] || { echo "gpu_check: there is no gpu_bench in $folder" >&2; exit 1; }
[ ! -e "$folder/emulator" ] || rehearse=true
if [ -n "$libraries" ]; then
  for library in build/gpu-libraries/usr/lib/*-linux-gnu; do
    export LD_LIBRARY_PATH=$PWD/$library:${LD_LIBRARY_PATH:-}
  done
fi

out=${out:-${OUT:-$PWD/loadtest/results/gpu}}
options=()
! $rehearse || options+=(--rehearse)
[ -z "$only" ] || options+=(--only "$only")
[ -n "$trace" ] || [ ! -e trace.csv ] || trace=$PWD/trace.csv          # of an unpacked pack
[ -n "$trace" ] || [ ! -e "$work/pack/trace.csv" ] || trace=$work/pack/trace.csv # of --programs
[ -z "$trace" ] || options+=(--trace "$trace")
[ -z "$budget" ] || options+=(--budget "$budget")
case $resume in
  '') ;;
  .) options+=(--resume "$out") ;;
  *) options+=(--resume "$(absolute "$resume")") ;;
esac
# If the run is stopped, the report is still written.
python3 loadtest/gpu/check.py --programs "$folder" --out "$out" "${options[@]}" &
child=$!
trap 'kill -TERM $child 2>/dev/null' TERM INT
while true; do
  wait $child
  status=$?
  kill -0 $child 2>/dev/null || break
done
exit $status
