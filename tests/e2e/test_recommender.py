"""Tests the served recommender that models/recommender/train.py trained."""

import json
import random
import sys

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from conftest import ROOT, Daemon
from infer import ids_inputs, infer, tensor
from sluice_client import Client

RECOMMENDER = ROOT / "models" / "recommender"


@pytest.fixture(scope="module")
def daemon():
    with Daemon(models=[("recommender", RECOMMENDER)]) as served:
        yield served


def test_hit_rate_over_popularity_equals_pytorch(daemon):
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
    assert margin > 0.3, "the committed model has learnt the rule"
    # Two items whose scores differ only in their last bits may be swapped.
    assert abs(hit_rate - held_out["hit_rate"]) <= 1 / len(histories)
    assert hit_rate - held_out["popularity_hit_rate"] >= margin - 1 / len(histories)


def test_a_long_history_is_truncated_to_its_end(daemon):
    """A long history loses its first items (truncate: left), as in training."""
    history = json.loads((RECOMMENDER / "heldout.json").read_text())["histories"][0] * 3
    client = daemon.client()
    whole, end = (infer(client, ids_inputs([items]), ["logits"], "recommender")["logits"]
                  for items in (history, history[-16:]))
    np.testing.assert_array_equal(whole, end)


def test_diverse_lists_equal_numpy_and_are_less_similar(daemon):
    held_out = json.loads((RECOMMENDER / "heldout.json").read_text())
    sys.path.append(str(RECOMMENDER))
    import diversity

    with Client(daemon.grpc) as client:
        plain, half, whole = diversity.compare(client, [0, 0.5, 1], held_out["histories"][:60],
                                               held_out["followed"][:60])
    assert [differ for *_, differ in (plain, half, whole)] == [0, 0, 0]
    assert plain[1] > half[1] > whole[1], "mean cosines"
    assert plain[2] >= half[2] >= whole[2], "hit rates"


def test_order_of_candidates_equals_numpy(daemon):
    seed = random.randrange(2**32)
    print("seed", seed)
    draw = np.random.default_rng(seed)
    sys.path.append(str(RECOMMENDER))
    import diversity

    client = daemon.client()
    vectors = diversity.item_vectors()
    for amount in (0.0, 0.3, 1.0):
        ids = draw.permutation(np.arange(1, 201))[:24].astype(np.int64)
        ids[[3, 17]] = -1
        answer = infer(client, [*ids_inputs([[5, 80, 8, 83, 11]]),
                                tensor("candidate_ids", ids[None], "INT64")],
                       ["candidate_scores", "candidate_order"], "recommender", diversity=amount)
        scores, order = answer["candidate_scores"][0], answer["candidate_order"][0]
        places = [place for place in np.argsort(-scores, kind="stable") if ids[place] >= 0]
        chosen = diversity.choose(scores[places].astype(float), vectors[ids[places]], amount,
                                  len(places))
        assert order.tolist() == [*(places[each] for each in chosen), -1, -1]


@pytest.mark.parametrize(
    "parameters, candidates, error",
    [
        ({"diversity": 1.5, "num_top_logprobs": 3}, 0, "diversity is 1.5"),
        ({"diversity": 0.5}, 0, "requires one of the outputs top_ids"),
        ({"diversity": 0.5, "num_top_logprobs": 129}, 0, "with diversity the maximum is 128"),
        ({"diversity": 0.5}, 513,
         "candidate_ids has 513 columns; with diversity the maximum is 512"),
    ],
)
def test_unsupported_uses_of_diversity_are_refused(daemon, parameters, candidates, error):
    inputs = ids_inputs([[5, 80]])
    if candidates:
        inputs.append(tensor("candidate_ids", np.ones((1, candidates), np.int32), "INT32"))
    with pytest.raises(InferenceServerException, match=error):
        infer(daemon.client(), inputs, None, "recommender", **parameters)
