"""Tests that failing requests, callers and devices do not affect other requests."""

import json
import os
import subprocess
import urllib.request

import pytest
import tritonclient.grpc as grpcclient
from always import await_balance, undisturbed
from calls import POISON, Call, poisonous_model, trailers
from conftest import DEMO, SLUICED
from infer import ids_inputs, infer, text_inputs
from test_invariance import same
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException
from waiting import PATIENCE_S, pause, wait_until

TEXTS = [
    text_inputs(f"And it came to pass in the {day} day") for day in ("first", "second", "third")
]


def hold_back(server, held_step, request_id="hold"):
    """Sends a request whose step stops at a gate; later requests queue and then run together."""
    held = Call(server, request_id)
    held_step.await_met()
    return held


def await_unended(server, requests):
    """Waits until `requests` requests are waiting or running; none ends while a step is held."""
    wait_until(
        lambda: server.metric("sluice_requests_waiting") + server.metric("sluice_requests_running")
        >= requests
    )


BYSTANDER = 1  # The waiting or running request of `undisturbed`.
HELD = 1


@pytest.mark.parametrize("value", ["nan", "NaN", "inf", "-inf", "1e999"])
def test_a_parameter_that_is_not_finite_is_invalid(demo, value):
    with undisturbed(demo), demo.client() as client:
        for name in ("temperature", "top_p", "repetition_penalty"):
            with pytest.raises(InferenceServerException) as refused:
                infer(client, TEXTS[0], **{name: value})
            assert refused.value.status() == "StatusCode.INVALID_ARGUMENT"
            assert name in refused.value.message()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_is_invalid(demo, value):
    request = service_pb2.ModelInferRequest(model_name="demo")
    for each in TEXTS[0]:
        request.inputs.append(each._get_tensor())
        request.raw_input_contents.append(each._get_content())
    request.parameters["temperature"].double_param = value
    status, trailer = trailers(demo, request)
    assert status.name == "INVALID_ARGUMENT"
    assert trailer["sluice-reason"] == "parameter"


def test_only_the_request_with_non_finite_logits_fails(daemon, gate, tmp_path):
    held_step = gate("step")
    server = daemon(models=[("demo", poisonous_model(tmp_path / "model"))],
                    faults=f"before_replay@hold:{held_step}*1")
    with server.client() as client:
        alone = [infer(client, text, max_tokens=8) for text in TEXTS]
    with undisturbed(server):
        batches = server.metric("sluice_batch_rows_count")
        held = hold_back(server, held_step)
        poisoned = Call(server, inputs=ids_inputs([[256, 65, POISON, 66]]), max_tokens=8)
        half_poisoned = Call(server, inputs=ids_inputs([[256, 65], [256, POISON]]), max_tokens=8)
        mates = [Call(server, inputs=text, max_tokens=8) for text in TEXTS]
        await_unended(server, HELD + 2 + len(mates) + BYSTANDER)
        held_step.open()
        for failing in (poisoned, half_poisoned):
            with pytest.raises(InferenceServerException) as failed:
                failing.end()
            assert failed.value.status() == "StatusCode.INTERNAL"
            assert "not finite" in failed.value.message()
        assert [same(mate.end(), wanted) for mate, wanted in zip(mates, alone)] == [True] * 3
        held.end()
        assert server.metric("sluice_batch_rows_count") > batches
    assert server.metric("sluice_requests_total", code="INTERNAL") == 2


def test_a_request_expires_in_the_queue(daemon, gate):
    held_step = gate("step")
    server = daemon(faults=f"before_replay@hold:{held_step}*1")
    with undisturbed(server):
        held = hold_back(server, held_step)
        hasty = [Call(server, timeout=2_000_000) for _ in range(5)]
        await_unended(server, HELD + len(hasty) + BYSTANDER)
        pause(2.1)  # Longer than the rest of each timeout.
        held_step.open()
        assert [each.status() for each in hasty] == ["DEADLINE_EXCEEDED"] * 5
        held.end()
    # The client's reset may overtake the daemon's own timer.
    missed = server.metric("sluice_deadline_missed_total", stage="queue")
    assert missed > 0
    assert missed + server.metric("sluice_requests_total", code="CANCELLED") == 5
    assert server.metric("sluice_deadline_missed_total", stage="run") == 0


def test_cancellation_in_any_state_affects_no_other_call(daemon, gate):
    points = ("admit", "queue", "before_replay", "replay", "deliver")
    states = {point: gate(point) for point in points}
    held_step, generated = gate("step"), gate("generated")
    # After its gate the victim runs for seconds, so the cancellation arrives in time.
    slowly = "delay=20"
    server = daemon(
        faults=";".join(
            [f"{point}@{point}:{states[point]}*1;deliver@{point}:{slowly}" for point in points]
            + [
                f"before_replay@hold:{held_step}*1",
                f"deliver@generating:{generated}*1;deliver@generating:{slowly}",
            ]
        )
    )
    with server.client() as client:
        alone = [infer(client, text, max_tokens=20) for text in TEXTS]
    with undisturbed(server):
        for point in points:
            victim = Call(server, point, max_tokens=150, ignore_eos=True)
            states[point].await_met()
            mates = [Call(server, inputs=text, max_tokens=20) for text in TEXTS]
            victim.cancel()
            assert victim.status() == "CANCELLED", point
            states[point].open()
            assert all(same(mate.end(), wanted) for mate, wanted in zip(mates, alone)), point
        held = hold_back(server, held_step)
        waiting = Call(server, max_tokens=150)
        await_unended(server, HELD + 1 + BYSTANDER)
        waiting.cancel()
        assert waiting.status() == "CANCELLED"
        held_step.open()
        held.end()
        generating = Call(server, "generating", max_tokens=150, ignore_eos=True)
        generated.await_met()
        generating.cancel()
        assert generating.status() == "CANCELLED"
        generated.open()
        wait_until(
            lambda: server.metric("sluice_requests_total", code="CANCELLED") == len(points) + 2
        )


def test_step_is_split_if_memory_is_short(daemon, gate):
    held_step = gate("step")
    server = daemon(faults="replay@many:fail=resource_exhausted*2;"
                           f"replay@large:fail=resource_exhausted;before_replay@hold:{held_step}*1")
    rows = [[256, 65 + row] for row in range(8)]
    with server.client() as client:
        alone = [infer(client, text, max_tokens=8) for text in TEXTS]
        many_alone = infer(client, ids_inputs(rows), max_tokens=4)
    with undisturbed(server):
        assert same(Call(server, "many", ids_inputs(rows)).end(), many_alone)
        held = hold_back(server, held_step)
        large = Call(server, "large")
        mates = [Call(server, inputs=text, max_tokens=8) for text in TEXTS]
        await_unended(server, HELD + 1 + len(mates) + BYSTANDER)
        held_step.open()
        with pytest.raises(InferenceServerException) as failed:
            large.end()
        assert failed.value.status() == "StatusCode.RESOURCE_EXHAUSTED"
        assert "memory" in failed.value.message()
        assert all(same(mate.end(), wanted) for mate, wanted in zip(mates, alone))
        held.end()
    assert server.metric("sluice_backend_errors_total", kind="resource_exhausted") >= 4


@pytest.mark.parametrize("fault, message", [("allocate:fail=resource_exhausted", "a test's fault"),
                                            ("load:fail=internal", "a test's fault"),
                                            ("replay:nan", "SLUICE_TEST_FAULTS")])
def test_a_failure_at_start_ends_the_daemon(fault, message):
    ended = subprocess.run(
        [
            SLUICED,
            "--model",
            f"demo={DEMO}",
            "--server.grpc.address",
            "127.0.0.1:0",
            "--server.metrics.address",
            "127.0.0.1:0",
            "--server.admin.address=",
        ],
        env={**os.environ, "SLUICE_TEST_FAULTS": fault},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert ended.returncode in (1, 2)
    assert message in ended.stderr
    assert "ready" not in ended.stdout


def test_daemon_is_not_ready_after_repeated_device_failures(daemon):
    server = daemon("--engine.watchdog.failed-steps", "3", faults="replay@bad:fail=internal*3")
    for _ in range(3):
        assert server.ready()
        assert Call(server, "bad").status() == "INTERNAL"
    wait_until(lambda: not server.ready())
    assert server.live()
    assert Call(server).status() == "OK"
    wait_until(server.ready)
    await_balance(server)


def test_a_failing_model_can_be_loaded_again_or_unloaded(daemon):
    server = daemon("--engine.watchdog.failed-steps", "2", models=(("demo", DEMO), ("b", DEMO)),
                    faults="replay@bad:fail=internal*4")

    def fail():
        for _ in range(2):
            assert Call(server, "bad").status() == "INTERNAL"
        wait_until(lambda: not server.ready())
        address = f"http://{server.http}/status.json"
        with urllib.request.urlopen(address, timeout=PATIENCE_S) as page:
            assert json.load(page)["daemon"]["phase"] == "failing"

    with grpcclient.InferenceServerClient(server.admin) as admin:
        fail()
        admin.load_model("demo")
        wait_until(server.ready)
        fail()
        admin.unload_model("demo")
        wait_until(server.ready)
    await_balance(server)


def test_a_lost_device_ends_the_daemon(daemon):
    server = daemon("--engine.watchdog.grace", "10s",
                    faults="replay@lost:fail=unavailable;replay@after:fail=unavailable")
    assert Call(server).status() == "OK"
    lost = Call(server, "lost")
    assert lost.status() == "UNAVAILABLE"
    wait_until(lambda: not server.live())
    assert not server.ready()
    assert Call(server, "after").status() == "UNAVAILABLE"
    await_balance(server)
    assert server.metric("sluice_backend_errors_total", kind="unavailable") >= 1
    output = server.await_end(70)
    assert "lost the device" in output


def test_a_device_that_hangs_ends_the_daemon_after_its_requests(daemon):
    server = daemon("--engine.watchdog.hang", "3s", "--engine.watchdog.grace", "10s",
                    faults="replay@hang:hang*1")
    with server.client() as client:
        infer(client, TEXTS[0], max_tokens=8)
    hung = Call(server, "hang")
    wait_until(lambda: server.metric("sluice_requests_running") > 0)
    waiting = [Call(server, inputs=text) for text in TEXTS]
    assert [each.status() for each in (hung, *waiting)] == ["UNAVAILABLE"] * 4
    assert not server.ready()
    assert not server.live()
    assert Call(server).status() == "UNAVAILABLE", "it accepts no request that it cannot run"
    await_balance(server)
    assert server.metric("sluice_backend_errors_total", kind="hang") == 1
    output = server.await_end(70)
    assert "hung" in output
