"""Tests bf16 and quantised profiles, and profiles that need missing instructions.

./test also runs this file under each cap in tests/support/instruction_sets.py.
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess

import numpy as np
import pytest
from conftest import ROOT, SLUICE, SLUICED
from instruction_sets import CAPS, has, needs
from test_invariance import ask, make_requests, same
from waiting import PATIENCE_S

NEEDS = {"cpu-avx512-bf16": "AVX-512 BF16", "cpu-amx-bf16": "AMX"}
REQUESTS = 24
WANTED = ["output_ids", "logprobs", "logits", "prompt_logprobs"]


def distance_of_invariant_answers(server, other):
    """Sends requests to `server` one at a time and then concurrently; the bits must be equal.

    Returns the largest difference of log-probabilities between `server` and `other`.
    """
    requests = list(make_requests())[:REQUESTS]
    alone = [ask(server, request, WANTED) for request in requests]
    with concurrent.futures.ThreadPoolExecutor(REQUESTS) as pool:
        crowd = list(pool.map(lambda request: ask(server, request, WANTED), requests))
    assert all(same(one, another) for one, another in zip(alone, crowd, strict=True))
    return max(
        np.nanmax(np.abs(ask(other, request, WANTED)["prompt_logprobs"]
                         - answer["prompt_logprobs"]))
        for request, answer in zip(requests, alone, strict=True)
        if len(request[0][0]) > 1
    )


@pytest.mark.parametrize("profile", NEEDS)
def test_bf16_profile_is_invariant_or_refused(daemon, demo, profile):
    if not has(NEEDS[profile]):
        with pytest.raises(
            AssertionError, match=f"'{profile}' needs instructions that this machine lacks"
        ):
            daemon("--cpu.profile", profile)
        return
    server = daemon("--cpu.profile", profile, "--cpu.poison", "true",
                    "--engine.batch.max-queue-delay", "5ms")
    assert server.metric("sluice_backend_info", profile=profile) == 1
    # The demo model is stored in bf16. Rounding the inputs too changes the answers slightly.
    assert 1e-4 < distance_of_invariant_answers(server, demo) < 0.5


def named_models(server):
    return subprocess.run([SLUICE, "models", "--server", server.grpc], capture_output=True,
                          text=True, timeout=PATIENCE_S, check=True).stdout


def test_default_profile_uses_the_stored_precision(daemon):
    server = daemon("--cpu.profile", "auto")
    # Intel's processors multiply in bf16 quickly only by AMX.
    intel = "GenuineIntel" in pathlib.Path("/proc/cpuinfo").read_text()
    stored = [profile for profile, name in NEEDS.items()
              if has(name) and not (intel and profile == "cpu-avx512-bf16")]
    names = named_models(server)
    assert any(profile in names for profile in stored) or not stored, names
    assert stored or "-f32" in names, names


def config_of_quantised_demo(folder, quantization):
    """Writes a configuration of the demo model and returns its path."""
    config = folder / "sluice.yaml"
    config.write_text(
        f"models:\n  - name: demo\n    path: {ROOT / 'models' / 'demo'}\n"
        f"    quantization: {quantization}\n")
    return str(config)


@pytest.mark.parametrize("quantization, suffix, most_moved",
                         [("int8", "-int8", 2), ("int4", "-int4-g64", 20)])
def test_quantised_model_is_invariant_and_shows_its_precision(daemon, demo, tmp_path, quantization,
                                                               suffix, most_moved):
    server = daemon("--config", config_of_quantised_demo(tmp_path, quantization), models=())
    assert 1e-4 < distance_of_invariant_answers(server, demo) < most_moved
    assert re.search(rf"^  profile +\S+{suffix}$", named_models(server), re.M)
    output = server.stop()
    assert suffix in next(line for line in output.splitlines() if "model ready" in line)


@needs("AVX-VNNI")
@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_quantised_answers_have_the_same_bits_by_avx_vnni_and_by_avx2(daemon, tmp_path,
                                                                      quantization):
    config = config_of_quantised_demo(tmp_path, quantization)
    requests = list(make_requests())[:REQUESTS]
    answers = []
    for cap in ("avx2", "avxvnni"):
        server = daemon("--config", config, "--cpu.profile", "cpu-avx2-f32", models=(),
                        variables={"SLUICE_TEST_ISA": cap})
        answers.append([ask(server, request, WANTED) for request in requests])
    assert all(same(one, another) for one, another in zip(*answers, strict=True))


def test_unknown_profile_is_refused_and_lists_the_known_ones(daemon):
    with pytest.raises(
        AssertionError, match="unknown numerics profile 'cpu-avx9'; known are auto, f32, bf16, cpu-"
    ):
        daemon("--cpu.profile", "cpu-avx9")


@pytest.mark.parametrize("cap, profile",
                         [("avx2", "cpu-avx512-f32"), ("avx512", "cpu-avx512-bf16")])
def test_a_profile_that_the_cap_hides_is_refused(daemon, cap, profile):
    with pytest.raises(
        AssertionError, match=f"'{profile}' needs instructions that this machine lacks or that "
                              f"SLUICE_TEST_ISA={cap} hides"
    ):
        daemon("--cpu.profile", profile, variables={"SLUICE_TEST_ISA": cap})


def test_a_capped_daemon_logs_the_cap_and_serves_avx2(daemon):
    server = daemon("--cpu.profile", "auto", variables={"SLUICE_TEST_ISA": "avx2"})
    assert server.metric("sluice_backend_info", profile="cpu-avx2-f32") == 1
    output = server.stop()
    assert "A TEST CAP IS ON" in output


def test_an_unknown_cap_is_refused():
    ended = subprocess.run(
        [SLUICED, "--model", f"demo={ROOT / 'models' / 'demo'}", "--server.grpc.address",
         "127.0.0.1:0", "--server.metrics.address", "127.0.0.1:0", "--server.admin.address="],
        env={**os.environ, "SLUICE_TEST_ISA": "avx51"}, capture_output=True, text=True,
        timeout=PATIENCE_S)
    assert ended.returncode == 2
    *others, last = filter(None, CAPS)
    expected = f"{', '.join(others)} or {last}"
    assert f"SLUICE_TEST_ISA: 'avx51' is unknown; expected {expected}" in ended.stderr
