"""More than can be served is refused at once, and others are served meanwhile."""

import json
import subprocess

from always import undisturbed
from calls import Call, trailers, wait_until
from conftest import BUILD, SLOWER
from tritonclient.grpc import service_pb2

SLUICE_LOAD = BUILD / "loadtest" / "load" / "sluice-load"


def request_with(tokens, rows=1, **parameters):
    request = service_pb2.ModelInferRequest(model_name="demo")
    request.inputs.add(name="input_ids", datatype="INT32", shape=[rows, len(tokens) // rows])
    request.raw_input_contents.append(
        b"".join(token.to_bytes(4, "little") for token in tokens))
    for name, value in parameters.items():
        request.parameters[name].int64_param = value
    return request


def test_ten_times_the_capacity_in_an_open_loop(daemon, tmp_path):
    """Requests of the default level fill their share of the queue; the urgent level has the rest."""
    server = daemon("--engine.queue.max-requests", "40")
    out = tmp_path / "load.json"
    with undisturbed(server, priority=1):
        subprocess.run(
            [SLUICE_LOAD, "run", "--server", server.grpc, "--rate", "1500", "--lengths", "fixed:60",
             "--max-tokens", str(150 // SLOWER), "--parameter", "ignore_eos", "true", "--cap", "256",
             "--duration", "4", "--warm-up", "1", "--quiet", "--out", out], timeout=60)
    phase = json.loads(out.read_text())["phases"][0]
    outcomes = phase["outcomes"]
    assert outcomes["rejected"] > 10 * outcomes["ok"] > 0, outcomes
    assert outcomes["rejected"] + outcomes["ok"] == phase["calls"], outcomes
    assert server.metric("sluice_rejected_total", reason="queue_full") >= outcomes["rejected"]


def test_a_refusal_says_why_and_when_to_come_again(daemon):
    server = daemon("--engine.queue.max-requests", "1", "--engine.queue.max-tokens", "300",
                    faults="before_replay@hold:delay=1500*1")
    held = Call(server, "hold")
    wait_until(lambda: server.metric("sluice_requests_waiting")
               + server.metric("sluice_requests_running") > 0)
    status, trailer = trailers(server, request_with([256, 65], max_tokens=4))
    assert status.name == "RESOURCE_EXHAUSTED"
    assert trailer["sluice-reason"] == "queue_full"
    assert int(trailer["grpc-retry-pushback-ms"]) >= 1
    for too_much in (request_with([256] * 257, max_tokens=1),
                     request_with([256] * 200, rows=2, max_tokens=60)):
        status, trailer = trailers(server, too_much)
        assert status.name == "INVALID_ARGUMENT", "no retry helps"
        assert "grpc-retry-pushback-ms" not in trailer
    assert held.status() == "OK"
