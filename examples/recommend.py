#!/usr/bin/env python3
"""Recommends ten items that follow a history and are not in it.

  python examples/recommend.py localhost:8001 recommender 5 80 8 83 11
"""

import sys

import numpy as np
import tritonclient.grpc as grpcclient


def tensor(name, values):
    array = np.array([values], np.int32)
    made = grpcclient.InferInput(name, list(array.shape), "INT32")
    made.set_data_from_numpy(array)
    return made


def main():
    server, model, *history = sys.argv[1:]
    items = [int(item) for item in history]
    client = grpcclient.InferenceServerClient(server)
    # Item 0 is excluded because it is the padding of training.
    answer = client.infer(
        model,
        [tensor("input_ids", items), tensor("exclude_ids", [0, *sorted(set(items))])],
        parameters={"max_tokens": 1, "num_top_logprobs": 10},
        outputs=[grpcclient.InferRequestedOutput(name) for name in ("top_ids", "top_scores")],
    )
    for item, score in zip(answer.as_numpy("top_ids")[0, 0], answer.as_numpy("top_scores")[0, 0]):
        print(f"{item:6d} {score:9.4f}")


if __name__ == "__main__":
    main()
