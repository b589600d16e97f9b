"""Records calls as their callers see them, and checks the daemon's guarantees for each call.

A history is the set of all calls in a period. During any fault, these guarantees hold:
- Each call ends exactly once, within its timeout plus a grace period.
- An answer that ends OK has the same bytes as the answer of an undisturbed daemon.
- The data before any other end is a prefix of these bytes.
- A request whose answer has started ends OK, unless its caller cancelled it or the daemon was
  killed.
"""

import dataclasses
import itertools
import random
import threading
import time

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc
from waiting import PATIENCE_S

# A call must end at most this long after its timeout, on any machine.
GRACE_S = 60
OPTIONS = [("grpc.enable_retries", 0), ("grpc.initial_reconnect_backoff_ms", 20),
           ("grpc.max_reconnect_backoff_ms", 50), ("grpc.use_local_subchannel_pool", 1)]


@dataclasses.dataclass(frozen=True)
class Ask:
    """The parameters of a call. Without outputs, the answer is the generated tokens."""

    prompt: tuple
    max_tokens: int = 4
    outputs: tuple = ("output_ids",)
    timeout_s: float = PATIENCE_S

    def answer_key(self):
        return self.prompt, self.max_tokens, self.outputs

    def message(self, request_id):
        built = service_pb2.ModelInferRequest(model_name="demo", id=request_id)
        built.inputs.add(name="input_ids", datatype="INT32", shape=[1, len(self.prompt)])
        built.raw_input_contents.append(
            b"".join(token.to_bytes(4, "little") for token in self.prompt))
        built.parameters["max_tokens"].int64_param = self.max_tokens
        for name in self.outputs:
            built.outputs.add(name=name)
        return built


@dataclasses.dataclass
class Recorded:
    """A call and its result. `pieces` are the outputs of its responses, each as {name: bytes};
    `ends` are pairs of status name and time."""

    ask: Ask
    request_id: str
    began: float = dataclasses.field(default_factory=time.monotonic)
    pieces: list = dataclasses.field(default_factory=list)
    ends: list = dataclasses.field(default_factory=list)
    after_end: int = 0
    cancelled: bool = False

    def take(self, response):
        if self.ends:
            self.after_end += 1
        self.pieces.append({output.name: content for output, content in
                            zip(response.outputs, response.raw_output_contents, strict=True)})

    def end(self, status):
        self.ends.append((status, time.monotonic()))

    def joined(self):
        names = {name for piece in self.pieces for name in piece}
        return {name: b"".join(piece.get(name, b"") for piece in self.pieces) for name in names}


class Recorder:
    """Makes calls on a separate channel and records them."""

    _numbers = itertools.count()

    def __init__(self, address, calls):
        self._channel = grpc.insecure_channel(address, options=OPTIONS)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        self._calls = calls

    def close(self):
        self._channel.close()

    def _begin(self, ask):
        self._calls.append(Recorded(ask, f"call-{next(self._numbers)}"))
        return self._calls[-1]

    def unary(self, ask, cancel_after=None):
        """Makes a call and waits for its end; cancels it once the event `cancel_after` is set."""
        call = self._begin(ask)
        future = self._stub.ModelInfer.future(ask.message(call.request_id), timeout=ask.timeout_s)
        if cancel_after is not None:
            cancel_after.wait(PATIENCE_S)
            call.cancelled = future.cancel()
        try:
            call.take(future.result())
            call.end("OK")
        except grpc.FutureCancelledError:
            call.end("CANCELLED")
        except grpc.RpcError as error:
            call.end(error.code().name)

    def stream(self, asks):
        """Sends all requests on one stream and waits for its end."""
        calls = {}
        for ask in asks:
            call = self._begin(ask)
            calls[call.request_id] = call
        messages = iter([call.ask.message(call.request_id) for call in calls.values()])
        status = "OK"
        try:
            for answer in self._stub.ModelStreamInfer(
                    messages, timeout=max(ask.timeout_s for ask in asks)):
                response = answer.infer_response
                call = calls[response.id]
                if answer.error_message:
                    call.end(response.parameters["error_code"].string_param.upper())
                    continue
                call.take(response)
                if response.parameters["triton_final_response"].bool_param:
                    call.end("OK")
        except grpc.RpcError as error:
            status = error.code().name
        for call in calls.values():
            if not call.ends:
                # The stream ended OK, but this request was never answered.
                call.end("LOST" if status == "OK" else status)


def violations(calls, alone, allowed, killed=False):
    """Returns one sentence for each broken guarantee.

    `alone` maps Ask.answer_key() to the answers of undisturbed calls. `allowed` holds the statuses
    that the disturbance may cause. `killed` is true if the daemon was killed."""
    found = []
    for call in calls:
        def broken(what):
            found.append(f"{call.request_id} {what}: {call.ask}")

        if len(call.ends) != 1:
            broken(f"ended {len(call.ends)} times")
            continue
        if call.after_end:
            broken("got a response after its end")
        (status, ended), = call.ends
        waited = ended - call.began
        if waited > call.ask.timeout_s + GRACE_S:
            broken(f"ended {waited - call.ask.timeout_s:.0f} s after its timeout")
        wanted, got = alone[call.ask.answer_key()], call.joined()
        if status == "OK":
            if got != wanted:
                broken("differs from the undisturbed answer")
            continue
        if any(not wanted.get(name, b"").startswith(data) for name, data in got.items()):
            broken("is not a prefix of the undisturbed answer")
        if status == "CANCELLED" and call.cancelled:
            continue
        if status == "DEADLINE_EXCEEDED" and call.ask.timeout_s < PATIENCE_S:
            continue
        if status not in allowed:
            broken(f"ended {status}")
        if call.pieces and not killed:
            broken(f"ended {status} after its first response")
    return found


def answers_alone(address, asks):
    """Returns the undisturbed answers for `violations`. Makes the calls one after another."""
    calls = []
    recorder = Recorder(address, calls)
    for ask in asks:
        recorder.unary(dataclasses.replace(ask, timeout_s=PATIENCE_S))
    recorder.close()
    for call in calls:
        assert call.ends[0][0] == "OK", call
    return {call.ask.answer_key(): call.joined() for call in calls}


class Load:
    """Callers that make random calls until stop(), or until each has made `most` calls."""

    def __init__(self, address, draw, asks, callers=3, most=None):
        self.calls = []
        self._stop = threading.Event()
        self._recorders = [Recorder(address, self.calls) for _ in range(callers)]
        self._threads = [
            threading.Thread(target=self._run, args=(recorder, draw.getrandbits(64), asks, most))
            for recorder in self._recorders
        ]

    def _run(self, recorder, seed, asks, most):
        draw = random.Random(seed)
        left = most if most is not None else 1 << 30
        while left > 0 and not self._stop.is_set():
            if draw.random() < 0.5:
                recorder.unary(draw.choice(asks))
                left -= 1
            else:
                count = min(left, draw.randint(1, 4))
                recorder.stream([draw.choice(asks) for _ in range(count)])
                left -= count

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def stop(self):
        self._stop.set()

    def join(self):
        for thread in self._threads:
            thread.join(2 * PATIENCE_S)
            assert not thread.is_alive(), "a call never ended"

    def __exit__(self, *_):
        self.stop()
        self.join()
        for recorder in self._recorders:
            recorder.close()
