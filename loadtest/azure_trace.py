#!/usr/bin/env python3
"""Turns a trace of Azure's public data set into the columns that our programs read.

    loadtest/azure_trace.py < AzureLLMInferenceTrace_conv.csv > azure2023_conv.csv

Arrivals become seconds from the first one.
"""

import csv
import datetime
import sys

DIGITS = len("2023-11-16 18:15:46.680590")  # Python reads microseconds


def main() -> None:
    made = csv.writer(sys.stdout, lineterminator="\n")
    made.writerow(["arrival_s", "input_tokens", "output_tokens"])
    first = None
    for row in csv.DictReader(sys.stdin):
        at = datetime.datetime.fromisoformat(row["TIMESTAMP"][:DIGITS])
        first = first or at
        made.writerow([f"{(at - first).total_seconds():.6f}", row["ContextTokens"],
                       row["GeneratedTokens"]])
    if first is None:
        sys.exit("azure_trace.py: no rows on the standard input; was the trace fetched?")


if __name__ == "__main__":
    main()
