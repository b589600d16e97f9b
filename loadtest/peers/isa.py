"""The instruction sets that a comparison may use: all that the processor has, or only AVX2."""

import pathlib
import re
import subprocess

import servers

BEST = "best"
IN_WORDS = {BEST: "", "avx2": ", with AVX2 only"}
PROFILE = "cpu-avx2-f32"
# Variables that restrict arms of libraries to AVX2. llama.cpp is restricted by its build. No
# setting restricts MLAS, which onnxruntime uses, or the f32 products of OpenVINO.
CTRANSLATE2 = {"CT2_FORCE_CPU_ISA": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
PYTORCH = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2",
           "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
SWITCHES = {"openvino int8": {"ONEDNN_MAX_CPU_ISA": "AVX2"}, "ctranslate2 f32": CTRANSLATE2,
            "ctranslate2 int8": CTRANSLATE2, "pytorch f32": PYTORCH, "pytorch bf16": PYTORCH}
# llama.cpp's names for the processor's instructions that its products use.
LLAMA_CPP = {"avx2": "AVX2", "fma": "FMA", "avx512f": "AVX512", "avx512_vnni": "AVX512_VNNI",
             "avx512_bf16": "AVX512_BF16", "amx_int8": "AMX_INT8"}
FEATURES = "import llama_cpp; print(llama_cpp.llama_print_system_info().decode())"


def sluice(isa: str, arms: dict[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Returns Sluice's profile and quantisation by precision. With AVX2 all profiles are f32."""
    if isa == BEST:
        return arms
    return {"f32" if precision == "bf16" else precision: (PROFILE, quantization)
            for precision, (_, quantization) in arms.items()}


def environment(isa: str, engine: str, precision: str,
                python: pathlib.Path | None) -> dict[str, str]:
    """Returns the variables that restrict an arm to the instructions. Raises NotStarted if there
    are none, or if llama.cpp is built for other instructions.
    """
    if engine == "llama_cpp":
        if python is not None:
            check_build(isa, features(python), processor_flags())
        return {}
    if isa == BEST:
        return {}
    if f"{engine} {precision}" not in SWITCHES:
        raise servers.NotStarted("no setting restricts its kernels to AVX2")
    return SWITCHES[f"{engine} {precision}"]


def check_build(isa: str, features_of_build: str, flags: set[str]) -> None:
    """Raises NotStarted if llama.cpp's build does not match. `features_of_build` are the
    instructions that it uses, and `flags` are the processor's. With BEST it must use all of them;
    otherwise it must not use AVX-512 or AMX.
    """
    built = set(re.findall(r"(\w+) = 1\b", features_of_build))
    if isa != BEST:
        if any(each.startswith(("AVX512", "AMX")) for each in built):
            raise servers.NotStarted("it is built with AVX-512")
        return
    lacking = [word for flag, word in LLAMA_CPP.items() if flag in flags and word not in built]
    if lacking:
        raise servers.NotStarted(f"it is built without {', '.join(lacking)}, which the processor "
                                 "has; see requirements-llama_native.txt")


def processor_flags() -> set[str]:
    """Returns the processor's features in the kernel's terms."""
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return set(line.partition(":")[2].split())
    return set()


def features(python: pathlib.Path) -> str:
    """Returns the features that llama.cpp reports for its build."""
    return subprocess.run([python, "-c", FEATURES], capture_output=True, text=True,
                          check=True).stdout
