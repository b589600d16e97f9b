#!/usr/bin/env python3
"""Finds the lines of a text file that are nearest in meaning to a query.

  python examples/search.py localhost:8001 MODEL notes.txt "Who opened the gate?"

If a second model, a cross-encoder, is given, it reorders the lines by its scores:

  python examples/search.py localhost:8001 MODEL notes.txt "Who opened the gate?" RERANKER
"""

import argparse
import sys

from sluice_client import Client, SluiceError

SHOWN = 10
CONSIDERED = 50  # lines that the second model reorders


def best_of(client, model, query, lines, count):
    """Returns (score, number, line) of the best lines, with the model's prompts if it has any."""
    ranked = client.rerank(model, query, [line for _, line in lines], top_n=count,
                           truncate="right")
    return [(each.score, *lines[each.document]) for each in ranked]


def main():
    parser = argparse.ArgumentParser(description="Finds the lines of a file nearest to a query.")
    parser.add_argument("server", metavar="HOST:PORT", help="the daemon's gRPC address")
    parser.add_argument("model", help="the name of a served embedding model")
    parser.add_argument("file", help="a text file")
    parser.add_argument("query")
    parser.add_argument("reranker", nargs="?", help="the name of a served cross-encoder")
    given = parser.parse_args()
    try:
        with open(given.file) as file:
            lines = [(number, line.strip()) for number, line in enumerate(file, 1) if line.strip()]
    except OSError as error:
        parser.error(str(error))
    if not lines:
        parser.error(f"{given.file} has no lines with text")
    try:
        with Client(given.server) as client:
            best = best_of(client, given.model, given.query, lines,
                           CONSIDERED if given.reranker else SHOWN)
            if given.reranker:
                best = best_of(client, given.reranker, given.query, [line for _, *line in best],
                               SHOWN)
    except SluiceError as error:
        sys.exit(f"search.py: {error}")
    for score, number, line in best:
        print(f"{score:9.4f}  {number}: {line}")


if __name__ == "__main__":
    main()
