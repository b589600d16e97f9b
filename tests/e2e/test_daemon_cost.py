"""Tests that the daemon's work and memory for a message are bounded by the bytes of the message.

The messages are drawn to be as expensive as possible for each of their bytes. The models are tiny,
so that steps take little time: the rest is the work of gRPC and of the handlers.
"""

import json
import random
import struct
import time

import grpc
import pytest
from always import await_balance
from conftest import SLOWER, Daemon
from http2 import INFER
from limits import MIB, grown, resident_before
from tiny_model import lay
from tritonclient.grpc import service_pb2
from waiting import PATIENCE_S

SIZE = 1 << 20  # about the bytes of a message
DRAWS = 25
# The positions of the models for one long text, and for many texts: the steps of the model then
# take little time.
LONG, SHORT = 1024, 64
# The most that a message may take: units of time for SIZE bytes (see unit_s), and bytes of memory
# for each of its bytes and for all messages together.
MOST_UNITS = 60
MOST_MEMORY = 24
BASE = 16 * MIB
TOKENIZERS = ("byte", "bert_uncased", "bert_cased", "llama3", "gpt2", "llama2", "xlm", "albert",
              "clip", "split_isolated")
MODELS = (*TOKENIZERS, "labels")
LONG_MODELS = ("labels", *(f"long_{name}" for name in TOKENIZERS))
# Statuses that a caller can cause. UNKNOWN and INTERNAL mean that the daemon failed.
ALLOWED = {"OK", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "NOT_FOUND", "UNIMPLEMENTED"}
# Texts whose repetition is expensive for some part of some tokenizer.
PIECES = ("!", "a", " ", "\n", "0", "\u00e9", "e\u0301", "\u4e2d", "\U0001f600", "\u0130", "[MASK]",
          "<s>", "'s", "ab", "\u2028", "\t", "_", "A", "\u1e9b\u0323", "\ufdfa", "\x00", "\ufffd",
          "\u0301\u0323")
PARAMETERS = ("logit_bias", "allowed_token_ids", "stop", "stop_token_ids", "spans", "prediction",
              "instruction", "prompt_name", "unknown", "max_tokens")
JSON_PIECES = ("[", "{", '"', "\\", "1,", '"1":', "[1],", "[[0,1]],", "null,", "{}", " ", '"a",')


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    models = [(name, lay(folder / name, name, SHORT)) for name in TOKENIZERS]
    models += [(f"long_{name}", lay(folder / f"long_{name}", name, LONG)) for name in TOKENIZERS]
    models.append(("labels", lay(folder / "labels", "byte", SHORT, classifier={
        "labels": 3, "pooling": "cls", "pooler": "tanh"})))
    with Daemon("--server.memory.limit-bytes", "4GiB", models=models) as daemon:
        yield daemon


def text_of(draw, size):
    """Returns about `size` bytes of text: a short unit again and again, or a mix of all pieces."""
    if draw.random() < 0.8:
        unit = "".join(draw.choices(PIECES, k=draw.choice((1, 1, 2, 5))))
        return (unit * (size // len(unit.encode()) + 1)).encode()[:size]
    return "".join(draw.choices(PIECES, k=size // 2)).encode()[:size]


def raw_fields(draw, model):
    """Returns a message of many fields, some of which no message type has."""
    if draw.random() < 0.3:
        tag = bytes([draw.choice((0x0a, 0x1a, 0x22, 0x2a, 0x32, 0x3a, 0x7a))])
        count = draw.choice((1, 100, 1500))
        size = SIZE // count
        length = bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14])
        return (tag + length + b"\x0a" * size) * count
    unit = b"".join(draw.choice((b"\x2a\x00", b"\x32\x00", b"\x22\x00", b"\x78\x01", b"\x3a\x00",
                                 b"\x2a\x02\x2a\x00", b"\x0a\x00", b"\x22\x02\x12\x00",
                                 b"\x3a\x04\x00\x00\x00\x00", b"\x2a\x03\x1a\x01\x01"))
                    for _ in range(draw.randrange(1, 4)))
    return unit * (SIZE // len(unit))


def typed_values(draw, model):
    """Returns a message with a tensor of small typed values."""
    built = service_pb2.ModelInferRequest(model_name=model)
    count = SIZE // 2
    kind = draw.choice(("INT64", "INT64", "INT32", "INT32", "BYTES", "FP32"))
    rows = draw.choice((1, 64, 1024))
    name = "text_input" if kind == "BYTES" else "input_ids"
    shape = [count, 1] if kind == "BYTES" else [rows, count // rows]
    values = built.inputs.add(name=name, datatype=kind, shape=shape)
    if kind == "INT64":
        values.contents.int64_contents.extend([1] * count)
    elif kind == "INT32":
        values.contents.int_contents.extend([1] * count)
    elif kind == "FP32":
        values.contents.fp32_contents.extend([1] * (count // 2))
    else:
        values.contents.bytes_contents.extend([draw.choice((b"", b"a"))] * count)
    built.parameters["truncate"].string_param = draw.choice(("left", "right"))
    return built.SerializeToString()


def raw_values(draw, model):
    """Returns a message with ids, candidates or exclusions as raw contents."""
    built = service_pb2.ModelInferRequest(model_name=model)
    rows = draw.choice((1, 16, 70, 1000))
    names = ["input_ids", *draw.choice(((), ("candidate_ids",), ("exclude_ids",),
                                        ("candidate_ids", "exclude_ids"), ("input_lengths",)))]
    for name in names:
        most = {"input_ids": 1 << 20, "input_lengths": 1}.get(name, 4096)
        columns = min(most, max(1, SIZE // 4 // rows // len(names)))
        built.inputs.add(name=name, datatype="INT32", shape=[rows, columns])
        value = draw.choice((-1, 1, 7)) if most == 4096 else 1
        built.raw_input_contents.append(struct.pack("<i", value) * (rows * columns))
    built.parameters["max_tokens"].int64_param = 1
    built.parameters["truncate"].string_param = draw.choice(("left", "right"))
    return built.SerializeToString()


def add_texts(built, name, texts):
    tensor = built.inputs.add(name=name, datatype="BYTES", shape=[len(texts), 1])
    tensor.contents.bytes_contents.extend(texts)


def one_text(draw, model):
    """Returns a message with a long text, which may be cut or read in windows."""
    built = service_pb2.ModelInferRequest(model_name=model)
    size = draw.choice((SIZE // 4, SIZE // 4 - 4096, 16_000))
    add_texts(built, "text_input", [text_of(draw, size)])
    built.parameters["max_tokens"].int64_param = draw.choice((0, 1))
    if draw.random() < 0.8:
        built.parameters["truncate"].string_param = draw.choice(("left", "right"))
    if draw.random() < 0.2:
        built.parameters["window_overlap"].int64_param = draw.choice((1, 32, 61))
    if draw.random() < 0.3:
        built.outputs.add(name=draw.choice(("token_offsets", "token_ids", "embedding", "scores",
                                            "prompt_logprobs", "token_embeddings")))
    return built.SerializeToString()


def many_texts(draw, model):
    """Returns a message with many texts."""
    built = service_pb2.ModelInferRequest(model_name=model)
    rows = draw.choice((70, 300, 1000))
    texts = [text_of(draw, SIZE // rows)] * rows
    add_texts(built, "text_input", texts)
    if draw.random() < 0.2:
        add_texts(built, "text_pair_input", [b"a"] * rows)
    built.parameters["max_tokens"].int64_param = draw.choice((0, 1))
    if draw.random() < 0.8:
        built.parameters["truncate"].string_param = draw.choice(("left", "right"))
    return built.SerializeToString()


def long_parameter(draw, model):
    """Returns a message with long values of parameters, or with many parameters."""
    built = service_pb2.ModelInferRequest(model_name=model)
    add_texts(built, "text_input", [b"abc"])
    if draw.random() < 0.2:
        for index in range(SIZE // 32):
            built.parameters[f"p{index}"].int64_param = 1
        return built.SerializeToString()
    unit = "".join(draw.choices(JSON_PIECES, k=draw.randrange(1, 4)))
    start = "".join(draw.choices(JSON_PIECES, k=draw.randrange(3)))
    text = (start + unit * (SIZE // len(unit)))[:SIZE]
    if draw.random() < 0.3:
        text = json.dumps(draw.choice((["a" * 9 + str(i) for i in range(SIZE // 16)],
                                       {str(i): 0.5 for i in range(SIZE // 12)},
                                       [[[i, i + 1] for i in range(SIZE // 16)]],
                                       list(range(SIZE // 8)))))
    name = draw.choice(PARAMETERS)
    built.parameters[name].string_param = text
    return built.SerializeToString()


def many_names(draw, model):
    """Returns a message with many outputs, or with long names."""
    built = service_pb2.ModelInferRequest(model_name=model)
    kind = draw.randrange(4)
    if kind == 0:
        for _ in range(SIZE // 16):
            built.outputs.add(name=draw.choice(("embedding", "logits", "x")))
    elif kind == 1:
        built.model_name = "m" * SIZE
    elif kind == 2:
        built.id = "\u00e9" * (SIZE // 2)
    else:
        built.inputs.add(name="n" * SIZE, datatype="BYTES", shape=[1] * 1000)
    add_texts(built, "text_input", [b"abc"])
    return built.SerializeToString()


KINDS = (raw_fields, typed_values, raw_values, one_text, many_texts, long_parameter, many_names)


class Peer:
    """Calls the daemon and measures each call."""

    def __init__(self, daemon, channel):
        self._daemon = daemon
        self._call = channel.unary_unary(INFER)
        # The clock of the processor time of a process (CPUCLOCK_SCHED).
        self._clock = ~daemon.process.pid << 3 | 2
        for model in (*MODELS, *LONG_MODELS):
            self.cost(service_pb2.ModelInferRequest(model_name=model).SerializeToString())
        self._before = resident_before(daemon)

    def cost(self, body):
        """Returns the status of a call, its processor time, and the memory above that of the
        daemon without calls. Memory that earlier calls freed and the heap keeps is part of it."""
        before = resident_before(self._daemon)
        began = time.clock_gettime(self._clock)
        future = self._call.future(body, timeout=PATIENCE_S)
        future.exception()
        used = time.clock_gettime(self._clock) - began
        return future.code().name, used, grown(self._daemon, getattr(self, "_before", before))


def unit_s():
    """Returns the time in which the interpreter counts SIZE bytes in a loop."""
    body = bytes(SIZE)
    best = float("inf")
    for _ in range(3):
        began = time.thread_time()
        sum(1 for _ in body)
        best = min(best, time.thread_time() - began)
    return best


def too_much(size, used_s, memory, unit):
    """Returns why a message of `size` bytes was too expensive, or ''."""
    share = max(1, size / SIZE)
    if used_s > MOST_UNITS * SLOWER * unit * share:
        return f"{used_s / unit:.1f} units of time"
    if memory > SLOWER * (BASE + MOST_MEMORY * size):  # Sanitizers keep freed memory.
        return f"{memory / MIB:.1f} MiB"
    return ""


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_cost_of_a_message_is_bounded_by_its_bytes(served, first_seed, kind):
    draw = random.Random(f"{first_seed} {kind.__name__}")
    unit = unit_s()
    with grpc.insecure_channel(served.grpc, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        peer = Peer(served, channel)
        for _ in range(DRAWS):
            model = draw.choice(LONG_MODELS if kind is one_text else MODELS)
            body = kind(draw, model)
            status, used, memory = peer.cost(body)
            assert status in ALLOWED, (model, body[:100], len(body))
            if too_much(len(body), used, memory, unit):  # Other processes may have disturbed it.
                status, used, memory = peer.cost(body)
            reason = too_much(len(body), used, memory, unit)
            assert not reason, (reason, model, body[:100], len(body), status)
    await_balance(served)


def test_an_expensive_message_is_found(served):
    """The check finds a message whose work grows with the square of its bytes: the steps of a model
    whose positions many long rows fill."""
    built = service_pb2.ModelInferRequest(model_name="long_byte")
    add_texts(built, "text_input", [b"%04d" % row + b"a" * 1000 for row in range(150)])
    built.parameters["max_tokens"].int64_param = 1
    body = built.SerializeToString()
    with grpc.insecure_channel(served.grpc, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        status, used, memory = Peer(served, channel).cost(body)
    assert status == "OK" and too_much(len(body), used, memory, unit_s())
