"""Tests `sluice quantize`, and how `sluice verify` measures the error of quantised models."""

import re
import subprocess

from conftest import ROOT, SLUICE
from waiting import PATIENCE_S

GPT2 = ROOT / "tests" / "goldens" / "verify"


def quantize(*options):
    return subprocess.run([SLUICE, "quantize", *options], capture_output=True, text=True,
                          timeout=PATIENCE_S)


def test_the_demo_model_is_closer_to_f32_with_scales_moved_and_layers_kept(tmp_path):
    demo = ROOT / "models" / "demo"
    layers, differences = {}, {}
    for name, options in {"plain": ["--plain"], "smooth": [],
                          "kept": ["--keep-above", "0.01"]}.items():
        # The text for quantisation differs from the text for the comparison.
        result = quantize(demo, "--text", demo / "README.md", "--out", tmp_path / name, *options)
        assert result.returncode == 0, result.stdout + result.stderr
        layers[name] = float(re.search(r"root mean square of the layers .* ([\d.]+)$",
                                       result.stdout, re.M)[1])
        result = subprocess.run(
            [SLUICE, "verify", tmp_path / name, "--against", "f32", "--reference", demo, "--text",
             demo / "heldout.txt"], capture_output=True, text=True, timeout=PATIENCE_S)
        assert result.returncode == 0, result.stdout + result.stderr
        differences[name] = float(re.search(r"next tokens: .*mean ([\d.e-]+)", result.stdout)[1])
    assert layers["smooth"] < layers["plain"], layers
    assert 0 < differences["kept"] < 0.75 * differences["plain"], differences


def test_pages_of_keys_and_values_are_compared_with_f32():
    demo = ROOT / "models" / "demo"
    errors = []
    for dtype in ("bf16", "int8"):
        result = subprocess.run(
            [SLUICE, "verify", demo, "--against", "f32", "--profile", "f32", "--text",
             demo / "heldout.txt", "--kv-dtype", dtype], capture_output=True, text=True,
            timeout=PATIENCE_S)
        assert result.returncode == 0, result.stdout + result.stderr
        errors.append(float(re.search(r"next tokens: .*mean ([\d.e-]+)", result.stdout)[1]))
    assert all(0 < error < 0.02 for error in errors), errors


def test_quantize_refuses_missing_files_and_invalid_options(tmp_path):
    result = quantize(GPT2, "--text", tmp_path / "none", "--out", tmp_path / "out")
    assert result.returncode == 2 and "cannot read" in result.stderr
    result = quantize(GPT2, "--text", tmp_path, "--out", tmp_path / "out", "--keep-above", "-1")
    assert result.returncode == 2 and "--keep-above" in result.stderr
    result = quantize(GPT2, "--text", tmp_path, "--out", tmp_path / "out", "--keep-channels", "-1")
    assert result.returncode == 2 and "--keep-channels" in result.stderr
