#!/usr/bin/env python3
"""Recommends ten items that follow a history and are not in it.

  python examples/recommend.py localhost:8001 recommender 5 80 8 83 11
"""

import sys

from sluice_client import Client


def main():
    server, model, *history = sys.argv[1:]
    items = [int(item) for item in history]
    with Client(server) as client:
        # Item 0 is excluded because it is the padding of training.
        for item, score in client.recommend(model, items, count=10, exclude=[0, *items]):
            print(f"{item:6d} {score:9.4f}")


if __name__ == "__main__":
    main()
