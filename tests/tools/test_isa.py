"""Tests which instructions the contenders in loadtest/peers may use."""

import contextlib
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "loadtest" / "peers"))
import isa  # noqa: E402
import servers  # noqa: E402


def test_contenders_that_cannot_be_limited_to_avx2_are_left_out(tmp_path, monkeypatch):
    arms = {"bf16": ("bf16", "none"), "int8": ("auto", "int8")}
    assert isa.sluice("best", arms) == arms
    assert isa.sluice("avx2", arms) == {"f32": (isa.PROFILE, "none"), "int8": (isa.PROFILE, "int8")}
    for arm in (("onnxruntime", "int8"), ("tei", "f32"), ("triton", "f32"), ("openvino", "f32")):
        assert isa.environment("best", *arm, None) == {}
        with pytest.raises(servers.NotStarted, match="AVX2"):
            isa.environment("avx2", *arm, None)
    assert isa.environment("avx2", "openvino", "int8", None) == {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    for features, fits in (("AVX2 = 1 | AVX512 = 1 | ", False), ("AVX2 = 1 | AVX512 = 0", True),
                           ("AVX2 = 1 | FMA = 1 | LLAMAFILE = 1 | ", True)):
        (tmp_path / "llama_cpp.py").write_text(
            f"def llama_print_system_info():\n    return {features.encode()!r}\n")
        with contextlib.nullcontext() if fits else pytest.raises(servers.NotStarted):
            assert isa.environment("avx2", "llama_cpp", "f32", sys.executable) == {}


@pytest.mark.parametrize("features, flags, lacking", [
    ("CPU : SSE3 = 1 | AVX2 = 1 | FMA = 1 | AVX512 = 1 | AVX512_VBMI = 1 | AVX512_VNNI = 1 | "
     "AVX512_BF16 = 1 | LLAMAFILE = 1 | ", "fma avx2 avx512f avx512_vnni avx512_bf16", ""),
    ("CPU : SSE3 = 1 | AVX2 = 1 | FMA = 1 | LLAMAFILE = 1 | ",
     "fma avx2 avx512f avx512_vnni avx512_bf16", "AVX512, AVX512_VNNI, AVX512_BF16"),
    ("CPU : SSE3 = 1 | AVX2 = 1 | FMA = 1 | LLAMAFILE = 1 | ", "fma avx2 sse4_1", ""),
    ("AVX2 = 1 | FMA = 1 | AVX512 = 1 | AVX512_VNNI = 0 | AVX512_BF16 = 10 | ",
     "fma avx2 avx512f avx512_vnni avx512_bf16", "AVX512_VNNI, AVX512_BF16"),
    ("AVX2 = 1 | FMA = 1 | AVX512 = 1 | AVX512_VNNI = 1 | AVX512_BF16 = 1 | ",
     "fma avx2 avx512f avx512_vnni avx512_bf16 amx_int8", "AMX_INT8"),
    ("", "avx2", "AVX2"),
])
def test_llama_cpp_not_built_for_the_processor_is_left_out(features, flags, lacking):
    if not lacking:
        isa.check_build(isa.BEST, features, set(flags.split()))
        return
    with pytest.raises(servers.NotStarted, match=f"without {lacking}, which"):
        isa.check_build(isa.BEST, features, set(flags.split()))


def test_suboptimal_build_is_not_started(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    (tmp_path / "llama_cpp.py").write_text("def llama_print_system_info():\n    return b''\n")
    if isa.processor_flags() & isa.LLAMA_CPP.keys():
        with pytest.raises(servers.NotStarted, match="built without"):
            isa.environment(isa.BEST, "llama_cpp", "f32", sys.executable)
