"""Tests the served recommender that models/recommender/train.py trained."""

import json

import numpy as np
import pytest

from conftest import ROOT, Daemon
from infer import ids_inputs, infer

RECOMMENDER = ROOT / "models" / "recommender"


@pytest.fixture(scope="module")
def daemon():
    served = Daemon(models=[("recommender", RECOMMENDER)])
    yield served
    served.stop()


def test_the_served_model_beats_popularity_by_as_much_as_in_pytorch(daemon):
    held_out = json.loads((RECOMMENDER / "heldout.json").read_text())
    client = daemon.client()
    hits = 0
    histories, followed = held_out["histories"], held_out["followed"]
    for first in range(0, len(histories), 50):
        rows = histories[first:first + 50]
        answer = infer(client, ids_inputs(rows), ["top_ids"], "recommender", num_top_logprobs=11)
        for items, item in zip(answer["top_ids"][:, 0], followed[first:first + 50]):
            hits += item in [top for top in items.tolist() if top != 0][:10]
    hit_rate = hits / len(histories)
    margin = held_out["hit_rate"] - held_out["popularity_hit_rate"]
    assert margin > 0.3, "the committed model knows the rule"
    # Two items whose scores differ only in their last bits may change places.
    assert abs(hit_rate - held_out["hit_rate"]) <= 1 / len(histories)
    assert hit_rate - held_out["popularity_hit_rate"] >= margin - 1 / len(histories)


def test_a_long_history_is_truncated_to_its_end(daemon):
    """A long history loses its first items (truncate: left), as in training."""
    history = json.loads((RECOMMENDER / "heldout.json").read_text())["histories"][0] * 3
    client = daemon.client()
    whole, end = (infer(client, ids_inputs([items]), ["logits"], "recommender")["logits"]
                  for items in (history, history[-16:]))
    np.testing.assert_array_equal(whole, end)
