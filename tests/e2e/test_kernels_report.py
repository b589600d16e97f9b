"""Tests the report of loadtest/bench/kernels/run.py, which the README quotes."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "loadtest" / "bench" / "kernels"))

import random_llama  # noqa: E402
import report  # noqa: E402


def test_ratios_are_computed_for_each_round():
    seconds = {"ours": [1.0, 2.0, 4.0], "peer": [3.0, 4.0, 16.0]}
    assert report.ratios(seconds) == {"peer": (3.0, 2.0, 4.0)}


def test_a_kernel_has_a_row_for_each_timing():
    counters = {
        "label": "cpu-avx2-f32",
        "MFLOP": 10.0,
        "MB_bf16": 2.0,
        "MB_f32": 4.0,
        "bf16_us": 100.0,
        "bf16_of_flops": 0.9,
        "bf16_of_read": 0.25,
        "f32_us": 120.0,
        "f32_of_flops": 0.75,
        "f32_of_read": 0.5,
    }
    rows = list(report.kernel_rows("gemm", counters))
    assert rows == [
        "| gemm | bf16 | 100 | 10 | 2 | 90% | 25% |",
        "| gemm | f32 | 120 | 10 | 4 | 75% | 50% |",
    ]


def test_the_page_states_the_claims_and_the_compared_peers():
    made = {
        "date": "2026-01-02",
        "processor": "A processor",
        "note": "",
        "rounds": 1,
        "kernels": {
            "Prefill": {"xsa_over_plain": 1.04},
            "TopK": {"top_k_us": 9.5, "values_over_top_k": 3.0, "indices_over_top_k": 6.0},
        },
        "contests": [
            {
                "name": "Next",
                "seconds": {"ours": [0.1], "torch": [0.25]},
                "ours": {},
                "fractions": {"forward_of_flops": 0.7},
            }
        ],
    }
    page = report.markdown(made)
    for text in (
        "XSA adds +4.0%",
        "6.0 times on indices",
        "| Next | Sluice | 100 | | 70% of peak FLOP/s |",
    ):
        assert text in page
    assert "| | torch | 250 | 2.50 (2.50 to 2.50) | |" in page


def test_the_weights_of_the_benchmark_model_are_exact_in_bf16(tmp_path):
    config = random_llama.CONFIG | {
        "hidden_size": 8,
        "intermediate_size": 4,
        "num_hidden_layers": 1,
        "head_dim": 1,
        "vocab_size": 10,
    }
    random_llama.write(tmp_path, config)
    elements = 0
    for _, values in random_llama.weights(config):
        assert not (values.view("uint32") & 0xFFFF).any()
        elements += values.size
    written = (tmp_path / "model.safetensors").read_bytes()
    header = int.from_bytes(written[:8], "little")
    assert len(written) == 8 + header + 2 * elements
