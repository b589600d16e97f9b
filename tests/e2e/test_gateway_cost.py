"""Tests that the gateway's work and memory for a request are bounded by the bytes of the request.

The requests are drawn to be as expensive as possible for each of their bytes.
"""

import asyncio
import json
import math
import random
import time
import tracemalloc

import pytest
from conftest import ROOT
from starlette.datastructures import Headers

SIZE = 100_000
FIELDS = {"completions": "prompt", "embeddings": "input", "rerank": "documents", "root": "inputs",
          "embed": "inputs", "embed_all": "inputs", "sparse": "inputs", "predict": "inputs",
          "tei_rerank": "texts", "score": "text_2", "classify": "input", "pooling": "input",
          "cohere": "texts", "tokenize": "inputs", "zero_shot": "inputs", "extract": "input"}
PATHS = (*FIELDS, "chat", "similarity", "infer")
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
    if path == "chat":
        text = prompt if isinstance(prompt, str) else "a" * SIZE
        asked = {"model": "m", "messages": [{"role": "user", "content": text}]}
    elif path == "infer":
        count = SIZE // 8
        asked = {"inputs": [{"name": "input_ids", "datatype": draw.choice(("INT32", "FP64")),
                             "shape": [count], "data": [300] * count}]}
    else:
        other = "a" if path == "predict" else draw.choice(("a", "a" * (SIZE // 4)))
        asked = request_of(path, prompt, other)
    if path in ("completions", "chat"):
        asked["n"] = draw.choice((1, 16))
    return json.dumps(asked, ensure_ascii=False).encode()


# The outputs of the model "m" on each path that is not of a model with embeddings.
OUTPUTS = {"predict": ("scores", 50), "classify": ("scores", 50), "score": ("scores", 1),
           "rerank": ("scores", 1), "tei_rerank": ("scores", 1), "zero_shot": ("scores", 3)}


def request_of(path, texts, other):
    """Returns a request with these texts, and with another text if the API has one."""
    if path == "similarity":
        return {"model": "m", "inputs": {"source_sentence": other, "sentences": texts}}
    if path == "predict":
        texts = [[each, other] for each in texts] if isinstance(texts, list) else texts
    asked = {"model": "m", FIELDS[path]: texts}
    if path in ("rerank", "tei_rerank"):
        asked["query"] = other
    if path == "zero_shot":  # A text and many labels, or many texts and a label.
        many = [f"{i}{each}" for i, each in enumerate(texts)] if isinstance(texts, list) else texts
        asked = {"model": "m", "inputs": other, "parameters": {"candidate_labels": many}}
        if isinstance(texts, list) and len(texts) % 2:
            asked = {"model": "m", "inputs": texts, "parameters": {"candidate_labels": [other]}}
    if path == "extract":
        asked["labels"] = [other]
    if path == "score":
        asked["text_1"] = other
    return asked


class Sink:
    """Takes the calls to the daemon. It keeps their messages in memory. It answers with errors, or
    with `shapes`: the values of a row of each output."""

    def __init__(self, path, shapes=None):
        from sluice_client import AsyncClient, Retry, _protocol
        from sluice_client._channel import Defaults
        from sluice_client.errors import Unavailable

        class Client(AsyncClient):
            def __init__(self):
                self._defaults = Defaults("", 60.0, None, Retry())

            async def _answer(self, call, attempts):
                await asyncio.sleep(0)
                if call.method is _protocol.MODEL_METADATA:
                    return metadata_of(path)
                kept.append(call.request.SerializeToString())
                if shapes is None:
                    raise Unavailable("", "UNAVAILABLE")
                return answer_to(call.request, shapes)

        kept = self.kept = []
        self.client = Client()


def metadata_of(path):
    from sluice_client import _protocol

    info = _protocol.MODEL_METADATA.response(name="m", properties={"max_positions": "4096"})
    if path == "zero_shot":
        info.properties["labels"] = '["contradiction", "neutral", "entailment"]'
    for name in ("input_ids", "text_pair_input"):
        info.inputs.add(name=name, datatype="INT32", shape=[-1, -1])
    if path == "extract":
        for part in ("count", "spans", "labels", "scores"):
            info.outputs.add(name=f"extracted_{part}", datatype="INT32", shape=[-1, -1])
    if path in OUTPUTS:
        name, width = OUTPUTS[path]
        info.outputs.add(name=name, datatype="FP32", shape=[-1, width])
    return info


def answer_to(request, shapes):
    from sluice_client import _protocol
    from sluice_client.tensors import Tensor

    answer = _protocol.MODEL_INFER.response(model_name="m")
    rows = max(each.shape[0] for each in request.inputs)
    for name, (datatype, shape, value) in shapes.items():
        count = rows * math.prod(shape)
        tensor = Tensor.of(name, datatype, (rows, *shape), [value] * count)
        answer.outputs.add(name=name, datatype=datatype, shape=tensor.shape)
        answer.raw_output_contents.append(tensor.raw)
    return answer


def handle(path, body, shapes=None):
    """Handles a request. Returns the memory that it took from the gateway's account."""
    from sluice_client.errors import SluiceError
    from sluice_client.gateway import (
        completions,
        extract,
        inference_protocol,
        openai,
        render,
        rerank,
        tei,
        vllm,
        zero_shot,
    )
    from sluice_client.gateway.chat import ChatTemplate
    from sluice_client.gateway.fairness import Caller
    from sluice_client.gateway.hostile import Refused
    from sluice_client.gateway.call import HttpCall, to_json
    from sluice_client.gateway.serving import Gateway

    handler = {"completions": completions.completions, "chat": completions.chat_completions,
               "embeddings": openai.embeddings, "rerank": rerank.rerank,
               "infer": inference_protocol.infer, "cohere": rerank.embed, "root": tei.root,
               "embed": tei.embed, "embed_all": tei.embed_all, "sparse": tei.embed_sparse,
               "predict": tei.predict, "tei_rerank": rerank.rerank_of_either,
               "similarity": tei.similarity, "score": vllm.score, "classify": vllm.classify,
               "pooling": vllm.pooling, "tokenize": rerank.tokenize_of_either,
               "zero_shot": zero_shot.zero_shot, "extract": extract.extract}[path]
    held = [len(body)]  # by read_body

    async def run():
        template = ChatTemplate("{{ messages[0].content }}")
        gateway = Gateway([Sink(path, shapes).client], templates={"m": template},
                          default_model="m")

        class Renderer:
            async def prompt(self, caller, name, messages, specials):
                return render.Template(template.source, {}).render(messages)

        gateway.renderer = Renderer()

        async def turn(size):
            pass

        options = {"timeout_s": 1, "request_id": "", "metadata": []}
        call = HttpCall(Headers({}), {"model": "m"}, body, options, Caller("a"), held.append, turn,
                        lambda request_id: None)
        try:
            answer = await handler(gateway.of(call), call)
        except (Refused, SluiceError, ValueError):
            assert shapes is None
        else:
            to_json(answer.content)

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
        most = 100 * unit * max(1, len(body) / SIZE)
        taken = cost_of(path, body)
        if taken > most:
            taken = min(taken, cost_of(path, body))
        assert taken <= most, (path, body[:80], len(body), taken / unit)


@pytest.mark.parametrize("path", [each for each in PATHS if each not in ("chat", "infer")])
def test_memory_of_an_answer_is_accounted(first_seed, path):
    draw = random.Random(f"{first_seed} {path}")

    def vector(width):
        return {"embedding": ("FP32", (width,), 0.1)}

    kinds = {"completions": lambda width: {
                 "output_ids": ("INT32", (width,), 300), "logprobs": ("FP32", (width,), -0.1),
                 "finish_reason": ("BYTES", (1,), "length")},
             "embed_all": lambda width: {
                 "token_count": ("INT32", (1,), 7), "token_embeddings": ("FP32", (7, width), 0.1)},
             "sparse": lambda width: {
                 "sparse_ids": ("INT32", (width,), 300), "sparse_weights": ("FP32", (width,), 0.1)},
             "extract": lambda width: {
                 "extracted_count": ("INT32", (1,), width),
                 "extracted_spans": ("INT32", (width, 2), 1),
                 "extracted_labels": ("INT32", (width,), 0),
                 "extracted_scores": ("FP32", (width,), 0.9)},
             "tokenize": lambda width: {
                 "token_count": ("INT32", (1,), width), "token_ids": ("INT32", (width,), 300),
                 "token_offsets": ("INT32", (width, 2), 1)}}
    kinds.update({name: lambda _, output=output: {output[0]: ("FP32", output[1:], 0.1)}
                  for name, output in OUTPUTS.items()})
    for _ in range(4):
        rows = draw.choice((1, 30, 500))
        # A text is at least as long as the number of its tokens.
        width = draw.choice((8, 64, 512)) if rows < 500 else draw.choice((8, 64))
        body = json.dumps(request_of(path, ["a" * max(1, width - 8)] * rows, "b")).encode()
        if path in ("embeddings", "cohere"):
            kind = draw.choice(("int8", "float", "ubinary"))
            extra = {"output_dtype": kind} if path == "embeddings" else {"embedding_types": [kind]}
            body = json.dumps({**json.loads(body), **extra}).encode()
        shapes = kinds.get(path, vector)(width)
        handle(path, body, shapes)
        tracemalloc.start()
        held = handle(path, body, shapes)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak <= held + 2 * len(body) + (256 << 10), (path, rows, width, peak, held)


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


def test_the_page_states_the_estimates_of_the_code():
    from sluice_client.gateway import hostile

    page = " ".join((ROOT / "docs" / "http.md").read_text().split())
    assert (f"{hostile._COST_OF_TEXT} for each text, {hostile._COST_OF_OBJECT} for each object and"
            f" array, {hostile._COST_OF_NUMBER} for each number") in page
