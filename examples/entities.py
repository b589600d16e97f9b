#!/usr/bin/env python3
"""Prints the entities that a classifier of tokens finds in texts, such as persons and places.

  python examples/entities.py localhost:8001 MODEL "Ada Lovelace lived in London."

Texts that are too long for the model are read in overlapping windows.
"""

import argparse
import sys

from sluice_client import Client, SluiceError

OVERLAP = 16  # tokens that neighbouring windows share


def main():
    parser = argparse.ArgumentParser(description="Prints the entities in texts.")
    parser.add_argument("server", metavar="HOST:PORT", help="the daemon's gRPC address")
    parser.add_argument("model", help="the name of a served classifier of tokens")
    parser.add_argument("texts", nargs="+", metavar="TEXT")
    given = parser.parse_args()
    try:
        with Client(given.server) as client:
            found = client.tag(given.model, given.texts, window_overlap=OVERLAP)
    except SluiceError as error:
        sys.exit(f"entities.py: {error}")
    for text, entities in zip(given.texts, found):
        print(text)
        for entity in entities:
            place = f"{entity.begin}-{entity.end}"
            print(f"  {entity.type:8} {entity.score:6.3f}  {place:>9}  {entity.text}")


if __name__ == "__main__":
    main()
