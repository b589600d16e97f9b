#!/usr/bin/env python3
"""Compares lists of ten items at several diversities: the similarity of their items, and hit rates.

  sluiced --model recommender=models/recommender
  python models/recommender/diversity.py localhost:8001

`choose` computes the lists with determinants in NumPy; the served lists must equal its lists.
"""

import argparse
import json
import pathlib

import numpy as np
from safetensors.numpy import load_file

from sluice_client import Client

HERE = pathlib.Path(__file__).resolve().parent
COUNT, POOL, LEAST_REST = 10, 40, 1e-10


def similarity(vectors):
    """Returns (1 + cosine) / 2 of each pair, and 1 of a vector with itself."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    similar = (1 + unit @ unit.T) / 2
    np.fill_diagonal(similar, 1)
    return similar


def choose(scores, vectors, diversity, count):
    """Returns the indexes of `count` candidates. The candidates are given by descending score.

    Each choice in turn maximises (1 - d) * sum of scores + d * log det S, where S is the
    similarity of the chosen candidates.
    """
    diversity = float(np.float32(diversity))  # as it is served
    similar, chosen = similarity(vectors), []
    while len(chosen) < count:
        before = np.linalg.slogdet(similar[np.ix_(chosen, chosen)])[1] if chosen else 0.0

        def gain(i):
            rows = [*chosen, i]
            rest = np.exp(np.linalg.slogdet(similar[np.ix_(rows, rows)])[1] - before)
            logarithm = np.log(max(rest, LEAST_REST))
            return np.float32((1 - diversity) * scores[i] + diversity * logarithm)

        left = [i for i in range(len(scores)) if i not in chosen]
        chosen.append(max(left, key=lambda i: (gain(i), -i)))
    return chosen


def item_vectors():
    return load_file(HERE / "model.safetensors")["model.embed_tokens.weight"].astype(np.float64)


def pairwise(vectors):
    """Returns the mean cosine of two different items."""
    cosines = 2 * similarity(vectors) - 1
    return float(cosines[np.triu_indices(len(vectors), 1)].mean())


def compare(client, diversities, histories, followed):
    """Yields (diversity, mean cosine, hit rate, number of lists that differ from `choose`)."""
    vectors = item_vectors()
    pools = [client.recommend("recommender", items, count=POOL, exclude=[0]) for items in histories]
    for diversity in diversities:
        cosines, hits, differ = [], 0, 0
        for history, item, pool in zip(histories, followed, pools):
            best = client.recommend("recommender", history, count=COUNT, exclude=[0],
                                    diversity=diversity)
            items = [each.item for each in best]
            ids = [each.item for each in pool]
            places = choose([each.score for each in pool], vectors[ids], diversity, COUNT)
            differ += items != [ids[place] for place in places]
            cosines.append(pairwise(vectors[items]))
            hits += item in items
        yield diversity, float(np.mean(cosines)), hits / len(histories), differ


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("server")
    parser.add_argument("--diversity", type=float, nargs="+", default=[0, 0.5, 1])
    given = parser.parse_args()
    held_out = json.loads((HERE / "heldout.json").read_text())
    print("| diversity | mean cosine of two items | hit rate |\n|---|---|---|")
    with Client(given.server) as client:
        for diversity, cosine, hit_rate, differ in compare(
            client, given.diversity, held_out["histories"], held_out["followed"]
        ):
            print(f"| {diversity:g} | {cosine:.3f} | {hit_rate:.3f} |")
            assert differ == 0, f"{differ} lists differ from NumPy's"


if __name__ == "__main__":
    main()
