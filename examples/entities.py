#!/usr/bin/env python3
"""Prints the entities that a classifier of tokens finds in texts, such as persons and places.

  python examples/entities.py localhost:8001 MODEL "Ada Lovelace lived in London."

Texts that are too long for the model are read in overlapping windows.
"""

import sys

from sluice_client import Client

OVERLAP = 16  # tokens that neighbouring windows share


def main():
    server, model, *texts = sys.argv[1:]
    with Client(server) as client:
        for text, entities in zip(texts, client.tag(model, texts, window_overlap=OVERLAP)):
            print(text)
            for entity in entities:
                place = f"{entity.begin}-{entity.end}"
                print(f"  {entity.type:8} {entity.score:6.3f}  {place:>9}  {entity.text}")


if __name__ == "__main__":
    main()
