"""Tests that an overloaded daemon refuses excess requests and answers the rest."""

import json
import subprocess
import time

from always import undisturbed
from calls import Call, trailers
from conftest import BUILD
from tritonclient.grpc import service_pb2
from waiting import PATIENCE_S

SLUICE_LOAD = BUILD / "loadtest" / "load" / "sluice-load"


def request_with(tokens, rows=1, **parameters):
    request = service_pb2.ModelInferRequest(model_name="demo")
    request.inputs.add(name="input_ids", datatype="INT32", shape=[rows, len(tokens) // rows])
    request.raw_input_contents.append(
        b"".join(token.to_bytes(4, "little") for token in tokens))
    for name, value in parameters.items():
        request.parameters[name].int64_param = value
    return request


STEP_MS, TOKENS, PLACES = 50, 20, 40
# The most requests per second on any machine: each request holds a place for TOKENS steps of at
# least STEP_MS.
CAPACITY = PLACES / (TOKENS * STEP_MS / 1000)
MEASURED_S = 4


def test_ten_times_the_capacity_is_refused_as_overload(daemon, tmp_path):
    """Each step takes at least STEP_MS, which limits the capacity on any machine.

    Calls beyond the capacity are refused as overload, and all others are answered. Requests of the
    default level fill their share of the queue; the rest is reserved for the urgent level."""
    server = daemon(
        "--engine.queue.max-requests", str(PLACES), faults=f"before_replay:delay={STEP_MS}"
    )
    out = tmp_path / "load.json"
    began = time.monotonic()
    with undisturbed(server, priority=1):
        subprocess.run(
            [
                SLUICE_LOAD,
                "run",
                "--server",
                server.grpc,
                "--rate",
                str(10 * CAPACITY),
                "--arrivals",
                "constant",
                "--lengths",
                "fixed:60",
                "--max-tokens",
                str(TOKENS),
                "--parameter",
                "ignore_eos",
                "true",
                "--cap",
                "256",
                "--duration",
                str(MEASURED_S),
                "--warm-up",
                "1",
                "--quiet",
                "--out",
                out,
            ],
            timeout=4 * PATIENCE_S,
        )
    took = time.monotonic() - began
    phase = json.loads(out.read_text())["phases"][0]
    outcomes = phase["outcomes"]
    assert phase["calls"] == 10 * CAPACITY * MEASURED_S, outcomes
    assert outcomes["rejected"] + outcomes["ok"] == phase["calls"], outcomes
    # A place becomes free only when its request has ended.
    assert 0 < outcomes["ok"] <= CAPACITY * took + PLACES, outcomes
    assert outcomes["rejected"] > 0, outcomes
    assert server.metric("sluice_rejected_total", reason="queue_full") >= outcomes["rejected"]


def test_a_refusal_has_a_reason_and_a_retry_delay(daemon, gate):
    held_step = gate("step")
    server = daemon("--engine.queue.max-requests", "1", "--engine.queue.max-tokens", "300",
                    faults=f"before_replay@hold:{held_step}*1")
    held = Call(server, "hold")
    held_step.await_met()
    too_much = (request_with([256] * 257, max_tokens=1),
                request_with([256] * 200, rows=2, max_tokens=60))
    for request in too_much:
        status, trailer = trailers(server, request)
        assert status.name == "INVALID_ARGUMENT", "no retry helps"
        assert "grpc-retry-pushback-ms" not in trailer
    # After the first refusal, all further requests are refused before they are read.
    for request in (request_with([256, 65], max_tokens=4), *too_much):
        status, trailer = trailers(server, request)
        assert status.name == "RESOURCE_EXHAUSTED"
        assert trailer["sluice-reason"] == "queue_full"
        assert int(trailer["grpc-retry-pushback-ms"]) >= 1
    held_step.open()
    assert held.status() == "OK"
    for request in too_much:
        assert trailers(server, request)[0].name == "INVALID_ARGUMENT"
