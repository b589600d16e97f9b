"""Tests tools/sass_loops.py on small loops, and the loops of the CUDA kernels."""

import json
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import sass  # noqa: E402  # pylint: disable=wrong-import-position
import sass_loops  # noqa: E402  # pylint: disable=wrong-import-position

PRODUCT = "HMMA.16816.F32.BF16 R0, R0, R0, R0"
LOAD = "LDS.128 R0, [R0]"
NEXT = "@P0 BRA `(.L_x_1)"


def code(*lines):
    """Returns the instructions in these lines; a line that ends with a colon is a label."""
    text = ['\t.section\t.text.kernel,"ax",@progbits', ".text.kernel:"]
    for i, line in enumerate(lines):
        text.append(line if line.endswith(":") else f"        /*{16 * i:04x}*/    {line} ;")
    return sass.read_sass("\n".join(text))["kernel"]


def loop(*lines):
    return code(".L_x_1:", *lines, NEXT, "EXIT")


def row(products, shared=0, global_=0, others=0, steps=1):
    """Returns what the emulator counts."""
    return {"source": "x.cu", "kernel": "X", "step": "a step", "steps": steps, "products": products,
            "shared": shared, "global": global_, "others": others}


@pytest.mark.parametrize("opcode, kind", [
    ("HMMA.16816.F32.BF16", "products"), ("IMMA.16832.S8.S8", "products"),
    ("HGMMA.64x32x16.F32.BF16", "products"), ("HFMA2.MMA", None), ("LDSM.16.M88.4", "shared"),
    ("LDS.128", "shared"), ("STS", "shared"), ("LDG.E.128", "global"), ("LDGSTS.E.128", "global"),
    ("BAR.SYNC.DEFER_BLOCKING", "others"), ("SYNCS.PHASECHK.TRANS64.TRYWAIT", "others"),
    ("SHFL.BFLY", "others"), ("WARPGROUP.DEPBAR.LE", "others"), ("WARPGROUP.ARRIVE", None),
    ("WARPSYNC.ALL", None), ("IADD3", None), ("LDL", None), ("BRA", None)])
def test_instructions_count_as_in_the_emulator(opcode, kind):
    assert sass_loops.kind_of(opcode) == kind


def test_an_iteration_has_all_instructions_of_the_loop():
    found = sass_loops.iteration(loop(LOAD, "NOP", PRODUCT, "IADD3 R1, R1, R1, RZ"),
                                 row(products=1, shared=1))
    assert found == {"steps": 1, "instructions": 5, "products": 1, "shared": 1, "global": 0,
                     "others": 0}


def test_an_instruction_that_never_runs_is_not_in_an_iteration():
    found = sass_loops.iteration(loop(PRODUCT, "@!PT LDS.128 R0, [R0]"), row(products=1))
    assert (found["instructions"], found["shared"]) == (2, 0)


RARE = ("@P1 BRA `(.L_x_2)", LOAD, LOAD, "NOP", ".L_x_2:")


@pytest.mark.parametrize("shared, instructions", [(0, 3), (2, 6)])
def test_an_iteration_takes_the_branches_that_the_emulator_takes(shared, instructions):
    found = sass_loops.iteration(loop(PRODUCT, *RARE), row(products=1, shared=shared))
    assert (found["shared"], found["instructions"]) == (shared, instructions)


def test_the_shortest_of_the_nearest_iterations_is_used():
    found = sass_loops.iteration(
        loop(PRODUCT, "@P1 BRA `(.L_x_2)", "NOP", "NOP", ".L_x_2:"), row(products=1))
    assert found["instructions"] == 3


def test_an_iteration_of_several_steps_is_recognised():
    found = sass_loops.iteration(loop(*[LOAD, PRODUCT] * 3), row(products=8, shared=8, steps=8))
    assert (found["steps"], found["products"], found["instructions"]) == (3, 3, 7)
    assert sass_loops.judge(row(products=8, shared=8, steps=8), found) is None


def test_the_loop_that_the_emulator_runs_is_found_among_several():
    lines = []
    for i, loads in enumerate((1, 2, 3)):
        lines += [f".L_x_{i}:", PRODUCT, *[LOAD] * loads, f"@P0 BRA `(.L_x_{i})"]
    assert sass_loops.iteration(code(*lines, "EXIT"), row(products=1, shared=2))["shared"] == 2


@pytest.mark.parametrize("fault", [
    [LOAD],  # a value that the source reads once
    ["SHFL.BFLY R0, R0, R0, R0"], ["LDG.E R0, [R0]"], [PRODUCT]])
def test_another_instruction_in_the_machine_code_is_an_error(fault):
    counted = row(products=4, shared=4, others=1)
    lines = [*[LOAD, PRODUCT] * 4, "BAR.SYNC 0x0"]
    assert sass_loops.judge(counted, sass_loops.iteration(loop(*lines), counted)) is None
    error = sass_loops.judge(counted, sass_loops.iteration(loop(*lines, *fault), counted))
    assert error and error.startswith("x.cu: X, a step: a step has ")


def test_differences_within_ten_percent_are_accepted():
    counted = row(products=10, shared=10)
    assert sass_loops.judge(counted, sass_loops.iteration(
        loop(*[LOAD, PRODUCT] * 10, LOAD, LOAD), counted)) is None


def test_a_kernel_without_a_loop_of_products_is_an_error():
    counted = row(products=1)
    found = sass_loops.iteration(code(PRODUCT, "EXIT"), counted)
    assert "no loop of matrix products" in sass_loops.judge(counted, found)


def recorded():
    """Yields the counts of each loop by the emulator and in machine code."""
    table = {sass_loops.key(each): each
             for each in json.loads((ROOT / sass_loops.TABLE).read_text())}
    for counted in sass_loops.read_counts(ROOT):
        if found := table.get(sass_loops.key(counted)):
            yield counted, found


def test_every_recorded_loop_agrees_with_the_emulator():
    for counted, found in recorded():
        assert sass_loops.judge(counted, found) is None


def test_a_step_of_few_rows_keeps_its_budget():
    """The products of 128 of k by one matrix, or of 64 of k by two."""
    found = {each["kernel"]: each for _, each in recorded()
             if each["step"] in ("128 of k, 16 rows", "64 of k, 16 rows")}
    assert {"FewRowsOfGroups", "GatedFewRowsOfGroups"} <= set(found)
    for kernel, each in found.items():
        assert each["instructions"] <= 60 * each["steps"], kernel


def test_every_loop_of_matrix_products_is_compared():
    compared = {found["kernel"] for _, found in recorded()}
    kernels = {kernel for entry in
               json.loads((ROOT / "kernels/cuda/sass.json").read_text())["sources"].values()
               for kernel, figures in entry["kernels"].items()
               for architecture, each in figures.items()
               if architecture.startswith("sm_90") and "hot_hmma" in each}
    assert kernels <= compared, sorted(kernels - compared)
