#!/usr/bin/env python3
"""Finds the lines of a text file that are nearest in meaning to a query.

  python examples/search.py localhost:8001 MODEL notes.txt "Who opened the gate?"

If a second model, a cross-encoder, is given, it reorders the lines by its scores:

  python examples/search.py localhost:8001 MODEL notes.txt "Who opened the gate?" RERANKER
"""

import sys

from sluice_client import Client

SHOWN = 10
CONSIDERED = 50  # lines that the second model reorders
AT_ONCE = 500  # lines of one request


def best_of(client, model, query, lines, count):
    """Returns (score, number, line) of the best lines, with the model's prompts if it has any."""
    found = []
    for first in range(0, len(lines), AT_ONCE):
        part = lines[first:first + AT_ONCE]
        ranked = client.rerank(model, query, [line for _, line in part], truncate="right")
        found += [(each.score, *part[each.document]) for each in ranked[:count]]
    return sorted(found, key=lambda each: -each[0])[:count]


def main():
    server, model, path, query, *reranker = sys.argv[1:]
    with open(path) as file:
        lines = [(number, line.strip()) for number, line in enumerate(file, 1) if line.strip()]
    with Client(server) as client:
        best = best_of(client, model, query, lines, CONSIDERED if reranker else SHOWN)
        if reranker:
            best = best_of(client, reranker[0], query, [line for _, *line in best], SHOWN)
    for score, number, line in best:
        print(f"{score:9.4f}  {number}: {line}")


if __name__ == "__main__":
    main()
