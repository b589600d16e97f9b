"""Tests the served RankMixer model that models/ranker/train.py trained."""

import json

import numpy as np
import pytest
from conftest import ROOT, Daemon
from infer import ids_inputs, infer
from tritonclient.utils import InferenceServerException

RANKER = ROOT / "models" / "ranker"
HISTORY, ITEMS = 7, 200  # item 0 is padding


@pytest.fixture(scope="module")
def daemon():
    with Daemon(models=[("ranker", RANKER)]) as served:
        yield served


def scores_of(client, history):
    """Returns the score of every item as the next item of a history."""
    tail = ([0] * HISTORY + history)[-HISTORY:]
    rows = [[*tail, item] for item in range(1, ITEMS + 1)]
    parts = [rows[first:first + 100] for first in range(0, ITEMS, 100)]
    return np.concatenate(
        [infer(client, ids_inputs(part), ["scores"], "ranker")["scores"][:, 0] for part in parts])


def test_ranking_equals_pytorch(daemon):
    held_out = json.loads((RANKER / "heldout.json").read_text())
    hits = 0
    with daemon.client() as client:
        for history, item in zip(held_out["histories"], held_out["followed"]):
            hits += item in np.argsort(-scores_of(client, history), kind="stable")[:10] + 1
    hit_rate = hits / len(held_out["followed"])
    assert held_out["hit_rate"] - held_out["popularity_hit_rate"] > 0.3, "the model is trained"
    # Two items whose scores differ only in their last bits may be swapped.
    assert abs(hit_rate - held_out["hit_rate"]) <= 1 / len(held_out["followed"])


def test_rows_of_another_length_are_refused(daemon):
    with daemon.client() as client:
        with pytest.raises(InferenceServerException, match="has 7 tokens; expected exactly 8"):
            infer(client, ids_inputs([[1, 2, 3, 4, 5, 6, 7]]), ["scores"], "ranker")
