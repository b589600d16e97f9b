#!/usr/bin/env python3
"""Converts a trace of Azure's public data set into the columns that Sluice's programs read.

    loadtest/azure_trace.py azure2023_conv.csv < AzureLLMInferenceTrace_conv.csv

Arrival times become seconds since the first arrival. If the standard input is not such a trace, no
file is written.
"""

import argparse
import csv
import datetime
import pathlib
import sys
import tempfile
from collections.abc import Iterator

DIGITS = len("2023-11-16 18:15:46.680590")  # Python reads microseconds
COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


class NotATrace(Exception):
    """The input is not a complete trace; the message gives the reason in one line."""


def rows_of(lines) -> Iterator[tuple[str, int, int]]:
    read = csv.DictReader(lines)
    if read.fieldnames is None:
        raise NotATrace("the standard input is empty; was the trace fetched?")
    if not set(COLUMNS) <= set(read.fieldnames):
        raise NotATrace(f"the first line lacks the columns {', '.join(COLUMNS)}; it begins with "
                        f"{','.join(read.fieldnames)[:60]!r}")
    first = None
    for row in read:
        try:
            at, tokens, made = (row[name] for name in COLUMNS)
            at = datetime.datetime.fromisoformat(at[:DIGITS])
            first = first or at
            yield f"{(at - first).total_seconds():.6f}", int(tokens), int(made)
        except (TypeError, ValueError) as error:
            raise NotATrace(f"line {read.line_num} is not a request ({error}); was the fetch cut "
                            "off?") from error
    if first is None:
        raise NotATrace("there is no request after the first line")


def write(lines, out: pathlib.Path) -> int:
    """Returns the number of requests."""
    count = 0
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        part = pathlib.Path(folder, out.name)
        with part.open("w") as file:
            made = csv.writer(file, lineterminator="\n")
            made.writerow(["arrival_s", "input_tokens", "output_tokens"])
            for row in rows_of(lines):
                made.writerow(row)
                count += 1
        part.replace(out)
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path, help="the CSV to write")
    out = parser.parse_args().out
    try:
        print(f"azure_trace.py: {out} has {write(sys.stdin, out)} requests", file=sys.stderr)
    except (NotATrace, OSError) as error:
        sys.exit(f"azure_trace.py: {out} is not written: {error}")


if __name__ == "__main__":
    main()
