"""Tests the orders in which attention may read keys, which share their bits."""

import concurrent.futures
import subprocess

import pytest
from conftest import PATIENCE_S, SLUICE
from test_invariance import ask, make_requests, same

REQUESTS = 12


@pytest.mark.parametrize("variant", ["one_pass", "two_pass", "split:2", "split:auto"])
def test_every_variant_gives_the_same_bits_and_is_shown(daemon, demo, variant):
    server = daemon("--engine.attention.variant", variant, "--cpu.threads", "2")
    assert server.metric("sluice_attention_info", variant=variant) == 1
    models = subprocess.run([SLUICE, "models", "--server", server.grpc], capture_output=True,
                            text=True, timeout=PATIENCE_S)
    assert variant in models.stdout

    requests = list(make_requests())[:REQUESTS]
    wanted = ["output_ids", "logprobs", "logits", "prompt_logprobs"]
    with concurrent.futures.ThreadPoolExecutor(REQUESTS) as pool:
        answers = list(pool.map(lambda request: ask(server, request, wanted), requests))
    for request, answer in zip(requests, answers, strict=True):
        assert same(ask(demo, request, wanted), answer)


def test_a_variant_that_there_is_not_is_refused_with_those_that_there_are(daemon):
    with pytest.raises(AssertionError, match="split:N with N in"):
        daemon("--engine.attention.variant", "split:1")
