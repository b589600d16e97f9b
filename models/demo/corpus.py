"""The King James Bible as byte tokens, read from Debian's bible-kjv package.

A chapter is a document: its verses as plain prose, each followed by a newline,
then eos. Verse references are removed. A window is bos at position 0 followed
by a verse start, so that a position has a meaning (bytes since a verse began)
that a position-wise projection can learn.
"""

import re
import subprocess
from dataclasses import dataclass

import torch

BOS, EOS, VOCAB = 256, 257, 258
IGNORE = -100  # the target that cross_entropy skips

# Whole books, so that no sentence of the validation text is trained on; one of
# each kind: history, wisdom, prophecy (two), an epistle of Paul, another epistle.
HELD_OUT = ("Ruth", "Eccl", "Dan", "Jonah", "Phi", "Jas")

VERSE = re.compile(r"(\d?[A-Za-z]+)(\d+):(\d+) (.*)")


@dataclass
class Chapter:
    book: str
    text: bytes
    starts: list[int]  # offsets of the verses in text


def read_chapters() -> list[Chapter]:
    command = ["bible", "-p", "/usr/lib", "-f", "gen1:1-rev22:21"]  # -f: one verse a line
    try:
        listing = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        raise SystemExit("The text comes from the Debian packages bible-kjv and bible-kjv-text; "
                         f"install them with apt. ({error})")
    verses: dict[tuple[str, str], list[str]] = {}
    for line in listing.splitlines():
        book, chapter, _, verse = VERSE.fullmatch(line).groups()
        verses.setdefault((book, chapter), []).append(verse.strip() + "\n")
    chapters = []
    for (book, _), lines in verses.items():
        starts, offset = [], 0
        for line in lines:
            starts.append(offset)
            offset += len(line)
        chapters.append(Chapter(book, "".join(lines).encode("ascii"), starts))
    return chapters


def split(chapters: list[Chapter]) -> tuple[list[Chapter], list[Chapter]]:
    """(training chapters, held-out chapters)"""
    return ([c for c in chapters if c.book not in HELD_OUT],
            [c for c in chapters if c.book in HELD_OUT])


def training_windows(chapters: list[Chapter], positions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """One window per verse: inputs and targets [verses, positions].

    Input position 0 is bos; the target at the last position is one byte further,
    so every position is trained. A window ends with its chapter: eos is the last
    target and IGNORE fills the rest.
    """
    rows = []
    for chapter in chapters:
        tokens = list(chapter.text) + [EOS]
        for start in chapter.starts:
            row = tokens[start:start + positions]
            rows.append(row + [IGNORE] * (positions - len(row)))
    targets = torch.tensor(rows)
    inputs = torch.cat([torch.full((len(rows), 1), BOS), targets[:, :-1]], dim=1)
    return inputs.masked_fill(inputs == IGNORE, EOS), targets


def validation_windows(chapters: list[Chapter], positions: int) -> list[bytes]:
    """Windows of up to positions - 1 bytes (bos takes the first position) that do not overlap.

    The first starts with the chapter. Each further one starts at the first verse start at or after
    the end of the previous one. The bytes between two windows are not scored.
    """
    windows = []
    for chapter in chapters:
        end = 0
        for start in chapter.starts:
            if start >= end:
                windows.append(chapter.text[start:start + positions - 1])
                end = start + positions - 1
    return windows


def consecutive_windows(text: bytes, positions: int) -> list[bytes]:
    """text cut every positions - 1 bytes, anywhere in the text."""
    return [text[i:i + positions - 1] for i in range(0, len(text), positions - 1)]
