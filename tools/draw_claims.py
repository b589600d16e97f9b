#!/usr/bin/env python3
"""Draws sentences and table rows of the documents and of --help, to check them by hand.

  tools/draw_claims.py --count 100 --seed 1
  tools/draw_claims.py --count 100 --seed 1 --program build/release/client/sluice

Prints a numbered list: file, line, text. The same seed and the same texts give the same list. Each
--program adds the text of `PROGRAM --help`, and of `PROGRAM SUBCOMMAND --help` for each subcommand.
docs/options.md has the text of `sluiced --help-all`.

A sentence counts as a claim if it has a code span, a number, or a verb of behaviour such as
"returns" or "must". Code blocks, headings, links by themselves and rows of figures do not count.
"""

import argparse
import pathlib
import random
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCUMENTS = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "deploy/README.md"]
MEASURED = {"docs/gpu_costs.md", "docs/why.md"}  # their tables are generated figures

CHECKABLE = re.compile(
    r"`[^`]+`|\b\d|\b(accepts?|adds?|appl(y|ies)|can|cannot|checks?|contains?|counts?|default|"
    r"exits?|fails?|has|keeps?|lists?|loads?|must|names?|needs?|never|only|prints?|reads?|"
    r"rejects?|refuses?|reports?|requires?|returns?|runs?|sends?|shows?|starts?|stops?|supports?|"
    r"takes?|uses?|waits?|writes?)\b",
    re.IGNORECASE,
)
SENTENCE_END = re.compile(r"(?<=[.!?])[)\"*]*\s+(?=[A-Z`\[*\"(])")
NUMERIC = re.compile(r"[-+~<>]?[\d.,/ ]*\d[\d.,/ ]*(%|x|[kMG]?B|[kMG]iB|[mnµu]?s)?|-|")
SUBCOMMAND = re.compile(r"^  ([a-z_]+)  ")


def is_claim(text):
    return len(text.split()) >= 4 and CHECKABLE.search(text) is not None


def is_row_of_figures(row):
    cells = [cell.strip().strip("*`") for cell in row.strip("|").split("|")]
    return sum(NUMERIC.fullmatch(cell) is not None for cell in cells) * 2 >= len(cells)


def sentences(lines):
    """Yields (line number, sentence) of one paragraph; `lines` are (number, text)."""
    starts, text, begin = [], "", 0
    for number, line in lines:
        starts.append((len(text), number))
        text += line.strip() + " "
    text = text.rstrip()
    for end in [match.end() for match in SENTENCE_END.finditer(text)] + [len(text)]:
        number = max((number for start, number in starts if start <= begin), default=0)
        yield number, text[begin:end].strip()
        begin = end


def claims_of_document(path, with_rows):
    """Yields (line number, text) of each claim of a Markdown file, table rows if `with_rows`."""
    paragraph, rows, in_code = [], 0, False
    for number, line in enumerate([*path.read_text().splitlines(), ""], 1):
        is_fence = line.lstrip().startswith("```")
        is_row = line.startswith("|") and not in_code
        ends = is_fence or is_row or not line.strip() or line.startswith(("#", "<", "    "))
        if ends or re.match(r"\s*(-|\*|\d+\.) ", line):
            yield from (found for found in sentences(paragraph) if is_claim(found[1]))
            paragraph = []
        rows = rows + 1 if is_row else 0
        if with_rows and is_row and rows > 2 and not is_row_of_figures(line) and is_claim(line):
            yield number, line
        if is_fence:
            in_code = not in_code
        elif not ends and not in_code:
            paragraph.append((number, re.sub(r"^\s*(-|\*|\d+\.) ", "", line)))


def help_of(*command):
    """Returns a help text, or "" with a warning if its program is missing (sluice serve)."""
    done = subprocess.run([*command, "--help"], capture_output=True, text=True)
    if done.returncode != 0:
        print(f"left out {' '.join(command)} --help: {done.stderr.strip()}", file=sys.stderr)
        return ""
    return done.stdout


def claims_of_help(program):
    """Yields (source, line, text) for each text of a program's help, a repeated text once."""
    seen = set()
    top = help_of(program)
    subcommands = []
    if "Subcommands:" in top:
        after = top.partition("Subcommands:")[2]
        subcommands = [found[1] for found in map(SUBCOMMAND.match, after.splitlines()) if found]
    name = pathlib.Path(program).name
    for words in [[], *([each] for each in subcommands)]:
        entry = []
        for number, line in enumerate([*help_of(program, *words).splitlines(), ""], 1):
            if entry and (not line.strip() or re.match(r" {0,2}\S", line)):
                text = " ".join(part.strip() for _, part in entry)
                if is_claim(text) and text not in seen:
                    seen.add(text)
                    yield " ".join([name, *words, "--help"]), entry[0][0], text
                entry = []
            if line.strip():
                entry.append((number, line))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100, help="how many claims to draw")
    parser.add_argument("--seed", type=int, default=1, help="seed of the draw")
    parser.add_argument("--program", action="append", default=[], help="a program with --help")
    given = parser.parse_args()
    documents = [ROOT / name for name in DOCUMENTS] + sorted((ROOT / "docs").glob("*.md"))
    claims = []
    for path in documents:
        name = str(path.relative_to(ROOT))
        found = claims_of_document(path, with_rows=name not in MEASURED)
        claims += [(name, number, text) for number, text in found]
    for program in given.program:
        claims += claims_of_help(program)
    if given.count > len(claims):
        sys.exit(f"draw_claims.py: --count is {given.count}, but there are {len(claims)} claims.")
    drawn = sorted(random.Random(given.seed).sample(range(len(claims)), given.count))
    for index, (source, number, text) in enumerate((claims[each] for each in drawn), 1):
        print(f"{index}. {source}:{number}: {text}")
    print(f"drawn from {len(claims)} claims", file=sys.stderr)


if __name__ == "__main__":
    main()
