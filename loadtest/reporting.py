"""The heading of all measurement reports, and functions that write reports.

This module uses only the standard library, because interpreters of peers import it too.
"""

import argparse
import datetime
import json
import pathlib


def processor() -> str:
    """Returns the name of this machine's processor."""
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"


def heading(benchmark: str) -> dict:
    """Returns the first entries of a report: its name, the date and the processor."""
    return {"benchmark": benchmark, "date": datetime.date.today().isoformat(),
            "processor": processor()}


def options_of(options: argparse.Namespace, *without: str) -> dict:
    """Returns the options for a report. Files and folders appear only with their names, because
    their paths mean nothing on other machines.
    """
    def told(value):
        if isinstance(value, list):
            return [told(each) for each in value]
        return value.name if isinstance(value, pathlib.Path) else value

    return {name: told(value) for name, value in vars(options).items()
            if name not in ("out", "table", *without)}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that name the files of write()."""
    parser.add_argument("--out", type=pathlib.Path, help="write the JSON report to this file")
    parser.add_argument("--table", type=pathlib.Path,
                        help="write the figures as Markdown to this file")


def save(options: argparse.Namespace, report: dict) -> None:
    """Writes the report to the file that the options name, if any. If the process is killed, the
    file is either complete or unchanged.
    """
    if options.out:
        part = options.out.with_name(f"{options.out.name}.part")
        part.write_text(json.dumps(report, indent=1) + "\n")
        part.replace(options.out)


def write(options: argparse.Namespace, report: dict, text: str) -> None:
    """Writes the report and its text to the files that the options name, and prints the text."""
    save(options, report)
    if options.table:
        options.table.write_text(text)
    print(text, end="")
