"""Tests the memory limits of the process, and attacks on its memory."""

import contextlib
import os
import re
import shutil
import subprocess
import threading

import grpc
import memory_cgroup
import numpy as np
import pytest
from always import await_balance
from conftest import DEMO, SANITIZED, SLUICED, free_port
from http2 import END_STREAM, INFER, INITIAL_WINDOW_SIZE, Connection, message
from infer import ids_inputs, infer, logits_message, tensor
from instruction_sets import needs
from limits import MIB, resident
from test_recommender import RECOMMENDER
from tiny_model import TinyModel
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException
from waiting import PATIENCE_S, wait_until

LIMIT = "--server.memory.limit-bytes"


def plan(server):
    """Returns the plan as {use: bytes}."""
    return {dict(labels)["use"]: value for (name, labels), value in server.metrics().items()
            if name == "sluice_memory_limit_bytes"}


def test_the_plan_is_exported_and_printed(daemon):
    server = daemon(LIMIT, "1GiB")
    lines = plan(server)
    limit = lines.pop("all")
    assert limit == 1 << 30
    assert lines["messages"] == limit // 4
    assert lines["unread_answers"] == limit // 8
    assert lines["queue"] == limit // 16
    assert lines["weights"] > 0 and lines["kv"] > 0 and lines["activations"] > 0
    assert sum(lines.values()) <= limit
    used = server.metric("sluice_memory_bytes", use="all")
    assert 0 < used < limit
    output = server.stop()
    printed = re.search(r"memory limits.*", output).group(0)
    for use in lines:
        assert f"{use} " in printed, printed


def test_models_that_start_together_share_a_small_memory(daemon):
    names = [f"model{index}" for index in range(5)]
    server = daemon(LIMIT, "1GiB", models=[(name, DEMO) for name in names])
    lines = plan(server)
    limit = lines.pop("all")
    assert lines["queue"] <= limit // 16
    assert sum(lines.values()) <= limit
    with server.client() as client:
        for name in names:
            answer = infer(client, ids_inputs([[65, 110]]), model=name, max_tokens=4)
            assert answer["output_ids"].shape == (1, 4)


def test_models_of_a_repository_share_a_small_memory(daemon, tmp_path):
    names = [f"model{index}" for index in range(6)]
    for name in names:
        TinyModel(tmp_path / name, seed=1)
    options = ["--model-repository", str(tmp_path), LIMIT, "1GiB", "--cpu.threads", "1"]
    checked = subprocess.run([SLUICED, *options, "--check"], capture_output=True, text=True,
                             timeout=PATIENCE_S, check=False)
    assert checked.returncode == 0 and "models: 6." in checked.stdout, checked
    server = daemon(*options, models=[])
    lines = plan(server)
    assert lines["queue"] <= lines.pop("all") // 16
    with server.client() as client:
        index = client.get_model_repository_index().models
    assert {model.name for model in index if model.state == "READY"} == set(names), index


@pytest.mark.parametrize("options, words", [
    (["--server.grpc.memory-quota-bytes", "500MiB"],
     ["messages 500.0 MiB (server.grpc.memory_quota_bytes)", "of 512.0 MiB"]),
    (["--engine.kv.memory-bytes", "400MiB"], ["engine.kv.memory_bytes", "queue 32.0 MiB"]),
], ids=["bounds_of_calls", "kv"])
def test_a_plan_that_does_not_fit_is_refused(options, words):
    run = subprocess.run(
        [SLUICED, "--server.grpc.address", f"127.0.0.1:{free_port()}", "--server.metrics.address",
         "", "--server.admin.address", "", "--model", f"recommender={RECOMMENDER}", LIMIT,
         "512MiB", *options],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert run.returncode == 1, run.stdout + run.stderr
    for word in words:
        assert word in run.stderr, run.stderr


def numbers(count):
    """Returns a message whose numbers take eight times their bytes once parsed."""
    built = service_pb2.ModelInferRequest(model_name="demo")
    values = built.inputs.add(name="input_ids", datatype="INT64", shape=[1, count])
    values.contents.int64_contents.extend([1] * count)
    return built.SerializeToString()


def text(size):
    built = service_pb2.ModelInferRequest(model_name="demo")
    values = built.inputs.add(name="text_input", datatype="BYTES", shape=[1, 1])
    values.contents.bytes_contents.append(b"a" * size)
    return built.SerializeToString()


def send_half(server):
    """Starts messages on one connection and never completes them."""
    with contextlib.suppress(OSError), Connection(server.grpc) as connection:
        for stream in range(1, 16, 2):
            connection.open(stream, INFER)
            connection.send(stream, message(b"x" * MIB, length=60 * MIB))
        connection.wait(lambda: False, 3)


def read_nothing(server, body):
    """Makes calls on one connection and reads no answer."""
    with (contextlib.suppress(OSError),
          Connection(server.grpc, [(INITIAL_WINDOW_SIZE, 0)]) as connection):
        for stream in range(1, 400, 2):
            connection.open(stream, INFER)
            connection.send(stream, message(body), END_STREAM)
        connection.wait(lambda: False, 3)


def send_metadata(server):
    """Starts calls with 7,000 bytes of metadata and sends no message."""
    with contextlib.suppress(OSError), Connection(server.grpc) as connection:
        for stream in range(1, 1000, 2):
            connection.open(stream, INFER, ("x-long", "x" * 7000))
        connection.wait(lambda: False, 3)


def generating(rows):
    """Returns a message whose rows fill the queue and the pages of the KV cache."""
    built = service_pb2.ModelInferRequest(model_name="demo")
    built.inputs.add(name="input_ids", datatype="INT32", shape=[rows, 128])
    built.raw_input_contents.append(bytes(rows * 128 * 4))
    built.parameters["max_tokens"].int64_param = 100
    return built.SerializeToString()


def call(server, body):
    """Makes concurrent calls and reads their answers."""
    with grpc.insecure_channel(server.grpc, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        calls = [channel.unary_unary(INFER).future(body, timeout=5) for _ in range(8)]
        for each in calls:
            each.exception()


def attack(server):
    """Sends the messages that take the most memory, from 30 threads at once."""
    answer, long_list, long_text = logits_message(1024), numbers(4 * MIB), text(16 * MIB)
    attacks = [(send_half,), (send_metadata,), (read_nothing, answer), (call, long_list),
               (call, long_text), (call, generating(256))]
    threads = [threading.Thread(target=each[0], args=(server, *each[1:])) for each in attacks * 5]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def refused(server):
    """Returns how often calls and connections were refused because a limit was reached."""
    reasons = "queue_full", "too_busy", "memory", "unread_answers"
    return (sum(server.metric("sluice_rejected_total", reason=reason) for reason in reasons)
            + server.metric("sluice_calls_refused_total")
            + server.metric("sluice_connections_refused_total"))


def serves_again(server):
    wait_until(lambda: server.metric("sluice_memory_overload") == 0, what="memory is short")
    await_balance(server)  # rows still in the queue would lengthen forecasts
    with server.client() as client:
        assert infer(client, ids_inputs([[1, 2]]), max_tokens=1)


def test_memory_stays_within_the_plan_under_attack(daemon):
    # Sanitizers need additional memory.
    server = daemon(LIMIT, "2GiB" if SANITIZED else "512MiB",
                    "--server.grpc.transfer-timeout", "5s")
    limit = plan(server)["all"]
    attack(server)
    # The unread answers would need several times their limit.
    assert refused(server) > 0
    if not SANITIZED:
        assert resident(server, "VmHWM") <= limit
    serves_again(server)


@needs(memory_cgroup.NEED)
@pytest.mark.parametrize("limit", [512 * MIB, 1024 * MIB], ids=["512MiB", "1GiB"])
def test_the_kernel_ends_no_daemon_that_follows_its_cgroup(daemon, limit):
    limit *= 4 if SANITIZED else 1
    with memory_cgroup.MemoryCgroup(limit) as cgroup:
        server = daemon("--server.grpc.transfer-timeout", "5s", before=cgroup.command())
        assert plan(server)["all"] == limit
        for _ in range(2):
            before = refused(server)
            attack(server)
            assert refused(server) > before
            serves_again(server)
        server.stop()
        assert cgroup.kills() == 0


@pytest.fixture
def recommender(tmp_path):
    """A copy of the model that a test may damage."""
    return shutil.copytree(RECOMMENDER, tmp_path / "recommender")


def scores(client):
    candidates = tensor("candidate_ids", np.array([[7, 9]], np.int32), "INT32")
    return infer(client, [*ids_inputs([[1, 2, 3]]), candidates], ["candidate_scores"],
                 "recommender")["candidate_scores"]


def test_truncated_mapped_file_is_named(daemon, recommender):
    server = daemon(models=[("recommender", recommender)])
    with server.client() as client:
        scores(client)
        os.truncate(recommender / "model.safetensors", 0)
        with pytest.raises(InferenceServerException):
            scores(client)
    output = server.await_end(-7)
    assert f"model recommender version 1, file {recommender}/model.safetensors" in output


def test_copied_file_may_be_truncated(daemon, recommender):
    server = daemon("--server.memory.copy-weights", "true", models=[("recommender", recommender)])
    size = os.path.getsize(recommender / "model.safetensors")
    assert server.metric("sluice_device_memory_bytes", state="copied") == size
    with server.client() as client:
        before = scores(client)
        os.truncate(recommender / "model.safetensors", 0)
        np.testing.assert_array_equal(scores(client), before)
