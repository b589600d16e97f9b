"""Tests the examples with --help, with folders of other kinds, and with errors.

test_documented_commands.py runs the commands that their texts show."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT, Daemon
from sentence_models import lay
from sluice_client import Client
from waiting import PATIENCE_S

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
TEXTS = ["And God said", "Jerusalem"]
# The arguments after the model's name.
ARGUMENTS = {"embed": TEXTS, "embed_many": [__file__, os.devnull], "entities": TEXTS,
             "recommend": ["1"], "score": TEXTS,
             "search": [__file__, "a query"], "stream": ["a", "1"], "xsa": ["a", "1"]}


def run(example, *arguments):
    return subprocess.run([sys.executable, example, *arguments], capture_output=True, text=True,
                          timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    # The files of "dense" fix the pooling; the files of "cls" set it.
    with Daemon(models=[(name, lay(folder / name, name)) for name in ("cls", "dense")]) as daemon:
        yield daemon.grpc


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each.stem)
def test_example_has_help(example):
    shown = run(example, "--help")
    assert shown.returncode == 0 and "HOST:PORT" in shown.stdout and not shown.stderr
    missing = run(example)
    assert missing.returncode == 2 and "Traceback" not in missing.stderr


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each.stem)
def test_example_needs_no_numpy(example):
    program = ("import runpy, sys; sys.modules['numpy'] = None; del sys.argv[0];"
               " runpy.run_path(sys.argv[0], run_name='__main__')")
    shown = subprocess.run([sys.executable, "-c", program, example, "--help"],
                           capture_output=True, text=True, timeout=PATIENCE_S)
    assert shown.returncode == 0, shown.stderr


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each.stem)
def test_error_of_a_call_is_one_line(served, example):
    failed = run(example, served, "none", *ARGUMENTS[example.stem])
    assert failed.returncode == 1 and failed.stderr.startswith(f"{example.name}: ")
    assert failed.stderr.count("\n") == 1 and "none" in failed.stderr


@pytest.mark.parametrize("model", ["cls", "dense"])
def test_folder_decides_the_pooling(served, model):
    shown = run(ROOT / "examples" / "embed.py", served, model, *TEXTS)
    assert shown.returncode == 0, shown.stderr
    with Client(served) as client:
        vectors = np.asarray(client.embed(model, TEXTS, normalize=True))
    assert shown.stdout.splitlines()[1] == f"{vectors[1] @ vectors[0]:7.4f}  {TEXTS[1]}"


def test_embedding_of_many_texts_continues_after_a_failure(served, tmp_path):
    texts, vectors = tmp_path / "texts.txt", tmp_path / "vectors.jsonl"
    lines = [f"{i} {'word ' * (i % 20)}" for i in range(150)]
    texts.write_text("\n".join(lines))
    whole = tmp_path / "whole.jsonl"
    for out, before in ((whole, None), (vectors, 70)):
        if before is not None:  # A run ended within a line.
            out.write_text("".join(whole.read_text().splitlines(True)[:before]) + "[0.1")
        shown = run(ROOT / "examples" / "embed_many.py", served, "dense", texts, out)
        assert shown.returncode == 0 and shown.stdout == "150 of 150\n", shown.stderr
    assert vectors.read_text() == whole.read_text()
    with Client(served) as client:
        expected = client.embed("dense", [line.strip() for line in lines]).tolist()
    assert [*map(json.loads, whole.read_text().splitlines())] == expected


def test_embedding_of_many_texts_reports_and_skips_an_invalid_line(served, tmp_path):
    texts, out = tmp_path / "texts.txt", tmp_path / "vectors.jsonl"
    texts.write_text("\n".join(["first", "a" * 2**20, "last"]))
    refused = run(ROOT / "examples" / "embed_many.py", served, "dense", texts, out)
    assert refused.returncode == 1 and "[1]" in refused.stderr
    shown = run(ROOT / "examples" / "embed_many.py", served, "dense", texts, out, "--skip-invalid")
    assert shown.returncode == 0 and shown.stderr.startswith("line 2 is skipped: ")
    vectors = [*map(json.loads, out.read_text().splitlines())]
    assert vectors[1] is None and vectors[0] and vectors[2]
