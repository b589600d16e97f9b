"""The instruction sets that a comparison may use: all of the processor's, or AVX2 alone."""

import pathlib
import subprocess

import servers

BEST = "best"
IN_WORDS = {BEST: "", "avx2": ", with AVX2 alone"}
PROFILE = "cpu-avx2-f32"
# What holds arms of libraries to AVX2. llama.cpp is held by its build. Nothing holds MLAS, by which
# onnxruntime computes, and OpenVINO the products in f32.
CTRANSLATE2 = {"CT2_FORCE_CPU_ISA": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
PYTORCH = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2",
           "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
SWITCHES = {"openvino int8": {"ONEDNN_MAX_CPU_ISA": "AVX2"}, "ctranslate2 f32": CTRANSLATE2,
            "ctranslate2 int8": CTRANSLATE2, "pytorch f32": PYTORCH, "pytorch bf16": PYTORCH}
FEATURES = "import llama_cpp; print(llama_cpp.llama_print_system_info().decode())"


def sluice(isa: str, arms: dict[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Returns Sluice's profile and quantisation by precision. With AVX2 all profiles are f32."""
    if isa == BEST:
        return arms
    return {"f32" if precision == "bf16" else precision: (PROFILE, quantization)
            for precision, (_, quantization) in arms.items()}


def environment(isa: str, engine: str, precision: str,
                python: pathlib.Path | None) -> dict[str, str]:
    """Returns what holds an arm to the instructions; raises NotStarted if nothing does."""
    if isa == BEST:
        return {}
    if engine == "llama_cpp":
        if python is not None and "AVX512 = 1" in features(python):
            raise servers.NotStarted("it is built with AVX-512")
        return {}
    if f"{engine} {precision}" not in SWITCHES:
        raise servers.NotStarted("nothing holds its kernels to AVX2")
    return SWITCHES[f"{engine} {precision}"]


def features(python: pathlib.Path) -> str:
    """Returns what llama.cpp says that it is built with."""
    return subprocess.run([python, "-c", FEATURES], capture_output=True, text=True,
                          check=True).stdout
