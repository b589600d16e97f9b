"""Tests that generated answers depend, bit for bit, only on their requests, not on scheduling."""

import concurrent.futures
import json
import shutil

import numpy as np
import pytest
from conftest import ROOT
from infer import ids_inputs, infer, text_inputs
from streaming import stream
from test_invariance import same

CLIENTS = 16
CROWD = 64
SEED = 20261121
SHARED = "And the LORD spake unto Moses, saying, Speak unto the children of Israel, "


def make_requests():
    """Yields greedy and seeded requests whose prompts share prefixes of about a page's length."""
    random = np.random.default_rng(SEED)
    for i in range(2 * CLIENTS):
        own = bytes(random.integers(97, 123, random.integers(1, 60)).tolist()).decode()
        begin = SHARED[: random.choice([0, 14, 15, 16, 17, 31, 32, len(SHARED)])]
        parameters = {"max_tokens": int(random.integers(2, 100))}
        if i % 2:
            parameters |= {"temperature": "0.9", "top_k": 30, "seed": int(random.integers(1 << 30)),
                           "repetition_penalty": "1.1", "frequency_penalty": "0.2"}
        yield begin + own, parameters


@pytest.fixture(scope="module")
def requests():
    return list(make_requests())


@pytest.fixture(scope="module")
def alone(demo, requests):
    """The unary answers of a daemon that runs the requests one after another."""
    with demo.client() as client:
        return [infer(client, text_inputs(prompt), **parameters) for prompt, parameters in requests]


def crowd(server, requests, clients):
    """Sends `requests` from `clients` clients; every second one streams. Returns the answers."""
    def ask(i):
        prompt, parameters = requests[i]
        if i % 2:
            return stream(server, text_inputs(prompt), **parameters)
        with server.client() as client:
            return infer(client, text_inputs(prompt), **parameters)

    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        return list(pool.map(ask, range(len(requests))))


# The options of a daemon with only 32 pages of 16 tokens.
FEW_PAGES = ["--engine.kv.memory-bytes", "1MiB", "--engine.batch.max-batch-tokens", "256",
             "--engine.batch.max-batch-sequences", "16"]
VARIANTS = {
    "as it is": [],
    "without prefix reuse": ["--engine.kv.prefix-reuse", "false"],
    "chunks of 1": ["--engine.batch.prefill-tokens", "1"],
    "chunks of 7": ["--engine.batch.prefill-tokens", "7"],
    "chunks of 15": ["--engine.batch.prefill-tokens", "15"],
    "chunks of 17": ["--engine.batch.prefill-tokens", "17"],
    "whole prompts": ["--engine.batch.prefill-tokens", "0"],
    "static batches": ["--engine.batch.continuous", "false"],
    "recomputed steps": ["--engine.batch.policy", "fifo_packed"],
    "one thread": ["--cpu.threads", "1"],
    "few pages": FEW_PAGES,
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_tokens_and_logprobs_equal_an_undisturbed_request(daemon, requests, alone, variant):
    server = daemon("--cpu.poison", "true", *VARIANTS[variant])
    # In the second pass, the prefix cache holds whole prompts.
    crowds = [CLIENTS, CROWD] if variant == "as it is" else [CLIENTS]
    for turn, clients in enumerate(crowds):
        times = max(1, clients // len(requests))
        answers = crowd(server, requests * times, clients)
        different = [i for i in range(len(answers))
                     if not same(alone[i % len(requests)], answers[i])]
        assert not different, f"seed {SEED}, turn {turn}: requests {different} differ"
    assert server.metric("sluice_kv_pages", state="held") == 0
    assert server.metric("sluice_admitted_total") == server.metric("sluice_requests_total")

    hits = server.metric("sluice_prefix_tokens_total", result="hit")
    keeps_pages = variant != "recomputed steps"
    assert (hits > 0) == (keeps_pages and variant != "without prefix reuse")


@pytest.mark.parametrize("drawn", [{}, {"temperature": "0.9", "seed": SEED}])
def test_preempted_rows_give_the_same_answers_as_with_enough_pages(daemon, demo, drawn):
    """The 16 rows need 7 pages each and share none."""
    prompts = [chr(ord("A") + i) + SHARED[: 10 + i] for i in range(16)]
    server = daemon("--cpu.poison", "true", *FEW_PAGES)
    parameters = {"max_tokens": 100, "ignore_eos": True, **drawn}
    with server.client() as short, demo.client() as roomy:
        assert same(infer(roomy, text_inputs(*prompts), **parameters),
                    infer(short, text_inputs(*prompts), **parameters))
    assert server.metric("sluice_preemptions_total") > 0, "memory was never short"
    assert server.metric("sluice_kv_pages", state="held") == 0


def test_windows_give_the_same_answers_with_little_memory(daemon, tmp_path):
    """Each layer sees 7 tokens. Without freeing, the rows would need 4 times as many pages."""
    shutil.copytree(ROOT / "tests" / "goldens" / "families" / "mistral_1", tmp_path / "windows")
    config = json.loads((tmp_path / "windows" / "config.json").read_text())
    config["max_position_embeddings"] = 400  # positions are rotary
    (tmp_path / "windows" / "config.json").write_text(json.dumps(config))
    page = 2 * 3 * 2 * 10 * 16 * 4  # keys and values, layers, heads, their width, tokens, bytes
    pages, drawn = 32, np.random.default_rng(SEED)
    few = daemon("--cpu.poison", "true", "--engine.kv.memory-bytes", str(pages * page),
                 "--engine.batch.max-batch-tokens", "64", "--engine.batch.max-batch-sequences", "8",
                 models=[("windows", tmp_path / "windows")])
    roomy = daemon("--cpu.poison", "true", models=[("windows", tmp_path / "windows")])
    rows = [drawn.integers(4, 41, drawn.integers(3, 40)).tolist() for _ in range(12)]
    parameters = {"model": "windows", "max_tokens": 150, "ignore_eos": True}
    with few.client() as short, roomy.client() as wide:
        for _ in range(2):  # in the second pass, some pages of the first are left
            assert same(infer(wide, ids_inputs(rows), **parameters),
                        infer(short, ids_inputs(rows), **parameters)), f"seed {SEED}"
    assert few.metric("sluice_kv_pages", state="held") == 0
    assert few.metric("sluice_kv_pages", state="idle") <= pages
    assert few.metric("sluice_kv_pages_evicted_total") > 0, "memory was never short"
