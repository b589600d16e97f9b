#!/usr/bin/env python3
"""Embeds texts and prints the cosine similarity of each to the first.

  python examples/embed.py localhost:8001 demo "And God said" "And the LORD said" "Jerusalem"
"""

import argparse
import sys

from sluice_client import Client, SluiceError


def main():
    parser = argparse.ArgumentParser(
        description="Prints the cosine similarity of each text to the first.")
    parser.add_argument("server", metavar="HOST:PORT", help="the daemon's gRPC address")
    parser.add_argument("model", help="the name of a served model; its folder decides the pooling")
    parser.add_argument("texts", nargs="+", metavar="TEXT")
    given = parser.parse_args()
    try:
        with Client(given.server) as client:
            vectors = client.embed(given.model, given.texts, normalize=True).tolist()
    except SluiceError as error:
        sys.exit(f"embed.py: {error}")
    for text, vector in zip(given.texts, vectors):
        cosine = sum(a * b for a, b in zip(vector, vectors[0]))
        print(f"{cosine:7.4f}  {text}")


if __name__ == "__main__":
    main()
