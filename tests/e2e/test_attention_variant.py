"""Tests that every order of reading keys in attention gives the same bits."""

import concurrent.futures
import subprocess

import numpy as np
import pytest
from conftest import PATIENCE_S, SLUICE, Daemon
from infer import ids_inputs, infer
from test_invariance import same
from tiny_model import VOCAB, TinyModel

# Attention sums 512 keys at a time, so these prompts need up to six sums.
POSITIONS = 2600
LENGTHS = [2590, 2048, 1537, 1100, 700, 513, 512, 511, 90, 3]
WANTED = ["output_ids", "logprobs", "logits", "prompt_logprobs"]
SEED = 20240611


def ask(server, prompt):
    """Returns the answer to a prompt, on a new connection."""
    with server.client() as client:
        return infer(client, ids_inputs([prompt]), WANTED, model="long", max_tokens=6)


@pytest.fixture(scope="module")
def long_model(tmp_path_factory):
    return TinyModel(tmp_path_factory.mktemp("attention") / "long", SEED, positions=POSITIONS)


@pytest.fixture(scope="module")
def prompts():
    random = np.random.default_rng(SEED)
    return [random.integers(0, VOCAB, length).tolist() for length in LENGTHS]


@pytest.fixture(scope="module")
def expected(long_model, prompts):
    """The answers to the prompts from a daemon with one thread, one prompt at a time."""
    with Daemon("--engine.attention.variant", "one_pass", "--cpu.threads", "1",
                models=[("long", long_model.directory)]) as server:
        answers = [ask(server, prompt) for prompt in prompts]
    assert all(np.isfinite(answer["logits"]).all() for answer in answers)
    return answers


@pytest.mark.parametrize("variant", ["one_pass", "two_pass", "split:2", "split:auto"])
def test_every_variant_gives_the_same_bits_and_is_reported(
        daemon, long_model, prompts, expected, variant):
    """With three threads, the two KV heads of a single sequence are worth splitting. With
    cpu.poison, memory that must not be read holds NaN. Prefix reuse is off, so prompts are computed
    twice."""
    server = daemon("--engine.attention.variant", variant, "--cpu.threads", "3",
                    "--cpu.poison", "true", "--engine.kv.prefix-reuse", "false",
                    models=[("long", long_model.directory)])
    assert server.metric("sluice_attention_info", variant=variant) == 1
    models = subprocess.run([SLUICE, "models", "--server", server.grpc], capture_output=True,
                            text=True, timeout=PATIENCE_S)
    assert variant in models.stdout

    alone = [ask(server, prompt) for prompt in prompts]
    batches = server.metric("sluice_batch_rows_count")
    rows = server.metric("sluice_batch_rows_sum")
    with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
        crowd = list(pool.map(lambda prompt: ask(server, prompt), prompts))
    batches = server.metric("sluice_batch_rows_count") - batches
    rows = server.metric("sluice_batch_rows_sum") - rows
    for answers, company in ((alone, "alone"), (crowd, "in a batch")):
        different = [length for length, answer, right in
                     zip(LENGTHS, answers, expected, strict=True) if not same(answer, right)]
        assert not different, f"prompts with {different} tokens differ {company}"
    assert rows > batches, "no step had several rows, so nothing was tested"


def test_unknown_variant_is_refused_and_lists_the_known_ones(daemon):
    with pytest.raises(AssertionError, match="split:N with N in"):
        daemon("--engine.attention.variant", "split:1")
