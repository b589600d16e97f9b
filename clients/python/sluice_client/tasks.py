"""The tasks of the client, without network calls; both clients share this module.

A task is a generator. It yields each call that it needs, receives the response, and returns the
task's result. `Client` makes the calls and blocks; `AsyncClient` awaits them.
"""

from __future__ import annotations

import json
import math
from typing import Any, Generator, Iterable, Mapping, NamedTuple, Optional, Sequence, TypeVar, Union

from . import _protocol, results
from ._protocol import Message, Method
from .entities import entities_of
from .errors import NotServed
from .messages import (
    answer_of,
    generation_of,
    id_rows,
    infer_request,
    pair_inputs,
    prompt_inputs,
)
from .options import Pair, Prompt
from .tensors import Tensor

T = TypeVar("T")


class Call(NamedTuple):

    method: Method
    request: Message


Task = Generator[Call, Message, T]


def infer(
    model: str, inputs: Iterable[Tensor], outputs: Iterable[str], options: Mapping[str, Any], /,
    **parameters: Any,
) -> Task[results.Answer]:
    """Calls ModelInfer with these tensors and parameters."""
    request = infer_request(model, inputs, outputs, options, parameters)
    return answer_of((yield Call(_protocol.MODEL_INFER, request)))


def generate(
    model: str, prompt: Prompt, max_tokens: int, options: Mapping[str, Any]
) -> Task[results.Generation]:
    """Generates an answer."""
    answer = yield from infer(
        model, prompt_inputs([prompt]), (), options, max_tokens=max_tokens
    )
    return generation_of(answer)


def score(model: str, prompt: Prompt, options: Mapping[str, Any]) -> Task[results.Score]:
    """Scores each token of a prompt."""
    answer = yield from infer(
        model, prompt_inputs([prompt]), ["prompt_logprobs"], options, max_tokens=0
    )
    logprobs: list[Any] = answer.outputs["prompt_logprobs"].values()
    return results.Score(logprobs, math.fsum(logprobs))


def embed(
    model: str, inputs: Sequence[Prompt], options: Mapping[str, Any]
) -> Task[results.Embeddings]:
    """Computes one embedding per input."""
    answer = yield from infer(model, prompt_inputs(inputs), ["embedding"], options)
    tensor = answer.outputs["embedding"]
    tokens = int(answer.parameters.get("prompt_tokens", 0))
    return results.Embeddings(tensor.name, tensor.datatype, tensor.shape, tensor.raw, tokens)


def embed_sparse(
    model: str, inputs: Sequence[Prompt], options: Mapping[str, Any]
) -> Task[list[dict[int, float]]]:
    """Computes the weights of vocabulary terms for each input."""
    outputs = ["sparse_ids", "sparse_weights"]
    answer = yield from infer(model, prompt_inputs(inputs), outputs, options)
    ids, weights = (answer.outputs[name].tolist() for name in outputs)
    return [
        {term: weight for term, weight in zip(*row) if term >= 0} for row in zip(ids, weights)
    ]


def classify(
    model: str, inputs: Sequence[Union[Prompt, Pair]], options: Mapping[str, Any]
) -> Task[list[results.Classification]]:
    """Classifies each input, a prompt or a pair of texts."""
    pairs = [
        each for each in inputs if isinstance(each, tuple) and isinstance(each[0], (str, bytes))
    ]
    if pairs and len(pairs) < len(inputs):
        raise TypeError("the inputs mix pairs and single prompts; send them in two calls")
    if pairs:
        tensors = pair_inputs(*zip(*pairs))
    else:
        tensors = prompt_inputs(inputs)  # type: ignore[arg-type]
    answer = yield from infer(model, tensors, (), options)
    if "scores" not in answer.outputs:
        raise NotServed(f"the model {model} has no classifier", "UNIMPLEMENTED")
    scores = answer.outputs["scores"].tolist()
    names: list[Any] = [b""] * len(scores)
    if "label" in answer.outputs:
        names = answer.outputs["label"].values()
    return [
        results.Classification(max(range(len(row)), key=row.__getitem__), row, name.decode())
        for row, name in zip(scores, names)
    ]


def tag(
    model: str, texts: Sequence[Union[str, bytes]], options: Mapping[str, Any]
) -> Task[list[list[results.Entity]]]:
    """Finds the entities of each text."""
    outputs = ["token_count", "token_scores", "token_labels", "token_offsets"]
    info = yield from metadata(model, options)
    if not {*outputs} <= {each.name for each in info.outputs}:
        raise NotServed(f"the model {model} has no token classifier with named labels",
                        "UNIMPLEMENTED")
    answer = yield from infer(
        model, prompt_inputs(texts), outputs, {"activation": "softmax", **options})
    counts, *columns = (answer.outputs[name].tolist() for name in outputs)
    rows = zip(texts, counts, *columns)
    return [
        entities_of(text if isinstance(text, bytes) else text.encode(), *(
            column[:count] for column in (scores, labels, offsets)))
        for text, (count,), scores, labels, offsets in rows
    ]


def rerank(
    model: str, query: Prompt, documents: Sequence[Prompt], top_n: Optional[int],
    options: Mapping[str, Any],
) -> Task[list[results.Ranked]]:
    """Ranks documents by a cross-encoder's scores of the pairs (query, document).

    A model without a classifier ranks documents by the cosine of their embeddings and the query's
    embedding. If the model has prompts for queries and documents, they are used.

    Raises NotServed for a classifier with several labels, because none is the score of a pair, for
    a classifier that does not accept pairs, and for a model that generates: the states of such a
    model were not trained to be compared, so their cosines would rank at random.
    """
    info = yield from metadata(model, options)
    labels = [output.shape[-1] for output in info.outputs if output.name == "scores"]
    if not labels and info.properties.get("task") == "generate":
        raise NotServed(
            f"the model {model} generates text, and its files do not state that it makes"
            " embeddings to compare; rerank with a cross-encoder or an embedding model, add the"
            " model's modules.json, or set sluice.embedding in its config.json",
            "UNIMPLEMENTED",
        )
    if not labels:
        scores: list[Any] = yield from _cosines(model, query, documents, info, options)
    elif labels == [1] and any(each.name == "text_pair_input" for each in info.inputs):
        answer = yield from infer(model, pair_inputs([query], documents), ["scores"], options)
        scores = answer.outputs["scores"].values()
    else:
        raise NotServed(
            f"the classifier of the model {model} has {labels[0]} labels and cannot score a pair of"
            " texts; rerank with a cross-encoder or an embedding model",
            "UNIMPLEMENTED",
        )
    ranked = [results.Ranked(index, score) for index, score in enumerate(scores)]
    return sorted(ranked, key=lambda each: -each.score)[:top_n]


def _cosines(
    model: str, query: Prompt, documents: Sequence[Prompt], info: results.ModelInfo,
    options: Mapping[str, Any],
) -> Task[list[float]]:
    prompts = json.loads(info.properties.get("prompts", "[]"))
    unit = {**options, "normalize": True}
    if not {"query", "document"} & {*prompts}:
        vectors = (yield from embed(model, [query, *documents], unit)).tolist()
    else:
        named = [{**unit, "prompt_name": name} if name in prompts else {**unit, "prompt_name": ""}
                 for name in ("query", "document")]
        vectors = (yield from embed(model, [query], named[0])).tolist()
        vectors += (yield from embed(model, documents, named[1])).tolist()
    first, *others = vectors
    return [math.fsum(a * b for a, b in zip(first, vector)) for vector in others]


def recommend(
    model: str,
    history: Sequence[int],
    count: int,
    exclude: Sequence[int],
    candidates: Optional[Sequence[int]],
    options: Mapping[str, Any],
) -> Task[list[results.Recommendation]]:
    """Recommends items that follow a history, the best first; diverse items in selection order."""
    inputs = prompt_inputs([history])
    left_out = sorted(set(exclude))
    if candidates is None:
        if left_out:
            inputs.append(id_rows("exclude_ids", [left_out], len(left_out), -1))
        answer = yield from infer(
            model, inputs, ["top_ids", "top_scores"], options, max_tokens=1, num_top_logprobs=count
        )
        items, scores = (answer.outputs[name].tolist()[0][0] for name in ("top_ids", "top_scores"))
    else:
        items = [item for item in candidates if item not in set(left_out)]
        inputs.append(id_rows("candidate_ids", [items], len(items), -1))
        answer = yield from infer(
            model, inputs, ["candidate_scores", "candidate_order"], options, max_tokens=0
        )
        order = answer.outputs["candidate_order"].tolist()[0]
        scores = [answer.outputs["candidate_scores"].tolist()[0][place] for place in order]
        items = [items[place] for place in order]
    return [results.Recommendation(*pair) for pair in zip(items, scores)][:count]


def metadata(model: str, options: Mapping[str, Any]) -> Task[results.ModelInfo]:
    """Requests the inputs, outputs and properties of a model."""
    method = _protocol.MODEL_METADATA
    version = options.get("model_version", "")
    response = yield Call(method, method.request(name=model, version=version))

    def tensors(field: Iterable[Message]) -> list[results.TensorInfo]:
        return [results.TensorInfo(each.name, each.datatype, tuple(each.shape)) for each in field]

    return results.ModelInfo(
        response.name,
        list(response.versions),
        response.platform,
        tensors(response.inputs),
        tensors(response.outputs),
        dict(response.properties),
    )


def models(ready: bool) -> Task[list[results.IndexEntry]]:
    """Lists the served models and the daemon's repository, or only the ready ones."""
    method = _protocol.REPOSITORY_INDEX
    response = yield Call(method, method.request(ready=ready))
    return [
        results.IndexEntry(each.name, each.version, each.state, each.reason)
        for each in response.models
    ]


def server_ready() -> Task[bool]:
    """Requests whether the daemon is ready."""
    return bool((yield Call(_protocol.SERVER_READY, _protocol.SERVER_READY.request())).ready)


def model_ready(model: str, options: Mapping[str, Any]) -> Task[bool]:
    """Requests whether a model is ready. Returns false for a model that is not served."""
    method = _protocol.MODEL_READY
    version = options.get("model_version", "")
    response = yield Call(method, method.request(name=model, version=version))
    return bool(response.ready)


def server_info() -> Task[results.ServerInfo]:
    """Requests the daemon's name, version and protocol extensions."""
    method = _protocol.SERVER_METADATA
    response = yield Call(method, method.request())
    return results.ServerInfo(response.name, response.version, list(response.extensions))
