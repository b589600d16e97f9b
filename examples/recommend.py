#!/usr/bin/env python3
"""Recommends ten items that follow a history and are not in it.

  python examples/recommend.py localhost:8001 recommender 5 80 8 83 11
  python examples/recommend.py localhost:8001 recommender 5 80 8 83 11 --diversity 0.5
"""

import argparse
import sys

from sluice_client import Client, SluiceError


def main():
    parser = argparse.ArgumentParser(description="Recommends ten items that follow a history.")
    parser.add_argument("server", metavar="HOST:PORT", help="the daemon's gRPC address")
    parser.add_argument("model", help="the name of a served recommender")
    parser.add_argument("history", type=int, nargs="+", metavar="ITEM")
    parser.add_argument("--diversity", type=float, default=0, help="from 0 (best scores) to 1")
    given = parser.parse_args()
    try:
        with Client(given.server) as client:
            # Item 0 is excluded because training used it as padding.
            best = client.recommend(given.model, given.history, count=10,
                                    exclude=[0, *given.history], diversity=given.diversity)
    except SluiceError as error:
        sys.exit(f"recommend.py: {error}")
    for item, score in best:
        print(f"{item:6d} {score:9.4f}")


if __name__ == "__main__":
    main()
