"""Compares labelled parts of random texts with the packages gliner and gliner2, on random models.

SLUICE_TEST_TEXTS sets another number of texts, and SLUICE_TEST_SEED repeats the texts of a run.
"""

import os
import pathlib
import random
import sys

import pytest
import tritonclient.grpc as grpcclient

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

from conftest import Daemon  # noqa: E402
from environments import Environment  # noqa: E402
from infer import infer, text_inputs  # noqa: E402
from test_extraction import convert, parts_of, rules_of, same_parts  # noqa: E402
from waiting import PATIENCE_S  # noqa: E402

TEXTS = int(os.environ.get("SLUICE_TEST_TEXTS", 1000))
PROGRAM = pathlib.Path(__file__).with_name("extraction_cases.py")


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    seed = int(os.environ.get("SLUICE_TEST_SEED") or random.randrange(1 << 30))
    print("seed", seed)
    folder = tmp_path_factory.mktemp("published")
    cases = Environment("extraction").run_file(PROGRAM, folder, seed, -(-TEXTS // 6),
                                               timeout=20 * PATIENCE_S)
    return folder, cases


def test_parts_and_scores_equal_the_packages(answers, tmp_path):
    folder, cases = answers
    for name in cases:
        run = convert(folder / name, tmp_path / name)
        assert run.returncode == 0, run.stdout + run.stderr
    daemon = Daemon(models=[(name, tmp_path / name) for name in cases])
    try:
        with grpcclient.InferenceServerClient(daemon.grpc) as client:
            for name, of_model in cases.items():
                for case in of_model:
                    found, = parts_of(infer(client, text_inputs(case["text"]), None, name,
                                            **rules_of(case)))
                    same_parts(found, case["parts"], case["text"])
    finally:
        daemon.stop()
