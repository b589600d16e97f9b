"""Records calls while a daemon is disturbed, and checks its guarantees (histories.py).

For a long run, use `--histories 1000`. `--first-seed` reproduces a run.
"""

import collections
import copy
import dataclasses
import random
import signal
import threading

import grpc
import pytest
from conftest import DEMO
from histories import Ask, Load, Recorder, answers_alone, violations
from tritonclient.grpc import service_pb2, service_pb2_grpc
from waiting import PATIENCE_S, wait_until

QUEUE = 6  # the most queued requests; more are refused
REFUSED = {"OK", "RESOURCE_EXHAUSTED"}


def drawn_asks(draw, count=24):
    asks = [Ask((256, 65, 110, 100), 12)]
    for _ in range(count):
        prompt = (256, *(draw.randrange(256) for _ in range(draw.randint(0, 40))))
        outputs = draw.choice([("output_ids",), ("output_ids", "logprobs"), ("logits",),
                               ("prompt_logprobs", "output_ids")])
        tokens = 1 if outputs == ("logits",) else draw.choice([1, 2, 4, 12])
        asks.append(Ask(prompt, tokens, outputs))
    return asks


class Served:
    """A daemon with its own configuration, which is restarted after it has ended."""

    def __init__(self, start, folder):
        self._start = start
        self._config = folder / "sluice.yaml"
        self.rows = 4096
        self.write()
        self.daemon = None

    def write(self):
        self._config.write_text(
            f"models:\n  - {{name: demo, path: {DEMO}}}\n"
            f"server: {{grpc: {{max_rows: {self.rows}}}, lifecycle: {{drain_delay: 0}}}}\n"
            f"engine:\n  queue: {{max_requests: {QUEUE}}}\n"
            "  batch: {max_batch_tokens: 1024, max_batch_sequences: 4}\n")

    def running(self):
        if self.daemon is None or self.daemon.process.poll() is not None:
            self.daemon = self._start("--config", str(self._config), models=())
        return self.daemon


def kill(served, draw):
    served.daemon.kill()


def drain(served, draw):
    served.daemon.stop()


def reload(served, draw):
    served.rows = draw.randint(1024, 4096)
    served.write()
    served.daemon.process.send_signal(signal.SIGHUP)


def exchange(served, draw):
    """Reloads the model. Requests in progress finish with the old copy."""
    with grpc.insecure_channel(served.daemon.admin) as channel:
        service_pb2_grpc.GRPCInferenceServiceStub(channel).RepositoryModelLoad(
            service_pb2.RepositoryModelLoadRequest(model_name="demo"), timeout=PATIENCE_S)


def overload(served, draw):
    """Makes calls from more callers than the queue has places."""
    with Load(served.daemon.grpc, draw, served.asks, callers=3 * QUEUE, most=2) as load:
        load.join()
    assert not violations(load.calls, served.alone, REFUSED)


def give_up(served, draw):
    """Cancels a call; another call's timeout passes in the queue."""
    calls, event = [], threading.Event()
    recorder = Recorder(served.daemon.grpc, calls)
    slow = served.asks[0]
    cancelling = threading.Thread(target=recorder.unary, args=(slow, event))
    cancelling.start()
    event.set()
    recorder.unary(dataclasses.replace(slow, timeout_s=draw.choice([0.001, 0.003, 0.01])))
    cancelling.join()
    recorder.close()
    assert not violations(calls, served.alone, REFUSED)


# Each disturbance with the statuses that it may cause, and its weight in the random choice. After
# a kill or drain, the daemon is restarted. A drain closes connections, and gRPC cancels calls that
# it has not read.
DISTURBANCES = {
    kill: (REFUSED | {"UNAVAILABLE"}, 1),
    drain: (REFUSED | {"UNAVAILABLE", "CANCELLED"}, 1),
    reload: (REFUSED, 6),
    exchange: (REFUSED, 3),
    overload: (REFUSED, 2),
    give_up: (REFUSED, 3),
}


def history(served, draw, disturb, seed):
    """Runs one history and returns its calls."""
    running = served.running()
    with Load(running.grpc, draw, served.asks, callers=4, most=draw.randint(1, 5)) as load:
        begun = draw.randint(0, 4)
        wait_until(lambda: len(load.calls) >= begun)
        disturb(served, draw)
        load.join()
    found = violations(load.calls, served.alone, DISTURBANCES[disturb][0], disturb is kill)
    assert not found, "\n".join([f"--first-seed {seed}, {disturb.__name__}", *found])
    return load.calls


def test_disturbed_daemon_keeps_every_guarantee(daemon, tmp_path, request, first_seed):
    served = Served(daemon, tmp_path)
    served.asks = drawn_asks(random.Random(first_seed))
    served.alone = answers_alone(served.running().grpc, served.asks)
    kinds, weights = zip(*((kind, weight) for kind, (_, weight) in DISTURBANCES.items()))
    counted = collections.Counter()
    for seed in range(first_seed, first_seed + request.config.getoption("--histories")):
        draw = random.Random(seed)
        (disturb,) = draw.choices(kinds, weights)
        calls = history(served, draw, disturb, seed)
        counted[disturb.__name__] += 1
        counted.update(call.ends[0][0] for call in calls)
    print(dict(counted))
    served.running()
    served.daemon.stop()


# Changes to an undisturbed history. The checker must detect each of them.
def ended_twice(call):
    call.end("OK")


def never_ended(call):
    call.ends.clear()


def changed_bit(call):
    name, data = next(iter(call.pieces[0].items()))
    call.pieces[0][name] = bytes([data[0] ^ 1]) + data[1:]


def lost_byte(call):
    piece, name = next((piece, name) for piece in reversed(call.pieces)
                       for name, data in piece.items() if data)
    piece[name] = piece[name][:-1]


def lost_output(call):
    call.pieces[0].popitem()


def answered_after_its_end(call):
    call.after_end = 1


def ended_late(call):
    (status, ended), = call.ends
    call.ends = [(status, ended + call.ask.timeout_s + 1000)]


def lost_after_it_began(call):
    call.ends = [("UNAVAILABLE", call.ends[0][1])]


def wrong_beginning(call):
    changed_bit(call)
    lost_after_it_began(call)


def odd_status(call):
    call.pieces.clear()
    call.ends = [("INTERNAL", call.ends[0][1])]


def gave_up_by_itself(call):
    call.pieces.clear()
    call.ends = [("CANCELLED", call.ends[0][1])]


def expired_without_a_deadline(call):
    call.pieces.clear()
    call.ends = [("DEADLINE_EXCEEDED", call.ends[0][1])]


@pytest.fixture(scope="module")
def quiet_history(demo):
    draw = random.Random(1)
    asks = drawn_asks(draw)
    alone = answers_alone(demo.grpc, asks)
    with Load(demo.grpc, draw, asks, most=8) as load:
        load.join()
    assert not violations(load.calls, alone, {"OK"})
    return load.calls, alone


@pytest.mark.parametrize("plant", [
    ended_twice, never_ended, changed_bit, lost_byte, lost_output, answered_after_its_end,
    ended_late, lost_after_it_began, wrong_beginning, odd_status, gave_up_by_itself,
    expired_without_a_deadline,
], ids=lambda plant: plant.__name__)
def test_checker_finds_broken_guarantees(quiet_history, plant):
    calls, alone = quiet_history
    for index in (0, len(calls) // 2, len(calls) - 1):
        planted = copy.deepcopy(calls)
        plant(planted[index])
        found = violations(planted, alone, REFUSED | {"UNAVAILABLE"})
        assert found and all(planted[index].request_id in each for each in found)


def test_checker_accepts_effects_of_a_kill(quiet_history):
    calls, alone = copy.deepcopy(quiet_history)
    lost_after_it_began(calls[0])
    assert not violations(calls, alone, {"OK", "UNAVAILABLE"}, killed=True)
