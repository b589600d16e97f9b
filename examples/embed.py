#!/usr/bin/env python3
"""Embeds texts and prints the cosine similarity of each to the first.

  python examples/embed.py localhost:8001 demo "And God said" "And the LORD said" "Jerusalem"
"""

import sys

import numpy as np
from sluice_client import Client


def main():
    server, model, *texts = sys.argv[1:]
    with Client(server) as client:
        vectors = np.asarray(client.embed(model, texts, pooling="mean", normalize=True))
    for text, cosine in zip(texts, vectors @ vectors[0]):
        print(f"{cosine:7.4f}  {text}")


if __name__ == "__main__":
    main()
