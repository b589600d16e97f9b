"""Creates folders of the rerankers in tests/goldens/rerankers, with their pair_frame.json."""

import json
import shutil
import subprocess
import sys

from conftest import ROOT

RERANKERS = ROOT / "tests" / "goldens" / "rerankers"
EXPECTED = json.loads((RERANKERS / "expected.json").read_text())
# The name of each model's published text.
PUBLISHED = {"qwen3": "qwen3-reranker", "mxbai": "mxbai-rerank-v2",
             "gemma": "bge-reranker-v2-gemma"}
# The activation that CrossEncoder applies by default.
SIGMOID = {"qwen3": True, "mxbai": False, "gemma": False}
# The models whose text has a place for an instruction. The template of others ignores it.
INSTRUCTED = ("qwen3", "mxbai")


def make_frame(folder, *arguments):
    """Runs the program of the client that writes pair_frame.json."""
    return subprocess.run([sys.executable, "-m", "sluice_client.pair_frame", folder, *arguments],
                          capture_output=True, text=True)


def lay(folder, name):
    """Writes the folder of a model, and its frame."""
    shutil.copytree(RERANKERS / name, folder)
    made = make_frame(folder)
    assert made.returncode == 0, made.stderr
    return folder


def frame_of(folder):
    return json.loads((folder / "pair_frame.json").read_text())
