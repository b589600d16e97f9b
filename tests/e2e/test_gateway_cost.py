"""Tests that the gateway's work and memory for a request are bounded by the bytes of the request.

The requests are drawn to be as expensive as possible for each of their bytes.
"""

import asyncio
import json
import random
import time
import tracemalloc

import pytest
from starlette.datastructures import Headers

SIZE = 100_000
PATHS = ("completions", "chat", "embeddings", "rerank", "infer")
# JSON values that need much memory or time for each of their bytes.
VALUES = ('""', '"ab"', '"\\u00e9\\u4e00"', '"\\ud83d\\ude00"', "{}", "[]", '{"a":1}',
          '{"a":{"b":[]}}', "[[[[]]]]", "1", "300", "-1e5", "0.1", "null", "true", '"\\\\\\""',
          "12345678901234567890")
# Pieces of texts that are not JSON.
PIECES = ('"', "\\", '\\"', '\\\\"', "[", "]", "{", "}", ",", ":", "a", '"a":', "\u00e9", " ", "0")


def drawn_body(draw, path):
    """Returns a body of about SIZE bytes."""
    if draw.random() < 0.4:
        unit = "".join(draw.choices(PIECES, k=draw.randrange(1, 5)))
        start = "".join(draw.choices(PIECES, k=draw.randrange(4)))
        return (start + unit * (SIZE // len(unit.encode()))).encode()[:SIZE]
    value = draw.choice(VALUES)
    values = "[" + ",".join([value] * (SIZE // (len(value.encode()) + 1))) + "]"
    kind = draw.randrange(4)
    if kind == 0:
        return ('{"model":"m","max_tokens":1,"unknown":' + values + "}").encode()
    rows = draw.choice((1, 16, 1000))
    long = [1] * (SIZE // 2)
    prompt = draw.choice((["a" * (SIZE // rows)] * rows, long, [long, *[[1]] * (rows - 1)],
                          [[1]] * (SIZE // 4), "\u00e9" * (SIZE // 2)))
    field = {"completions": "prompt", "embeddings": "input", "rerank": "documents"}.get(path)
    if path == "chat":
        text = prompt if isinstance(prompt, str) else "a" * SIZE
        asked = {"model": "m", "messages": [{"role": "user", "content": text}]}
    elif path == "infer":
        count = SIZE // 8
        asked = {"inputs": [{"name": "input_ids", "datatype": draw.choice(("INT32", "FP64")),
                             "shape": [count], "data": [300] * count}]}
    else:
        asked = {"model": "m", field: prompt}
    if path == "rerank":
        asked["query"] = draw.choice(("a", "a" * (SIZE // 4)))
    if path in ("completions", "chat"):
        asked["n"] = draw.choice((1, 16))
    return json.dumps(asked, ensure_ascii=False).encode()


class Sink:
    """Takes the calls to the daemon. It keeps their messages in memory, and answers with errors."""

    def __init__(self):
        from sluice_client import AsyncClient
        from sluice_client.errors import Unavailable

        class Client(AsyncClient):
            def __init__(self):
                self._defaults = (60.0, None, None)

            async def _answer(self, call, attempts):
                kept.append(call.request.SerializeToString())
                await asyncio.sleep(0)
                raise Unavailable("", "UNAVAILABLE")

        kept = self.kept = []
        self.client = Client()


def handle(path, body):
    """Handles a request. Returns the memory that it took from the gateway's account."""
    from sluice_client.errors import SluiceError
    from sluice_client.gateway import completions, inference_protocol, openai, rerank
    from sluice_client.gateway.chat import ChatTemplate
    from sluice_client.gateway.fairness import Caller
    from sluice_client.gateway.hostile import Refused
    from sluice_client.gateway.serving import Gateway, HttpCall

    handler = {"completions": completions.completions, "chat": completions.chat_completions,
               "embeddings": openai.embeddings, "rerank": rerank.rerank,
               "infer": inference_protocol.infer}[path]
    held = [len(body)]  # by read_body

    async def run():
        sink = Sink()
        template = ChatTemplate("{{ messages[0].content }}")
        gateway = Gateway([sink.client], templates={"m": template})
        gateway.client = sink.client

        class Renderer:
            async def prompt(self, caller, name, messages):
                return template.prompt(messages)

        gateway.renderer = Renderer()

        async def turn(size):
            pass

        call = HttpCall(Headers({}), {"model": "m"}, body, {"timeout_s": 1, "request_id": ""},
                        Caller("a"), held.append, turn)
        try:
            await handler(gateway, call)
        except (Refused, SluiceError, ValueError):
            pass

    asyncio.run(run())
    return sum(held)


def cost_of(path, body):
    """Returns the processor time of a request."""
    began = time.thread_time()
    handle(path, body)
    return time.thread_time() - began


@pytest.mark.parametrize("path", PATHS)
def test_memory_of_a_request_is_accounted(first_seed, path):
    draw = random.Random(f"{first_seed} {path}")
    handle(path, b"{}")  # imports
    for _ in range(25):
        body = drawn_body(draw, path)
        tracemalloc.start()
        held = handle(path, body)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        # One request at a time has two copies of its body while its values are counted.
        assert peak <= held + 2 * len(body) + (256 << 10), (path, body[:80], len(body), peak, held)


@pytest.mark.parametrize("path", PATHS)
def test_event_loop_time_of_a_request_is_proportional_to_its_size(first_seed, path):
    draw = random.Random(f"{first_seed} {path}")
    handle(path, b"{}")
    # The time in which the interpreter counts the bytes in a loop is the unit.
    body = bytes(SIZE)
    began = time.thread_time()
    sum(1 for _ in body)
    unit = time.thread_time() - began
    for _ in range(25):
        body = drawn_body(draw, path)
        taken = cost_of(path, body)
        if taken > 100 * unit:
            taken = min(taken, cost_of(path, body))
        assert taken <= 100 * unit, (path, body[:80], len(body), taken / unit)


def test_values_of_a_body_are_counted_exactly(first_seed):
    """The count without a parser equals the count of a parser, for any JSON."""
    from sluice_client.gateway.hostile import Limits, structure_of

    draw = random.Random(first_seed)

    def value(depth):
        kind = draw.randrange(7 if depth < 5 else 4)
        if kind < 2:
            return "".join(draw.choices('"\\[]{},:a\u00e9', k=draw.randrange(12)))
        if kind < 4:
            return draw.choice((1, 2.5, None, True))
        values = [value(depth + 1) for _ in range(draw.randrange(5))]
        return values if kind == 4 else {f'{draw.choice(chr(34) + "ab")}{i}': each
                                         for i, each in enumerate(values)}

    def count(each):
        if isinstance(each, dict):
            inner = [count(v) for v in each.values()]
            return 1 + sum(a for a, _ in inner), len(each) + sum(b for _, b in inner)
        if isinstance(each, list):
            inner = [count(v) for v in each]
            return 1 + sum(a for a, _ in inner), sum(b for _, b in inner)
        return 0, int(isinstance(each, str))

    for _ in range(300):
        whole = [value(0) for _ in range(draw.choice((1, 3, 500)))]
        body = json.dumps(whole, ensure_ascii=draw.random() < 0.5,
                          indent=draw.choice((None, 2))).encode()
        found = structure_of(body, Limits())
        assert (found.containers, found.texts) == count(whole), body[:500]
