"""Tests which constructions tools/check_prose.py counts, and how budgets are compared."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import check_prose  # noqa: E402

MARKED = {
    "on a CPU alone": "alone",
    "the norm behind attention": "behind",
    "like that of the engine": "that of",
    "the step for which it waits": "of which",
    "so many tokens are computed": "so many",
    "counts what waits": "what",
    "The model wants vectors.": "wants",
    "a setting that nobody reads": "nobody",
    "is no integer": "is no",
    "as many as fit": "as many as",
    "They are read anew.": "dialect",
    "gives the memory back; gives back pages": "dialect",
    "a step that, if the queue is full, waits": "if inside",
}
UNMARKED = [
    "Leave it alone.",
    "a server behind a load balancer",
    "in which order",
    "What does a step compute?",
    "If you want to know what to do, ask.",
    "if users want more",
    "There is no queue.",
    "It is no longer used.",
    "as soon as it ends",
    "at most 16 MiB",
]


@pytest.mark.parametrize("text, construction", MARKED.items(), ids=MARKED)
def test_construction_is_counted(text, construction):
    assert construction in [found for _, found, _ in check_prose.marks(text)]


@pytest.mark.parametrize("text", UNMARKED)
def test_ordinary_english_is_not_counted(text):
    assert [found for _, found, _ in check_prose.marks(text)] == []


SOURCES = {
    "a.cc": ('#include "behind/that.h"\n// The norm that\n// of layers.\n'
             'Error("is no valid " "integer");\nTEST(QueueTest, TellsWhatWaits) {}\n',
             [(3 - 1, "that of"), (4, "is no"), (5, "wants"), (5, "what")]),
    "a.py": ('"""Counts what waits."""\n\n# Nobody reads\n# this here.\n'
             'def test_the_queue_that_of_a_model():\n    fail(f"{x} is no integer here")\n',
             [(1, "what"), (3, "nobody"), (5, "that of"), (6, "is no")]),
    "a.sh": ("#!/bin/sh\n# Prints what\n# waits here.\nfail \"this is no file here\"\n",
             [(2, "what"), (4, "is no")]),
    "a.md": ("# Title\n\nThis is `what is no code` and that\nof others.\n\n```\nwhat waits\n```\n"
             "| nobody reads |\n", [(3, "that of"), (9, "nobody")]),
    "a.proto": ("// Requests that\n// nobody reads.\nmessage A {}\n", [(2, "nobody")]),
    "a.yaml": ("# Comment of what waits.\nsummary: nobody reads this text\n",
               [(1, "what"), (2, "nobody")]),
}


@pytest.mark.parametrize("name", SOURCES)
def test_texts_of_each_kind_of_file_are_read_with_their_lines(name, tmp_path):
    text, expected = SOURCES[name]
    (tmp_path / name).write_text(text)
    (places,) = check_prose.count(tmp_path, [name]).values()
    assert sorted((line, kind) for _, line, kind, _ in places.found) == sorted(expected)


def test_folders_and_documents_are_counted_apart():
    assert check_prose.place_of("engine/model/tokenizer/bpe.cc") == "engine/model"
    assert check_prose.place_of("engine/engine.h") == "engine"
    assert check_prose.place_of("docs/api.md") == "docs/api.md"
    assert check_prose.place_of("run") == "."


def counted(words, marks):
    made = check_prose.Count()
    made.words, made.found = words, [("a.cc", 1, "what", "what")] * marks
    return made


def problems(words, marks, budgets, earlier):
    return list(check_prose.problems({"base": counted(words, marks)}, budgets, earlier, 4.0))


def test_more_marks_than_the_budget_fail():
    assert problems(1000, 5, {"base": 5.0}, {}) == []
    assert "5.0 marks per 1,000 words" in problems(1000, 5, {"base": 4.5}, {})[0]


def test_folder_without_a_budget_may_have_four_marks_per_thousand_words():
    assert problems(1000, 4, {}, {}) == []
    assert problems(1000, 5, {}, {}) != []


def test_short_document_may_have_two_marks():
    assert problems(100, 2, {}, {}) == []
    assert problems(100, 3, {}, {}) != []


def test_budget_that_rose_since_the_merge_base_fails():
    assert problems(1000, 5, {"base": 6.0}, {"base": 6.0}) == []
    assert "rose from 5 to 6" in problems(1000, 5, {"base": 6.0}, {"base": 5.0})[0]


def test_earlier_budgets_are_read_from_the_merge_base(tmp_path):
    def git(*arguments):
        subprocess.run(["git", "-c", "user.name=T", "-c", "user.email=t@example.org", *arguments],
                       cwd=tmp_path, check=True, capture_output=True)

    git("init", "-b", "main")
    budgets = tmp_path / check_prose.BUDGETS
    budgets.parent.mkdir()
    budgets.write_text("# Comment\n   5.5 base\n")
    git("add", ".")
    git("commit", "-m", "first")
    git("switch", "-c", "topic")
    budgets.write_text("   9.0 base\n")
    assert check_prose.budgets_at_merge_base(tmp_path) == {"base": 5.5}


def test_messages_are_listed_without_comments_and_docstrings():
    source = '// A comment of three words.\nError("row ", i, " is longer than expected");\n'
    assert [passage.strip() for _, passage in check_prose.passages_of_c(source, comments=False)
            if "longer" in passage] == ["is longer than expected"]
    assert not any("comment" in passage
                   for _, passage in check_prose.passages_of_c(source, comments=False))
    source = '"""A docstring of words."""\n# A comment here.\nfail(f"{x} is longer than that")\n'
    assert [passage.strip() for _, passage in
            check_prose.passages_of_python(source, comments=False)] == ["X is longer than that"]
