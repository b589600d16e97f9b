"""Compares the answers of DeBERTa in f32, int8 and bf16 with transformers' in float64."""

import json

import numpy as np
import pytest
import safetensors.numpy
import tritonclient.grpc as grpcclient
from conftest import ROOT, Daemon
from infer import ids_inputs, infer
from instruction_sets import needs
from test_extraction import rounded_to_bf16

GOLDENS = ROOT / "tests" / "goldens"
# Each with the output, and its name in the golden. deberta_long has heads of 64 features, the
# buckets of DeBERTa-v3, and sequences of up to 512 tokens.
MODELS = {"deberta_long": ("deberta_long", "token_embeddings", "states"),
          "base": ("families/deberta_v2_3", "token_embeddings", "states"),
          "classifier": ("families/deberta_v2_2", "scores", "scores"),
          "tagger": ("families/deberta_v2_4", "token_scores", "token_scores")}
# The largest root mean square of the errors, relative to the values'. The models are small and
# random, so an error is a larger part of a state than in a trained model.
PRECISIONS = {"f32": 1e-5, "int8": 4e-2, "bf16": 1.5e-2}


def errors_of(precision, folder):
    models = []
    for name, (golden, _, _) in MODELS.items():
        source = GOLDENS / golden
        if precision == "bf16":
            source = folder / name
            rounded_to_bf16(GOLDENS / golden, source)
        models.append({"name": name, "path": str(source)})
        if precision == "int8":
            models[-1]["quantization"] = "int8"
    path = folder / "sluice.yaml"
    path.write_text(json.dumps({"models": models}))
    profile = "cpu-avx512-bf16" if precision == "bf16" else "f32"
    daemon = Daemon("--config", path, "--cpu.profile", profile, models=())
    errors = {}
    try:
        with grpcclient.InferenceServerClient(daemon.grpc) as client:
            for name, (golden, output, stored) in MODELS.items():
                expected = safetensors.numpy.load_file(GOLDENS / golden / "expected.safetensors")
                lengths = expected["lengths"].tolist()
                ids = np.split(expected["input_ids"], np.cumsum(lengths)[:-1])
                rows = infer(client, ids_inputs(ids), [output], name)[output]
                if output != "scores":
                    rows = np.concatenate([row[:length] for row, length in zip(rows, lengths)])
                difference = np.asarray(rows, np.float64) - expected[stored]
                errors[name] = float(np.sqrt(np.square(difference).mean() /
                                             np.square(expected[stored]).mean()))
    finally:
        daemon.stop()
    return errors


@pytest.mark.parametrize("precision", [
    "f32", "int8", pytest.param("bf16", marks=needs("AVX-512 BF16"))])
def test_errors_are_within_the_table(tmp_path, precision):
    errors = errors_of(precision, tmp_path)
    print(precision, errors)
    assert all(error <= PRECISIONS[precision] for error in errors.values()), errors
    if precision != "f32":
        assert all(error > 1e-5 for error in errors.values()), "nothing was rounded"
