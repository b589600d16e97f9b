"""Tests the bf16 profiles, and that processors without the instructions refuse them."""

import concurrent.futures
import pathlib

import numpy as np
import pytest
from test_invariance import ask, make_requests, same

FLAGS = pathlib.Path("/proc/cpuinfo").read_text().split()
NEEDS = {"cpu-avx512-bf16": "avx512_bf16", "cpu-amx-bf16": "amx_bf16"}
REQUESTS = 24


@pytest.mark.parametrize("profile", NEEDS)
def test_a_bf16_profile_serves_its_own_bits_or_is_refused(daemon, demo, profile):
    if NEEDS[profile] not in FLAGS:
        with pytest.raises(
            AssertionError, match=f"'{profile}' needs instructions that this machine lacks"
        ):
            daemon("--cpu.profile", profile)
        return
    server = daemon("--cpu.profile", profile, "--cpu.poison", "true",
                    "--engine.batch.max-queue-delay-us", "5ms")
    assert server.metric("sluice_backend_info", profile=profile) == 1
    requests = list(make_requests())[:REQUESTS]
    wanted = ["output_ids", "logprobs", "logits", "prompt_logprobs"]

    alone = [ask(server, request, wanted) for request in requests]
    with concurrent.futures.ThreadPoolExecutor(REQUESTS) as pool:
        crowd = list(pool.map(lambda request: ask(server, request, wanted), requests))
    assert all(same(one, other) for one, other in zip(alone, crowd, strict=True))

    # The demo model is stored in bf16. Rounding its inputs, too, changes the answers a little.
    moved = [
        np.nanmax(np.abs(ask(demo, request, wanted)["prompt_logprobs"] - answer["prompt_logprobs"]))
        for request, answer in zip(requests, alone, strict=True)
        if len(request[0][0]) > 1
    ]
    assert 1e-4 < max(moved) < 0.5


def test_an_unknown_profile_is_refused_with_the_known_ones(daemon):
    with pytest.raises(
        AssertionError, match="unknown numerics profile 'cpu-avx9'; known are auto, bf16, cpu-"
    ):
        daemon("--cpu.profile", "cpu-avx9")
