"""`sluice verify` on a checkpoint that transformers saved, and outputs that PyTorch computed."""

import shutil
import subprocess

import numpy as np
import pytest
import safetensors.numpy

from conftest import ROOT, SLUICE

GPT2 = ROOT / "tests" / "goldens" / "verify"


def verify(model, golden, *options):
    return subprocess.run([SLUICE, "verify", model, "--golden", golden, *options], capture_output=True, text=True,
                          timeout=60)


@pytest.fixture
def model(tmp_path):
    """A copy to be altered."""
    shutil.copytree(GPT2, tmp_path / "model")
    return tmp_path / "model"


def change(model, name, alter):
    path = model / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    alter(tensors[name])
    safetensors.numpy.save_file(tensors, path, metadata={"format": "pt"})


def test_what_pytorch_computed_is_the_same():
    result = verify(GPT2, GPT2 / "golden.npz")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "The same within 1e-05" in result.stdout
    for name in ("state_0", "module:transformer.h.2.attn.c_attn", "state_3", "final", "logits"):
        assert f" {name} " in result.stdout
    assert verify(GPT2, GPT2 / "golden.npz", "--tolerance", "0").returncode == 1, "nobody adds in the same order"


@pytest.mark.parametrize("tensor, place, first", [
    ("transformer.wpe.weight", (2, 5), "embedding, state_0: sequence 0, position 2, feature 5"),
    ("transformer.h.1.attn.c_attn.bias", (40,), "layer 1, module:transformer.h.1.attn.c_attn:"),
    ("transformer.h.1.attn.c_proj.weight", (3, 3), "layer 1, module:transformer.h.1.ln_2:"),
    ("transformer.h.2.mlp.c_fc.bias", (7,), "layer 2, module:transformer.h.2.mlp.c_fc:"),
    ("transformer.h.2.mlp.c_proj.bias", (7,), "layer 2, state_3:"),
    ("transformer.ln_f.bias", (1,), "head, module:transformer.ln_f:"),
])
def test_one_changed_weight_is_found_at_its_place(model, tensor, place, first):
    def alter(values):
        values[place] += 0.5
    change(model, tensor, alter)
    result = verify(model, model / "golden.npz", "--tolerance", "1e-4")
    assert result.returncode == 1, result.stdout + result.stderr
    assert f"Differs first at {first}" in result.stdout, result.stdout


def test_compressed_archives_and_some_outputs_only(model):
    with np.load(GPT2 / "golden.npz") as golden:
        some = {name: golden[name] for name in ("input_ids", "input_lengths", "logits")}
    np.savez_compressed(model / "some.npz", **some, **{"module:nothing": some["logits"]})
    result = verify(model, model / "some.npz")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "1 outputs." in result.stdout and "module:nothing for one" in result.stdout


def test_what_cannot_be_compared_is_said(model):
    def refused(text, **arrays):
        np.savez(model / "bad.npz", **arrays)
        result = verify(model, model / "bad.npz")
        assert result.returncode == 2 and text in result.stderr, result.stdout + result.stderr
    ids = np.zeros((1, 3), np.int64)
    refused("input_ids [n, length] is missing", logits=np.zeros((1, 3, 97)))
    refused("there is nothing to compare with", input_ids=ids)
    refused("input_ids[0, 1] is not in [0, 96]", input_ids=np.array([[0, 97, 0]]), logits=np.zeros((1, 3, 97)))
    refused("logits has width 96; the model's is 97", input_ids=ids, logits=np.zeros((1, 3, 96)))
    refused("final is not of shape [1, 3, width]", input_ids=ids, final=np.zeros((1, 4, 16)))
    refused("has no output that the model computes", input_ids=ids, other=np.zeros((1, 3, 16)))
    refused("logits.npy is not of float32", input_ids=ids, logits=np.zeros((1, 3, 97), np.complex64))
    refused("positions; the model has 24", input_ids=np.zeros((1, 25), np.int64), logits=np.zeros((1, 25, 97)))
    (model / "cut.npz").write_bytes((GPT2 / "golden.npz").read_bytes()[:5000])
    assert "cut.npz: is not a .npz file" in verify(model, model / "cut.npz").stderr
    assert verify(model, model / "none.npz").returncode == 2
    assert "--tolerance: expected a number" in verify(model, GPT2 / "golden.npz", "--tolerance", "x").stderr
