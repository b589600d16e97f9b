"""Tests tools/check_sass.py on a small tree of compiled kernels with deliberate faults."""

import json
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]

CMAKE = """set(SLUICE_CUDA_ARCHITECTURES "90" CACHE STRING "GPU architectures")
set_target_properties(sluice_cuda_kernels PROPERTIES CUDA_STANDARD 20)
target_compile_options(sluice_cuda_kernels PRIVATE -fmad=false -Werror=all-warnings)
"""

# Each macro of sizes.h causes a fault in one kernel if it has its second value.
SIZES = {
    "COUNTER": ("unsigned", "unsigned long long"),
    "HELD": ("8", "160"),
    "WORD": ("uint4", "unsigned char"),
    "DIVISOR": ("8", "divisor[i]"),
    "PRODUCTS": ("4", "1"),
    "PLACE": ("i % 8", "index[i] % 32"),
}

KERNELS = """#include "kernels/cuda/sizes.h"

__global__ void CountKernel(COUNTER* out, const COUNTER* in) {
  __shared__ COUNTER sums[32];
  sums[threadIdx.x % 32] = 0;
  __syncthreads();
  atomicAdd(&sums[in[threadIdx.x] % 32], in[threadIdx.x]);
  __syncthreads();
  out[threadIdx.x] = sums[threadIdx.x % 32];
}

__global__ void __launch_bounds__(1024) HoldKernel(float* out, const float* in) {
  float values[HELD];
#pragma unroll
  for (int i = 0; i < HELD; ++i) values[i] = in[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < HELD; ++i) out[i * 1024 + threadIdx.x] = values[HELD - 1 - i];
}

template <bool kTwice>
__global__ void CopyKernel(WORD* out, const WORD* in) {
  out[threadIdx.x] = in[threadIdx.x];
  if (kTwice) out[threadIdx.x + 1024] = in[threadIdx.x];
}
template __global__ void CopyKernel<true>(WORD*, const WORD*);

__global__ void DivideKernel(int* out, const int* in, const int* divisor, int count) {
  for (int i = threadIdx.x; i < count; i += 1024) out[i] = in[i] / DIVISOR;
}

__global__ void MultiplyKernel(float* out, const unsigned* in, int count) {
  float sums[4] = {};
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
#pragma unroll
    for (int j = 0; j < PRODUCTS; ++j) {
      const unsigned a = in[i * 64 + j * 32 + threadIdx.x];
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                   "{%4, %4, %4, %4}, {%4, %4}, {%0, %1, %2, %3};"
                   : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) : "r"(a));
    }
  }
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = sums[i];
}

__global__ void GatherKernel(float* out, const float* in, const unsigned* index, int count) {
  float values[32] = {};
#pragma unroll 8
  for (unsigned i = 0; i < 8u * count; ++i) values[PLACE] += in[i];
  for (int i = 0; i < 32; ++i) out[i] = values[i];
}
"""


def run(tree, *arguments):
    """Returns the exit status and output of the check of a tree."""
    done = subprocess.run([sys.executable, ROOT / "tools/check_sass.py", tree, *arguments],
                          capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def write_sizes(tree, *faults):
    lines = [f"#define {name} {values[name in faults]}\n" for name, values in SIZES.items()]
    (tree / "kernels/cuda/sizes.h").write_text("".join(lines))


def budgets(tree):
    return json.loads((tree / "kernels/cuda/sass.json").read_text())


@pytest.fixture(name="clean", scope="module")
def clean_tree(tmp_path_factory):
    """A tree without faults, with its budgets and its compiled kernels."""
    tree = tmp_path_factory.mktemp("clean")
    folder = tree / "kernels/cuda"
    folder.mkdir(parents=True)
    (folder / "CMakeLists.txt").write_text(CMAKE)
    (folder / "sources.cmake").write_text("set(SLUICE_CUDA_KERNELS\n  planted.cu)\n")
    (folder / "planted.cu").write_text(KERNELS)
    write_sizes(tree)
    status, said = run(tree, "--update")
    assert status == 0, said
    return tree


@pytest.fixture(name="faulty", scope="module")
def faulty_tree(clean, tmp_path_factory):
    """The same tree with all faults, and the output of the check."""
    tree = tmp_path_factory.mktemp("faulty") / "tree"
    shutil.copytree(clean, tree)
    write_sizes(tree, *SIZES)
    return tree, *run(tree)


@pytest.fixture(name="copy")
def copy_of(clean, tmp_path):
    tree = tmp_path / "tree"
    shutil.copytree(clean, tree)
    return tree


def test_kernels_within_their_budgets_pass(clean):
    status, said = run(clean)
    assert status == 0 and "6 kernels of 1 sources are within their budgets" in said
    assert "hint" not in said


@pytest.mark.parametrize("message", [
    pytest.param(r"Count on sm_90: [1-9]\d* compare-and-swap instructions, the budget is at most 0",
                 id="64-bit atomics in shared memory"),
    pytest.param(r"Hold on sm_90: [1-9]\d* bytes of spill stores, the budget is at most 0",
                 id="spill stores"),
    pytest.param(r"Hold on sm_90: [1-9]\d* bytes of spill loads, the budget is at most 0",
                 id="spill loads"),
    pytest.param(r"Copy<twice> on sm_90: [1-9]\d* LDG of 8 bits, the budget is at most 0",
                 id="narrow loads"),
    pytest.param(r"Copy<twice> on sm_90: [1-9]\d* STG of 8 bits, the budget is at most 0",
                 id="narrow stores"),
    pytest.param(r"Copy<twice> on sm_90: 0 LDG of 128 bits, the budget is at least [1-9]",
                 id="no wide loads"),
    pytest.param(r"Copy<twice> on sm_90: 0 STG of 128 bits, the budget is at least [1-9]",
                 id="no wide stores"),
    pytest.param(r"Divide on sm_90: [1-9]\d* integer divisions in loops, the budget is at most 0",
                 id="divisions"),
    pytest.param(r"Multiply on sm_90: 1 matrix products in the hot loop, the budget is at least 4",
                 id="matrix products"),
    pytest.param(r"Multiply on sm_90: [\d.]+ percent of matrix products in the hot loop, the "
                 r"budget is at least [\d.]+", id="share of matrix products"),
    pytest.param(r"Gather on sm_90: [1-9]\d* accesses to the stack in loops, the budget is at "
                 r"most 0", id="an array that is not in registers"),
])
def test_a_fault_is_named_with_kernel_architecture_and_figures(faulty, message):
    _, status, said = faulty
    assert status == 1 and re.search(f"^kernels/cuda/planted.cu: {message}", said, re.MULTILINE)


def test_every_kernel_has_budgets_and_every_budget_a_kernel(copy):
    source = copy / "kernels/cuda/planted.cu"
    source.write_text(source.read_text().replace("HoldKernel", "KeepKernel"))
    status, said = run(copy)
    assert status == 1
    assert ("kernels/cuda/planted.cu: Keep on sm_90: kernels/cuda/sass.json has no budgets for it"
            in said)
    assert "planted.cu: kernels/cuda/sass.json has budgets of Hold, which does not exist" in said


def test_update_raises_forbidden_figures_only_on_request(faulty):
    tree = faulty[0]
    before = budgets(tree)
    status, said = run(tree, "--update")
    assert status == 1 and budgets(tree) == before
    assert re.search(r"planted.cu: Hold on sm_90: \d+ bytes of spill stores instead of 0", said)
    assert re.search(r"planted.cu: Count on sm_90: \d+ compare-and-swap instructions instead", said)
    assert "Multiply" not in said


def test_figures_better_than_their_budgets_are_hints(faulty, tmp_path):
    tree = tmp_path / "tree"
    shutil.copytree(faulty[0], tree)
    assert run(tree, "--update", "--accept-worse")[0] == 0
    write_sizes(tree, *(set(SIZES) - {"HELD"}))
    status, said = run(tree)
    assert status == 0
    assert re.search(r"hint: .*Hold on sm_90: 0 bytes of spill stores, better than [1-9]", said)
    assert "hint: planted.cu changed since the budgets were written" in said
    assert run(tree, "--update")[0] == 0
    assert "hint" not in run(tree)[1]


def test_only_changed_sources_are_compiled(copy, tmp_path):
    nvcc = pathlib.Path(run_where("nvcc"))
    calls = tmp_path / "calls"
    wrapper = tmp_path / "nvcc"
    wrapper.write_text(f'#!/bin/sh\necho "$*" >>{calls}\nexec {nvcc} "$@"\n')
    wrapper.chmod(0o755)
    shutil.rmtree(copy / "build")

    def compiled(*arguments):
        calls.write_text("")
        status, said = run(copy, "--nvcc", wrapper, *arguments)
        assert status == 0, said
        return calls.read_text().count("-cubin")

    source = copy / "kernels/cuda/planted.cu"
    assert compiled() == 0  # The table has its result.
    source.write_text(f"/* Another comment. */ {source.read_text()}// One more.\n")
    assert compiled() == 0
    source.write_text(source.read_text().replace("atomicAdd(&sums", "atomicAdd_block(&sums"))
    assert compiled() == 1
    assert compiled() == 0  # The last run stored its result.
    header = copy / "kernels/cuda/sizes.h"
    header.write_text(header.read_text() + "#define UNUSED 1\n")
    assert compiled() == 1
    write_sizes(copy)
    source.write_text(KERNELS)
    assert compiled() == 0 and compiled("--all") == 1


def test_loops_are_compared_with_the_emulators_counts(copy):
    counts = copy / "tests/kernels/cuda/loops.json"
    counts.parent.mkdir(parents=True)
    row = {"source": "planted.cu", "kernel": "Multiply", "step": "a step", "steps": 2,
           "products": 8, "shared": 0, "global": 8, "others": 0}
    counts.write_text(json.dumps([row]))
    header = copy / "kernels/cuda/sizes.h"
    header.write_text(header.read_text() + "#define UNUSED 1\n")
    status, said = run(copy, "--update")
    assert status == 0, said
    [loop] = json.loads((copy / "kernels/cuda/loops.json").read_text())
    assert (loop["steps"], loop["products"], loop["global"]) == (1, 4, 4)
    assert loop["instructions"] > 8
    assert "hint" not in run(copy)[1]

    counts.write_text(json.dumps([{**row, "shared": 2}]))  # a load that the compiler moved away
    status, said = run(copy)
    assert status == 1 and "planted.cu: Multiply, a step: a step has 4 products, 0 shared" in said
    counts.write_text(json.dumps([row]))
    write_sizes(copy, "PRODUCTS")
    status, said = run(copy)
    assert status == 1 and "planted.cu: Multiply, a step: a step has 1 products" in said


def run_where(name):
    """Returns the toolkit program that the check finds."""
    code = (f"import sys; sys.path.insert(0, {str(ROOT / 'tools')!r}); import check_sass; "
            f"print(check_sass.Toolkit._find({name!r}))")
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          check=True).stdout.strip()


def test_budgets_changed_by_hand_are_checked(copy):
    table = copy / "kernels/cuda/sass.json"
    table.write_text(re.sub(r'("Hold": {\s*"sm_90": {[^}]*"registers": )\d+', r"\g<1>3",
                            table.read_text()))
    status, said = run(copy)
    assert status == 1
    assert re.search(r"Hold on sm_90: \d+ registers, the budget is at most 3", said)


def test_the_markdown_table_has_a_row_for_each_kernel(clean):
    status, said = run(clean, "--table")
    rows = {line.split("|")[1].strip(): line for line in said.splitlines()
            if line.startswith("| `")}
    assert status == 0 and len(rows) == 6
    assert "| 128: 2 | 128: 2 |" in rows["`Copy<twice>`"]
    assert re.search(r"\| 4 of \d+ \([\d.]+ %\) \|", rows["`Multiply`"])


def test_compiler_errors_are_shown(copy):
    source = copy / "kernels/cuda/planted.cu"
    source.write_text(source.read_text() + "__global__ void WrongKernel() { nothing(); }\n")
    status, said = run(copy)
    assert status == 1 and "planted.cu" in said and '"nothing" is undefined' in said


def test_an_unknown_source_is_refused(clean):
    status, said = run(clean, "--only", "other.cu")
    assert status == 1 and "other.cu" in said


def test_budgets_of_a_removed_source_fail(copy):
    listed = copy / "kernels/cuda/sources.cmake"
    (copy / "kernels/cuda/rest.cu").write_text("__global__ void RestKernel() {}\n")
    listed.write_text(listed.read_text().replace("planted.cu", "rest.cu"))
    status, said = run(copy)
    assert status == 1 and "kernels/cuda/sass.json has budgets of planted.cu" in said
    assert run(copy, "--update")[0] == 0 and list(budgets(copy)["sources"]) == ["rest.cu"]


def test_tuned_kernels_are_compiled_only_for_their_architecture(copy):
    folder = copy / "kernels/cuda"
    (folder / "CMakeLists.txt").write_text(
        CMAKE + 'set(SLUICE_HOPPER_ARCHITECTURES "80;90a")\n')
    (folder / "sources.cmake").write_text("set(SLUICE_CUDA_KERNELS\n  planted.cu)\n"
                                          "set(SLUICE_HOPPER_KERNELS\n  tuned.cu)\n")
    (folder / "tuned.cu").write_text(
        "#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)\n#error another GPU\n"
        "#endif\n"
        "__global__ void TunedKernel(int* out) { out[threadIdx.x] = 1; }\n")
    status, said = run(copy, "--update")
    assert status == 0, said
    assert list(budgets(copy)["sources"]["tuned.cu"]["kernels"]["Tuned"]) == ["sm_90a"]
    assert list(budgets(copy)["sources"]["planted.cu"]["kernels"]["Count"]) == ["sm_90"]
