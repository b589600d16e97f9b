#!/usr/bin/env python3
"""Recommends ten items that follow a history and are not in it.

  python examples/recommend.py localhost:8001 recommender 5 80 8 83 11
  python examples/recommend.py localhost:8001 recommender 5 80 8 83 11 --diversity 0.5
"""

import argparse

from sluice_client import Client


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("server")
    parser.add_argument("model")
    parser.add_argument("history", type=int, nargs="+")
    parser.add_argument("--diversity", type=float, default=0, help="from 0 (best scores) to 1")
    given = parser.parse_args()
    with Client(given.server) as client:
        # Item 0 is excluded because training used it as padding.
        for item, score in client.recommend(given.model, given.history, count=10,
                                            exclude=[0, *given.history],
                                            diversity=given.diversity):
            print(f"{item:6d} {score:9.4f}")


if __name__ == "__main__":
    main()
