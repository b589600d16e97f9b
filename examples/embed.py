#!/usr/bin/env python3
"""Embeds texts and prints the cosine similarity of each to the first.

  python examples/embed.py localhost:8001 demo "And God said" "And the LORD said" "Jerusalem"
"""

import sys

import numpy as np
import tritonclient.grpc as grpcclient


def main():
    server, model, *texts = sys.argv[1:]
    client = grpcclient.InferenceServerClient(server)
    prompts = grpcclient.InferInput("text_input", [len(texts), 1], "BYTES")
    prompts.set_data_from_numpy(np.array([[text.encode()] for text in texts], np.object_))
    answer = client.infer(
        model,
        [prompts],
        parameters={"max_tokens": 0, "pooling": "mean", "normalize": True},
        outputs=[grpcclient.InferRequestedOutput("embedding")],
    )
    vectors = answer.as_numpy("embedding")
    for text, cosine in zip(texts, vectors @ vectors[0]):
        print(f"{cosine:7.4f}  {text}")


if __name__ == "__main__":
    main()
