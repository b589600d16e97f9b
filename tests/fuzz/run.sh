#!/usr/bin/env bash
# Builds the fuzz targets with clang and runs them in parallel, one per processor.
set -uo pipefail
. "$(dirname "$0")/../../tools/common.sh"

usage() {
  cat <<'USAGE'
usage: tests/fuzz/run.sh [--runs N] [--seed N] [TARGET...]

Runs the targets (default: all of tests/fuzz/*_fuzz.cc) on N inputs in total, in addition to their
corpora. Cheap targets get more inputs. Prints the number of inputs of each target.

  --runs N  inputs in total (default 100000)
  --seed N  seed of libFuzzer, to reproduce a run (default 0: random)

The seeds are in tests/fuzz/corpus/. Inputs that reach new code are kept in build/fuzz/corpus/ for
the next run, and failing inputs in build/fuzz/findings/. After a fix, add the failing input to
tests/fuzz/corpus/TARGET/ as finding_*.
USAGE
}

runs=100000
seed=0
targets=()
while [ $# -gt 0 ]; do
  case $1 in
    --runs) runs=$2; shift 2 ;;
    --seed) seed=$2; shift 2 ;;
    -h | --help) usage; exit 0 ;;
    -*) usage >&2; fail "unknown argument: $1" ;;
    *) targets+=("$1"); shift ;;
  esac
done
if [ ${#targets[@]} -eq 0 ]; then
  for source in tests/fuzz/*_fuzz.cc; do targets+=("$(basename "$source" _fuzz.cc)"); done
fi

install_packages tools/packages-build.txt tools/packages-fuzz.txt
build fuzz "${targets[@]/#/fuzz_}"

# The relative number of inputs of each target, according to the cost of one input.
declare -A shares=([callers]=50 [parameters]=26 [request]=14 [einsum]=5 [safetensors]=3 [config]=2 [certificate]=1.1
  [json]=14 [ladder]=1.1 [model_config]=1.1 [tokenizer]=1.1 [journal]=1.1 [quantized]=1.1 [text]=14 [wire]=14)
all=$(for target in "${targets[@]}"; do echo "${shares[$target]:-1}"; done | awk '{ sum += $1 } END { print sum }')

# fuzz TARGET INPUTS: runs a target. One input may take 10 s and 1 GiB, far more than it should
# need, and one allocation 64 MiB.
fuzz() {
  local target=$1 log=build/fuzz/$1.log grown=build/fuzz/corpus/$1 seeds=tests/fuzz/corpus/$1 known status had accepted
  mkdir -p "$grown" "build/fuzz/findings/$target"
  known=$(find "$grown" "$seeds" -type f | wc -l)  # libFuzzer counts these inputs too.
  "build/fuzz/tests/fuzz/fuzz_$target" -runs=$(($2 + known)) -seed="$seed" -max_len=8192 -timeout=10 \
    -rss_limit_mb=1024 -malloc_limit_mb=64 -print_final_stats=1 -verbosity=0 -artifact_prefix="build/fuzz/findings/$target/" \
    "$grown" "$seeds" >"$log" 2>&1
  status=$?
  had=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  accepted=$(sed -n 's/^stat::accepted_units: *//p' "$log")
  printf '%-14s %10s inputs, %10s accepted  %s\n' "$target" "${had:-?}" "${accepted:-?}" "$([ $status -eq 0 ] && echo ok || echo "FAILED: $log")"
  return $status
}

export -f fuzz
export seed
say "fuzzing"
for target in "${targets[@]}"; do
  awk -v target="$target" -v share="${shares[$target]:-1}" -v all="$all" -v runs="$runs" \
    'BEGIN { printf "%s %d\n", target, runs * share / all + 1 }'
done | xargs -P "$(nproc)" -L 1 bash -c 'fuzz "$0" "$1"' | tee build/fuzz/summary.txt
failed=${PIPESTATUS[1]}
awk '{ sum += $2 } END { printf "%d inputs in total\n", sum }' build/fuzz/summary.txt
[ "$failed" -eq 0 ] || fail "a target failed; see its input in build/fuzz/findings/"
