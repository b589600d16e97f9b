"""Tests which literals of a source tools/list_messages.py lists."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import list_messages  # noqa: E402


def test_messages_of_two_words_are_listed_and_keys_are_not():
    source = 'Fail("is empty"); // no message here\nOf("a_key", "word", "/proc/self/statm");\n'
    assert list(list_messages.messages("a.cc", source)) == [(1, "is empty")]
    source = '"""A docstring of words."""\nfail("at most", "key", f"row {i} is empty")\n'
    assert sorted(text for _, text in list_messages.messages("a.py", source)) == [
        "at most", "row X is empty"]
