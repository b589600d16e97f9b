"""The clients of a soak: good, bad, cancelling and reconnecting ones, each in a thread until it is
stopped.

Each client repeats one kind of call and checks how it ends. An unexpected end is a failure of the
soak.
"""

import contextlib
import random
import socket
import struct
import threading

import grpc
import numpy as np
import tritonclient.grpc as grpcclient
from infer import ids_inputs, infer, text_inputs
from streaming import Stream, joined
from test_invariance import same
from tritonclient.grpc import service_pb2

PROMPTS = ("And it came to pass", "In the beginning", "x", "The king said unto the people " * 4)
OWN = [("grpc.use_local_subchannel_pool", 1)]
METHOD = "/inference.GRPCInferenceService/ModelInfer"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


class Client:
    """Runs `turn` repeatedly. `calls` counts the turns that ended as expected."""

    pause_s = 0.0  # between two turns

    def __init__(self, server, seed):
        self.server = server
        self.random = random.Random(seed)
        self.calls = 0
        self.failure = None
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._run, name=type(self).__name__)

    def begin(self):
        """Prepares the client before its first turn."""

    def turn(self):
        raise NotImplementedError

    def _run(self):
        with contextlib.ExitStack() as self.open:
            try:
                self.begin()
                while not self.stopped.is_set():
                    self.turn()
                    self.calls += 1
                    self.stopped.wait(self.pause_s)
            except Exception as failure:  # reported in the soak's verdict
                self.failure = failure

    def connect(self):
        """Opens a separate connection, because by default all channels of a process share one."""
        return self.server.client(channel_args=OWN)


class Scorer(Client):
    """A good client: scores rows of all lengths over one connection. Equal requests must get equal
    bits.
    """

    def begin(self):
        self.client = self.open.enter_context(self.connect())
        draw = np.random.default_rng(self.random.getrandbits(32))
        self.requests = [[[256, *draw.integers(32, 127, draw.integers(0, 200))]
                          for _ in range(draw.integers(1, 4))] for _ in range(16)]
        self.answers = {}

    def turn(self):
        at = self.random.randrange(len(self.requests))
        answer = infer(self.client, ids_inputs(self.requests[at]), max_tokens=4)
        assert same(answer, self.answers.setdefault(at, answer)), "an answer changed"


class Streamer(Client):
    """A good client: opens streams and reads them to the end."""

    def begin(self):
        self.answers = {}

    def turn(self):
        prompt = self.random.choice(PROMPTS)
        with Stream(self.server) as stream:
            stream.send(text_inputs(prompt), max_tokens=16, temperature="0.8", seed=1)
            answer = joined(stream.answer())
        assert same(answer, self.answers.setdefault(prompt, answer)), "a stream changed"


class Reconnecting(Client):
    """A good client: opens a connection for each call."""

    def turn(self):
        with self.connect() as client:
            infer(client, text_inputs(self.random.choice(PROMPTS)), max_tokens=2)


class Raw(Client):
    """Sends arbitrary bytes through gRPC."""

    def begin(self):
        channel = self.open.enter_context(grpc.insecure_channel(self.server.grpc, OWN))
        self.call = channel.unary_unary(
            METHOD, request_serializer=bytes, response_deserializer=bytes
        )

    def expect(self, codes, request, **call):
        try:
            self.call(request, timeout=20, **call)
        except grpc.RpcError as error:
            assert error.code() in codes, f"{error.code()}: {error.details()}"
        else:
            assert not codes or grpc.StatusCode.OK in codes, "a bad request was accepted"


class Bad(Raw):
    """Sends garbage, unknown models, wrong shapes and parameters out of range."""

    pause_s = 0.02

    def garbage(self):
        return bytes(self.random.randrange(256) for _ in range(self.random.randrange(1, 4000)))

    def liar(self):
        message = service_pb2.ModelInferRequest(model_name="demo")
        message.inputs.add(
            name="input_ids", datatype="INT32", shape=[1, self.random.choice((-1, 5, 1 << 62))]
        )
        message.raw_input_contents.append(struct.pack("<2i", 1, 2))
        return message.SerializeToString()

    def stranger(self):
        return service_pb2.ModelInferRequest(model_name="../demo").SerializeToString()

    def excessive(self):
        message = service_pb2.ModelInferRequest(model_name="demo")
        message.inputs.add(name="text_input", datatype="BYTES", shape=[1, 1])
        message.raw_input_contents.append(struct.pack("<I", 1) + b"x")
        message.parameters["max_tokens"].int64_param = self.random.choice((-1, 1 << 62))
        return message.SerializeToString()

    def turn(self):
        make = self.random.choice((self.garbage, self.liar, self.stranger, self.excessive))
        self.expect({grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND}, make())


class Oversized(Raw):
    """Sends messages above the limit, and compressed ones."""

    pause_s = 2.0

    def turn(self):
        self.expect({grpc.StatusCode.RESOURCE_EXHAUSTED}, bytes(65 << 20))
        self.expect(
            {grpc.StatusCode.UNIMPLEMENTED}, bytes(1 << 20), compression=grpc.Compression.Gzip
        )


class Cancelling(Client):
    """Cancels its requests while they wait or run, or lets a short deadline pass."""

    pause_s = 0.01

    def begin(self):
        self.client = self.open.enter_context(self.connect())

    def cancel(self):
        ended = threading.Event()
        call = self.client.async_infer(
            "demo",
            text_inputs(self.random.choice(PROMPTS)),
            lambda result, error: ended.set(),
            parameters={"max_tokens": 100},
        )
        self.stopped.wait(self.random.uniform(0, 0.05))
        call.cancel()
        assert ended.wait(20), "a cancelled call did not end"

    def cancel_stream(self):
        stream = Stream(self.server)
        stream.send(text_inputs(PROMPTS[0]), max_tokens=100)
        if self.random.random() < 0.5:
            stream.next()
        stream.cancel()
        stream.client.close()

    def expire(self):
        try:
            self.client.infer("demo", text_inputs(PROMPTS[0]), parameters={"max_tokens": 100},
                              client_timeout=self.random.uniform(0.001, 0.03))
        except grpcclient.InferenceServerException as error:
            # A deadline that cannot be met is refused at once.
            assert any(code in str(error.status())
                       for code in ("DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED")), error

    def turn(self):
        self.random.choice((self.cancel, self.cancel_stream, self.expire))()


class Vandal(Client):
    """Opens connections that send nonsense or nothing, or that end with a reset."""

    pause_s = 0.05

    def turn(self):
        host, port = self.server.grpc.split(":")
        with (contextlib.suppress(ConnectionError),
              socket.create_connection((host, int(port)), timeout=10) as connection):
            connection.sendall(self.random.choice(
                (b"", PREFACE, PREFACE[:10], b"GET / HTTP/1.1\r\n\r\n",
                 PREFACE + bytes(9) + bytes(self.random.randrange(256) for _ in range(200)))))
            if self.random.random() < 0.5:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.stopped.wait(self.random.uniform(0, 0.2))


class Watcher(Client):
    """Requests the pages that Prometheus and a status page request."""

    pause_s = 1.0

    def turn(self):
        self.server.metrics()
        assert self.server.ready(), "not ready"


KINDS = (
    Scorer,
    Scorer,
    Streamer,
    Reconnecting,
    Bad,
    Oversized,
    Cancelling,
    Cancelling,
    Vandal,
    Watcher,
)
