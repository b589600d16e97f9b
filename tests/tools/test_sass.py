"""Tests tools/sass.py on small parts of the output of ptxas and nvdisasm."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools"))

import sass  # noqa: E402  # pylint: disable=wrong-import-position


def code(*lines):
    """Returns the instructions in these lines; a line that ends with a colon is a label."""
    text = ['\t.section\t.text.kernel,"ax",@progbits', ".text.kernel:"]
    place = 0
    for line in lines:
        if line.endswith(":"):
            text.append(line)
        else:
            text.append(f"        /*{place:04x}*/                   {line} ;")
            place += 16
    return sass.read_sass("\n".join(text))["kernel"]


def loops(*lines):
    """Returns the positions of the instructions of each loop."""
    return {head: sorted(loop) for head, loop in sass.find_loops(code(*lines)).items()}


def figures(*lines):
    return sass.figures_of(code(*lines))


def test_instructions_belong_to_their_section():
    found = sass.read_sass("""
\t.section\t.text._Z1av,"ax",@progbits
.text._Z1av:
        .type           _Z1av,@function
_Z1av:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/              @!P0 BRA `(.L_x_1) ;
\t.section\t.nv.constant0._Z1av,"a",@progbits
\t.section\t.text._Z1bv,"ax",@progbits
.text._Z1bv:
        /*0000*/                   EXIT ;
""")
    assert [each.opcode for each in found["_Z1av"]] == ["LDC", "BRA"]
    assert found["_Z1av"][1].predicate == "@!P0 " and found["_Z1av"][1].labels == [".L_x_1"]
    assert [each.opcode for each in found["_Z1bv"]] == ["EXIT"]


def test_resources_belong_to_the_kernel_not_to_called_functions():
    assert sass.read_usage("""
ptxas info    : Compiling entry function '_Z1av' for 'sm_90'
ptxas info    : Function properties for _Z1f
    8 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads
ptxas info    : Function properties for _Z1av
    48 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 48 bytes cumulative stack size
""") == {"_Z1av": {"registers": 255, "stack": 48, "spill_stores": 12, "spill_loads": 16}}


def test_backward_branch_is_a_loop():
    assert loops("NOP", ".L_x_1:", "NOP", "@P0 BRA `(.L_x_1)", "EXIT") == {1: [1, 2]}


def test_endless_branch_after_the_code_is_not_a_loop():
    assert not loops("EXIT", ".L_x_1:", "BRA `(.L_x_1)", "NOP")


def test_rare_case_after_the_loop_belongs_to_the_loop():
    assert loops(".L_x_1:", "@P1 BRA `(.L_x_3)", ".L_x_2:", "NOP", "@P0 BRA `(.L_x_1)", "EXIT",
                 ".L_x_3:", "NOP", "BRA `(.L_x_2)") == {0: [0, 1, 2, 4, 5]}


@pytest.mark.parametrize("branch", ["BRA.U UP0, `(.L_x_2)", "BRA.DIV UR4, `(.L_x_2)",
                                    "BRA !P0, `(.L_x_2)"])
def test_an_operand_makes_a_branch_conditional(branch):
    assert loops(".L_x_1:", branch, "BRA `(.L_x_1)", ".L_x_2:", "EXIT") == {0: [0, 1]}


def test_call_of_a_label_jumps_and_call_of_a_function_returns():
    assert loops(".L_x_1:", "@P0 CALL.REL.NOINC `(.L_x_2)", "BRA `(.L_x_1)", ".L_x_2:", "EXIT"
                 ) == {0: [0, 1]}
    assert loops(".L_x_1:", "CALL.REL.NOINC `($f)", "@P0 BRA `(.L_x_1)", "EXIT", "$f:",
                 "RET.REL.NODEC R2 `(kernel)") == {0: [0, 1]}


def test_threads_continue_at_the_label_of_a_barrier():
    assert loops(".L_x_1:", "BSSY B0, `(.L_x_2)", "@P0 BRA `(.L_x_3)", "BSYNC B0", "EXIT",
                 ".L_x_3:", "BSYNC B0", "EXIT", ".L_x_2:", "BRA `(.L_x_1)") == {
                     0: [0, 1, 2, 4, 6]}


def test_a_table_of_branches_leads_to_each_of_its_labels():
    assert loops(".L_x_1:", 'BRX R2 -0x20 (*"BRANCH_TARGETS .L_x_2,.L_x_3"*)', ".L_x_2:", "EXIT",
                 ".L_x_3:", "BRA `(.L_x_1)") == {0: [0, 2]}


def test_the_hot_loop_is_the_innermost_one_with_most_products():
    found = figures(
        "HMMA.16816.F32.BF16 R0, R0, R0, R0",
        ".L_x_1:", "HMMA.16816.F32.BF16 R0, R0, R0, R0",
        ".L_x_2:", "HMMA.16816.F32.BF16 R0, R0, R0, R0", "HMMA.16816.F32.BF16 R0, R0, R0, R0",
        ".L_x_3:", "NOP", "@P0 BRA `(.L_x_3)", "@P0 BRA `(.L_x_2)",
        ".L_x_4:", "HMMA.16816.F32.BF16 R0, R0, R0, R0", "@P0 BRA `(.L_x_4)",
        "@P0 BRA `(.L_x_1)", "EXIT")
    assert found == {"hot_hmma": 2, "hot_instructions": 5}


def test_overwritten_registers_of_a_queued_product_are_found():
    product = "HGMMA.64x32x16.F32.BF16 R24, R40, gdesc[UR4].tnspB, R24"
    wait = "WARPGROUP.DEPBAR.LE gsb0, 0x0"
    written = ["IADD3 R43, R1, R2, RZ", "LDSM.16.M88.4 R36, [R3]", "IMAD.WIDE R39, R1, 0x4, R2"]
    assert figures(product, *written, wait, "EXIT")["overwritten"] == 2
    assert figures(product, written[0], "WARPGROUP.DEPBAR.LE gsb0, 0x1", written[2], wait,
                   "EXIT")["overwritten"] == 2
    assert "overwritten" not in figures(product, "IADD3 R44, R40, R41, RZ", "STS [R40], R41",
                                        wait, *written, "EXIT")


def test_uses_of_the_sums_of_a_queued_product_are_found():
    product = "HGMMA.64x32x16.F32.BF16 R24, gdesc[UR4], R24, gsb0"  # its sums are R24 to R39
    wait = "WARPGROUP.DEPBAR.LE gsb0, 0x0"
    uses = ["FADD R2, R39, R3", "MOV R24, R1", "STS.128 [R60], R36"]
    assert figures(product, *uses, wait, "EXIT")["touched"] == 3
    assert "touched" not in figures(product, "FADD R40, R23, R3", wait, *uses, "EXIT")
    assert "touched" not in figures(product, product, wait, "EXIT")


def test_a_wait_for_some_groups_leaves_the_last_ones_queued():
    first = "HGMMA.64x32x16.F32.BF16 R24, R80, gdesc[UR4], R24, gsb0"
    second = "HGMMA.64x32x16.F32.BF16 R40, R84, gdesc[UR8], R40, gsb0"
    one_left, none_left = ("WARPGROUP.DEPBAR.LE gsb0, 0x1", "WARPGROUP.DEPBAR.LE gsb0, 0x0")
    code = [first, second, one_left, "FADD R2, R24, R3", "MOV R80, R1"]
    assert {"touched", "overwritten"}.isdisjoint(figures(*code, none_left, "EXIT"))
    code = [first, second, one_left, "FADD R2, R40, R3", "MOV R84, R1", "MOV R85, R1"]
    found = figures(*code, none_left, "EXIT")
    assert (found["touched"], found["overwritten"]) == (1, 2)
    # Products without gsb0 belong to the group that ends next.
    found = figures(first.replace(", gsb0", ""), second, one_left, "FADD R2, R24, R3", none_left,
                    "EXIT")
    assert found["touched"] == 1


def test_integer_arithmetic_descriptors_and_copies_of_the_hot_loop_are_counted():
    found = figures("IADD3 R0, R1, R2, RZ", "LDGSTS.E.128 [R1], [R2.64]", ".L_x_1:",
                    "HMMA.16816.F32.BF16 R0, R4, R6, R0", "IMAD.WIDE R2, R4, R5, R6",
                    "IMAD.MOV.U32 R1, RZ, RZ, R2", "LOP3.LUT R1, R2, R3, RZ, 0x3c, !PT",
                    "R2UR UR4, R2", "LDGSTS.E.128 [R1], [R2.64]", "UBLKCP [UR4], [UR6], UR8",
                    "@P0 BRA `(.L_x_1)", "EXIT")
    assert {name: count for name, count in found.items() if name.startswith("hot_")} == {
        "hot_hmma": 1, "hot_instructions": 8, "hot_integer": 2, "hot_descriptors": 1,
        "hot_copies": 1, "hot_bulk": 1}


def test_messages_about_serialised_products_and_ignored_registers_are_found():
    text = ("ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are "
            "serialized due to insufficient register resources\n"
            "ptxas info    : Used 168 registers\n"
            "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored\n")
    assert [line.split("(")[1][:5] for line in sass.bad_messages(text)] == ["C7510", "C7508"]
    assert not sass.bad_messages("ptxas info    : Used 75 registers, C7 is a constant")


def test_half_precision_addition_is_not_a_matrix_product():
    assert not figures(".L_x_1:", "HFMA2.MMA R0, -RZ, RZ, 0, 0", "@P0 BRA `(.L_x_1)", "EXIT")


@pytest.mark.parametrize("instruction", [
    "ATOMS.CAST.SPIN.64 R4, [R8], R2, R4",
    "ATOMS.CAS R4, [R8], R2, R4",
    "ATOMG.E.CAS.STRONG.GPU PT, R4, [R2], R4, R5",
    "ATOM.E.CAS.64.STRONG.GPU PT, R4, [R2], R4, R6",
])
def test_compare_and_swap_has_many_names(instruction):
    assert figures(instruction, "EXIT") == {"cas": 1}


def test_other_atomics_are_allowed():
    assert not figures("ATOMS.ADD RZ, [R8], R2", "ATOMS.POPC.INC.32 RZ, [R8]",
                       "REDG.E.ADD.STRONG.GPU [R2.64], R4", "EXIT")


def test_only_divisions_in_loops_count():
    outside = ["I2F.RP R9, R14", "CALL.REL.NOINC `($__internal_0_$__cuda_sm20_div_s64)"]
    assert not figures(*outside, "EXIT")
    assert figures(".L_x_1:", *outside, "I2F.U32.RP R1, R2",
                   "CALL.REL.NOINC `($__internal_1_$__cuda_sm20_rem_u64)",
                   "@P0 BRA `(.L_x_1)", "EXIT") == {"divisions": 4}


def test_a_division_of_floats_does_not_count():
    assert not figures(
        ".L_x_1:", "I2F.U32 R1, R2", "MUFU.RCP R1, R1",
        "CALL.REL.NOINC `($__internal_0_$__cuda_sm3x_div_rn_noftz_f32_slowpath)",
        "@P0 BRA `(.L_x_1)", "EXIT")


def test_accesses_count_by_their_bits():
    assert figures(
        "LDG.E R0, desc[UR4][R2.64]", "LDG.E.U8.CONSTANT R0, [R2.64]", "LDG.E.U16 R0, [R2.64]",
        "LDG.E.LTC128B.64 R0, [R2.64]", "STG.E.128 [R2.64], R4", "LD.E.128 R4, [R2]",
        "LDGSTS.E.BYPASS.128.ZFILL [R8], [R4.64], P0", "LDSM.16.MT88.4 R0, [R4]",
        "@!PT LDG.E.128 R0, [R2.64]", "EXIT") == {
            "LDG.32": 1, "LDG.8": 1, "LDG.16": 1, "LDG.64": 1, "STG.128": 1, "LD.128": 1,
            "LDGSTS.128": 1, "LDSM": 1}


def test_accesses_to_the_stack_count_in_loops():
    assert figures("STL.64 [R1], R2", ".L_x_1:", "LDL R2, [R1]", "@P0 BRA `(.L_x_1)", "EXIT") == {
        "local": 1}


SOURCE = """
enum class Staging : int { kTwo, kHalves };
template <typename T, int32_t kDims, Staging kStaging, bool kAsync>
__global__ void __launch_bounds__(kThreads) AttentionKernel(Args<T> args) {}
template <bool kCentred>
__global__ void Norm(Args args) {}
"""


@pytest.mark.parametrize("demangled, name", [
    ("sluice::(anonymous namespace)::SampleKernel(sluice::SampleArgs)", "Sample"),
    ("void sluice::(anonymous namespace)::AttentionKernel<sluice::BFloat16, 128, "
     "(sluice::Staging)1, true>(sluice::Args<sluice::BFloat16>)",
     "Attention<BFloat16, 128, Halves, async>"),
    ("void a::AttentionKernel<float, 64, (a::Staging)7, false>(a::Args<float>)",
     "Attention<float, 64, Staging 7, no async>"),
    ("void a::Norm<false>(a::Args)", "Norm<no centred>"),
    ("void a::OtherKernel<a::Pair<int, float>, true>(int)", "Other<Pair<int, float>, true>"),
])
def test_names_are_short(demangled, name):
    assert sass.short_name(demangled, SOURCE) == name
