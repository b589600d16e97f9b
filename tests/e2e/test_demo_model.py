"""Tests that the served demo model has the same held-out loss as in PyTorch."""

import json
import pathlib
import shutil

import numpy as np
import pytest
from conftest import DEMO
from infer import ids_inputs, infer


def windows():
    text = (DEMO / "heldout.txt").read_bytes()
    return [[256, *text[at: at + 255]] for at in range(0, len(text), 255)]


def bits_per_byte(client):
    """Returns the mean bits per byte, after BOS, for each window of the held-out text."""
    answers = (infer(client, ids_inputs([ids]), ["prompt_logprobs"], max_tokens=0)
               for ids in windows())
    return [-a["prompt_logprobs"][0, 1:].astype(np.float64).mean() / np.log(2) for a in answers]


@pytest.fixture(scope="module")
def served(demo):
    with demo.client() as client:
        return bits_per_byte(client)


def test_heldout_loss_equals_pytorch(served):
    expected = json.loads((DEMO / "heldout.json").read_text())["per_window"]
    np.testing.assert_allclose(served, [window["bits_per_byte"] for window in expected], rtol=1e-4)


def test_loss_increases_without_position_wise_weights(served, daemon, tmp_path):
    maimed = tmp_path / "maimed"
    shutil.copytree(DEMO, maimed)
    zero_position_wise(maimed / "model.safetensors")
    with daemon(models=[("demo", maimed)]).client() as client:
        assert np.mean(bits_per_byte(client)) > np.mean(served) + 0.05


def zero_position_wise(path: pathlib.Path):
    """Zeroes the weights directly in the file.

    numpy has no bf16, but zero is all zero bytes in every dtype."""
    raw = bytearray(path.read_bytes())
    header_bytes = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8: 8 + header_bytes])
    found = False
    for name, tensor in header.items():
        if name.endswith("position_weight"):
            begin, end = (8 + header_bytes + offset for offset in tensor["data_offsets"])
            raw[begin:end] = bytes(end - begin)
            found = True
    assert found
    path.write_bytes(raw)
