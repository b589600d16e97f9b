"""What the client can ask for, without input or output: the part that both clients share.

A task is a generator. It yields the calls that it needs, is sent the response of each, and returns
its result. `Client` makes the calls and blocks; `AsyncClient` awaits them.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import (
    Any,
    Generator,
    Iterable,
    Literal,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    TypedDict,
    TypeVar,
    Union,
    get_args,
)

from . import _protocol
from ._protocol import Message, Method
from .errors import NotServed, error_of
from .tensors import Tensor

T = TypeVar("T")

# A text, or token ids.
Prompt = Union[str, bytes, Sequence[int]]
# Two texts that a model reads as one row, such as a query and a document.
Pair = tuple[Union[str, bytes], Union[str, bytes]]
PoolingName = Literal["mean", "cls", "last", "max", "weighted_mean", "mean_sqrt_len"]
POOLINGS = get_args(PoolingName)

MAX_INT64 = 2**63 - 1


class Call(NamedTuple):
    """One call to make."""

    method: Method
    request: Message


Task = Generator[Call, Message, T]


class CallOptions(TypedDict, total=False):
    """What every call takes."""

    model_version: str  # a decimal number; without it the highest that is served
    request_id: str
    timeout_s: float  # for the whole task, repeated attempts included
    metadata: Sequence[tuple[str, str]]
    priority: int


class PromptOptions(CallOptions, total=False):
    """What every call with prompts takes; docs/api.md describes the parameters."""

    truncate: Literal["error", "left", "right"]


class GenerateOptions(PromptOptions, total=False):
    """How tokens are drawn and what ends an answer; docs/api.md describes the parameters."""

    min_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    seed: int
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, Optional[float]]
    allowed_token_ids: Sequence[int]
    stop: Union[str, Sequence[str]]
    stop_token_ids: Sequence[int]
    ignore_eos: bool
    num_top_logprobs: int


class RecommendOptions(PromptOptions, total=False):
    """How items are chosen; docs/api.md describes the parameters."""

    diversity: float


class EmbedOptions(PromptOptions, total=False):
    """How embeddings are made; docs/api.md describes the parameters."""

    pooling: PoolingName
    normalize: bool
    dimensions: int
    prompt_name: str


class SparseOptions(PromptOptions, total=False):
    """How sparse embeddings are made; docs/api.md describes the parameters."""

    max_active_dims: int
    prompt_name: str


class RerankOptions(PromptOptions, total=False):
    """How documents are compared with a query; pooling and dimensions concern embeddings."""

    pooling: PoolingName
    dimensions: int


class ClassifyOptions(PromptOptions, total=False):
    """How a classifier's scores are given; docs/api.md describes the parameters."""

    activation: Literal["none", "softmax", "sigmoid"]
    window_overlap: int


_CALL_OPTIONS = frozenset(CallOptions.__annotations__) - {"priority"}


class Candidate(NamedTuple):
    """A token that might have been drawn."""

    token_id: int
    logprob: float


@dataclass(frozen=True)
class Generation:
    """A generated answer, or the part of it that a stream yields at once."""

    text: str  # empty for a model without a tokenizer
    token_ids: list[int]
    logprobs: list[float]  # natural logarithms, of each token at temperature 1
    finish_reason: str  # "length" or "stop"; empty in a part that is not the last
    top: list[list[Candidate]] = field(default_factory=list)  # with num_top_logprobs
    seed: Optional[int] = None  # the one that was drawn, if none was given
    truncated_tokens: int = 0  # of the prompt
    prompt_tokens: int = 0  # 0 in a part that is not the last


@dataclass(frozen=True)
class Score:
    """The log-probabilities of a prompt."""

    logprobs: list[float]  # of each token given those before it; 0 for the first
    total: float


@dataclass(frozen=True)
class Embeddings(Tensor):
    """A tensor [inputs, width] of embeddings, which also counts the tokens of the inputs."""

    prompt_tokens: int = 0


class Classification(NamedTuple):
    """The scores of a classifier for one input."""

    label: int  # the label with the highest score
    scores: list[float]
    name: str = ""  # of the label, where the model's labels have names


class Entity(NamedTuple):
    """A part of a text that a classifier of tokens names, such as a person."""

    type: str  # the label of its tokens, without B- or I-
    score: float  # the mean probability of that label
    begin: int  # the characters of the text that it is
    end: int
    text: str


class Ranked(NamedTuple):
    """A document's place in the list that was given, and its score."""

    document: int
    score: float


class Recommendation(NamedTuple):
    """An item and its score, a logit."""

    item: int
    score: float


@dataclass(frozen=True)
class Answer:
    """The response of ModelInfer."""

    model_name: str
    model_version: str
    request_id: str
    outputs: dict[str, Tensor]
    parameters: dict[str, Union[bool, int, float, str]]


@dataclass(frozen=True)
class TensorInfo:
    """An input or output of a model; -1 in its shape means any size."""

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ModelInfo:
    """What the daemon tells about a model."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorInfo]
    outputs: list[TensorInfo]  # those that are returned by default
    properties: dict[str, str]


class IndexEntry(NamedTuple):
    """A version of a model that the daemon knows."""

    name: str
    version: str
    state: str  # "READY" or "UNAVAILABLE"
    reason: str


class ServerInfo(NamedTuple):
    """What the daemon tells about itself."""

    name: str
    version: str
    extensions: list[str]


def parameters_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the request parameters among the options of a call."""
    return {
        name: value
        for name, value in options.items()
        if name not in _CALL_OPTIONS and value is not None
    }


def check_options(kind: type, options: Mapping[str, Any]) -> None:
    """Raises TypeError for an option that the kind, a TypedDict, does not have."""
    known = kind.__annotations__  # those of a TypedDict include its bases'
    for name in options:
        if name not in known:
            raise TypeError(f"unknown option {name!r}; known are {', '.join(sorted(known))}")


def infer(
    model: str,
    inputs: Iterable[Tensor],
    outputs: Iterable[str] = (),
    parameters: Mapping[str, Any] = {},
    model_version: str = "",
    request_id: str = "",
) -> Task[Answer]:
    """Calls ModelInfer with these tensors."""
    request = infer_request(model, inputs, outputs, parameters, model_version, request_id)
    return answer_of((yield Call(_protocol.MODEL_INFER, request)))


def infer_request(
    model: str,
    inputs: Iterable[Tensor],
    outputs: Iterable[str] = (),
    parameters: Mapping[str, Any] = {},
    model_version: str = "",
    request_id: str = "",
) -> Message:
    """Returns the message of a call of ModelInfer."""
    request = _protocol.MODEL_INFER.request(
        model_name=model, model_version=model_version, id=request_id
    )
    for tensor in inputs:
        request.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        request.raw_input_contents.append(tensor.raw)
    for name in outputs:
        request.outputs.add(name=name)
    for name, value in parameters.items():
        _set_parameter(request.parameters[name], name, value)
    return request


def _set_parameter(parameter: Message, name: str, value: Any) -> None:
    """Sets a parameter of a request. Lists and maps are sent as JSON, as docs/api.md says."""
    if isinstance(value, bool):
        parameter.bool_param = value
    elif isinstance(value, int):
        if not -(2**63) <= value < 2**64:
            raise ValueError(f"parameter {name}: {value} has more than 64 bits")
        setattr(parameter, "int64_param" if value <= MAX_INT64 else "uint64_param", value)
    elif isinstance(value, float):
        parameter.double_param = value
    elif isinstance(value, str):
        parameter.string_param = value
    elif isinstance(value, Mapping):
        parameter.string_param = json.dumps({str(key): each for key, each in value.items()})
    else:
        parameter.string_param = json.dumps(list(value))


def answer_of(response: Message) -> Answer:
    """Returns the answer that a ModelInferResponse holds."""
    return Answer(
        response.model_name,
        response.model_version,
        response.id,
        {
            output.name: Tensor(output.name, output.datatype, tuple(output.shape), raw)
            for output, raw in zip(response.outputs, response.raw_output_contents)
        },
        {
            name: getattr(value, value.WhichOneof("parameter_choice"))
            for name, value in response.parameters.items()
        },
    )


def prompt_inputs(prompts: Sequence[Prompt]) -> list[Tensor]:
    """Returns the inputs for prompts, one row each: all texts, or all token ids."""
    texts = [isinstance(prompt, (str, bytes)) for prompt in prompts]
    if not prompts:
        raise ValueError("there is no prompt")
    if all(texts):
        return [Tensor.of("text_input", "BYTES", (len(prompts), 1), prompts)]
    if any(texts):
        raise TypeError("the prompts are texts and token ids: send them in two calls")
    longest = max(map(len, prompts))
    return [
        _id_rows("input_ids", prompts, longest, 0),
        Tensor.of("input_lengths", "INT32", (len(prompts), 1), map(len, prompts)),
    ]


def _id_rows(
    name: str, rows: Sequence[Sequence[Any]], longest: int, padding: int
) -> Tensor:
    padded = [each for row in rows for each in (*row, *[padding] * (longest - len(row)))]
    return Tensor.of(name, "INT32", (len(rows), longest), padded)


def _ask(
    model: str, inputs: Iterable[Tensor], outputs: Iterable[str], options: Mapping[str, Any],
    **parameters: Any,
) -> Task[Answer]:
    return infer(
        model,
        inputs,
        outputs,
        {**parameters_of(options), **parameters},
        options.get("model_version", ""),
        options.get("request_id", ""),
    )


def generate_request(
    model: str, prompt: Prompt, max_tokens: int, options: Mapping[str, Any]
) -> Message:
    """Returns the request of one generated answer, streamed or not."""
    return infer_request(
        model,
        prompt_inputs([prompt]),
        (),
        {**parameters_of(options), "max_tokens": max_tokens},
        options.get("model_version", ""),
        options.get("request_id", ""),
    )


def generate(
    model: str, prompt: Prompt, max_tokens: int, options: Mapping[str, Any]
) -> Task[Generation]:
    """Generates an answer."""
    request = generate_request(model, prompt, max_tokens, options)
    return generation_of(answer_of((yield Call(_protocol.MODEL_INFER, request))))


def part_of(response: Message) -> Answer:
    """Returns the answer in a response of a stream, or raises the error in it."""
    answer = answer_of(response.infer_response)
    if response.error_message:
        raise error_of(
            str(answer.parameters.get("error_code", "UNKNOWN")),
            response.error_message,
            retry_after_ms=str(answer.parameters.get("retry_pushback_ms", "")),
        )
    return answer


def generation_of(answer: Answer) -> Generation:
    """Returns what an answer of one row generated."""
    outputs = answer.outputs
    if "output_ids" not in outputs:
        raise NotServed(
            f"the model {answer.model_name} does not generate; it returns {', '.join(outputs)}",
            "UNIMPLEMENTED",
        )
    text = outputs["text_output"].values()[0] if "text_output" in outputs else b""
    seed, cut = answer.parameters.get("seed"), answer.parameters.get("truncated_tokens", 0)
    return Generation(
        text.decode(errors="replace"),  # type: ignore[union-attr]
        outputs["output_ids"].values(),  # type: ignore[arg-type]
        outputs["logprobs"].values(),  # type: ignore[arg-type]
        outputs["finish_reason"].values()[0].decode(),  # type: ignore[union-attr]
        _top_of(outputs),
        None if seed is None else int(seed),
        int(cut),
        int(answer.parameters.get("prompt_tokens", 0)),
    )


def _top_of(outputs: Mapping[str, Tensor]) -> list[list[Candidate]]:
    if "top_ids" not in outputs:
        return []
    ids, logprobs = outputs["top_ids"].tolist()[0], outputs["top_logprobs"].tolist()[0]
    return [[Candidate(*pair) for pair in zip(*both)] for both in zip(ids, logprobs)]


def score(model: str, prompt: Prompt, options: Mapping[str, Any]) -> Task[Score]:
    """Scores each token of a prompt."""
    answer = yield from _ask(
        model, prompt_inputs([prompt]), ["prompt_logprobs"], options, max_tokens=0
    )
    logprobs: list[Any] = answer.outputs["prompt_logprobs"].values()
    return Score(logprobs, math.fsum(logprobs))


def embed(model: str, inputs: Sequence[Prompt], options: Mapping[str, Any]) -> Task[Embeddings]:
    """Embeds each input as a row."""
    answer = yield from _ask(model, prompt_inputs(inputs), ["embedding"], options)
    tensor = answer.outputs["embedding"]
    tokens = int(answer.parameters.get("prompt_tokens", 0))
    return Embeddings(tensor.name, tensor.datatype, tensor.shape, tensor.raw, tokens)


def embed_sparse(
    model: str, inputs: Sequence[Prompt], options: Mapping[str, Any]
) -> Task[list[dict[int, float]]]:
    """Embeds each input as terms of the vocabulary."""
    outputs = ["sparse_ids", "sparse_weights"]
    answer = yield from _ask(model, prompt_inputs(inputs), outputs, options)
    ids, weights = (answer.outputs[name].tolist() for name in outputs)
    return [
        {term: weight for term, weight in zip(*row) if term >= 0} for row in zip(ids, weights)
    ]


def pair_inputs(firsts: Sequence[Any], seconds: Sequence[Any]) -> list[Tensor]:
    """Returns the inputs for pairs of texts; one first text may stand before all the others."""
    if not all(isinstance(text, (str, bytes)) for text in (*firsts, *seconds)):
        raise TypeError("only texts can be pairs")
    return [
        Tensor.of("text_input", "BYTES", (len(firsts), 1), firsts),
        Tensor.of("text_pair_input", "BYTES", (len(seconds), 1), seconds),
    ]


def classify(
    model: str, inputs: Sequence[Union[Prompt, Pair]], options: Mapping[str, Any]
) -> Task[list[Classification]]:
    """Classifies each input: a prompt, or a pair of texts."""
    pairs = [
        each for each in inputs if isinstance(each, tuple) and isinstance(each[0], (str, bytes))
    ]
    if pairs and len(pairs) < len(inputs):
        raise TypeError("the inputs are pairs and others: send them in two calls")
    if pairs:
        tensors = pair_inputs(*zip(*pairs))
    else:
        tensors = prompt_inputs(inputs)  # type: ignore[arg-type]
    answer = yield from _ask(model, tensors, (), options)
    if "scores" not in answer.outputs:
        raise NotServed(f"the model {model} has no classifier", "UNIMPLEMENTED")
    scores = answer.outputs["scores"].tolist()
    names: list[Any] = [b""] * len(scores)
    if "label" in answer.outputs:
        names = answer.outputs["label"].values()
    return [
        Classification(max(range(len(row)), key=row.__getitem__), row, name.decode())
        for row, name in zip(scores, names)
    ]


def tag(
    model: str, texts: Sequence[Union[str, bytes]], options: Mapping[str, Any]
) -> Task[list[list[Entity]]]:
    """Finds the entities of each text."""
    outputs = ["token_count", "token_scores", "token_labels", "token_offsets"]
    info = yield from metadata(model, options)
    if not {*outputs} <= {each.name for each in info.outputs}:
        raise NotServed(f"the model {model} has no classifier of tokens whose labels have names",
                        "UNIMPLEMENTED")
    answer = yield from _ask(
        model, prompt_inputs(texts), outputs, {"activation": "softmax", **options})
    counts, *columns = (answer.outputs[name].tolist() for name in outputs)
    rows = zip(texts, counts, *columns)
    return [
        entities_of(text if isinstance(text, bytes) else text.encode(), *(
            column[:count] for column in (scores, labels, offsets)))
        for text, (count,), scores, labels, offsets in rows
    ]


def entities_of(
    text: bytes, scores: Sequence[Any], labels: Sequence[bytes], offsets: Sequence[Any]
) -> list[Entity]:
    """Joins the tokens of a text that have a label.

    Neighbours of one type are one entity, except that B- begins another one where it does not stand
    within a word.
    """
    found: list[tuple[str, int, int, list[float]]] = []
    open_type = ""  # of the entity that the next token may continue
    for row, label, (begin, end) in zip(scores, labels, offsets):
        prefix, dash, name = label.decode().partition("-")
        kind = name if dash and prefix in ("B", "I") else label.decode()
        if begin < 0:
            continue
        if kind == "O":
            open_type = ""
        elif kind == open_type and (prefix != "B" or begin == found[-1][2]):
            found[-1] = (kind, found[-1][1], end, [*found[-1][3], max(row)])
        else:
            found.append((kind, begin, end, [max(row)]))
            open_type = kind

    def place(byte: int) -> int:
        return len(text[:byte].decode(errors="replace"))

    return [
        Entity(kind, math.fsum(each) / len(each), place(begin), place(end),
               text[begin:end].decode(errors="replace"))
        for kind, begin, end, each in found
    ]


def rerank(
    model: str, query: Prompt, documents: Sequence[Prompt], top_n: Optional[int],
    options: Mapping[str, Any],
) -> Task[list[Ranked]]:
    """Ranks documents by a cross-encoder's scores of their pairs with the query.

    A model without a classifier ranks them by the cosine of their embeddings and the query's, each
    with the prompt that the model has for queries and for documents.

    Raises NotServed for a classifier of several labels, none of which is the score of a pair, and
    for one that takes no pairs.
    """
    info = yield from metadata(model, options)
    labels = [output.shape[-1] for output in info.outputs if output.name == "scores"]
    if not labels:
        scores: list[Any] = yield from _cosines(model, query, documents, info, options)
    elif labels == [1] and any(each.name == "text_pair_input" for each in info.inputs):
        answer = yield from _ask(model, pair_inputs([query], documents), ["scores"], options)
        scores = answer.outputs["scores"].values()
    else:
        raise NotServed(
            f"the model {model} has a classifier of {labels[0]} labels that gives no score of a"
            " pair; rerank with a cross-encoder or a model of embeddings",
            "UNIMPLEMENTED",
        )
    ranked = [Ranked(index, score) for index, score in enumerate(scores)]
    return sorted(ranked, key=lambda each: -each.score)[:top_n]


def _cosines(
    model: str, query: Prompt, documents: Sequence[Prompt], info: ModelInfo,
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
) -> Task[list[Recommendation]]:
    """Recommends items that follow a history, the best first, or as they were chosen."""
    inputs = prompt_inputs([history])
    left_out = sorted(set(exclude))
    if candidates is None:
        if left_out:
            inputs.append(_id_rows("exclude_ids", [left_out], len(left_out), -1))
        answer = yield from _ask(
            model, inputs, ["top_ids", "top_scores"], options, max_tokens=1, num_top_logprobs=count
        )
        items, scores = (answer.outputs[name].tolist()[0][0] for name in ("top_ids", "top_scores"))
    else:
        items = [item for item in candidates if item not in set(left_out)]
        inputs.append(_id_rows("candidate_ids", [items], len(items), -1))
        answer = yield from _ask(
            model, inputs, ["candidate_scores", "candidate_order"], options, max_tokens=0
        )
        order = answer.outputs["candidate_order"].tolist()[0]
        scores = [answer.outputs["candidate_scores"].tolist()[0][place] for place in order]
        items = [items[place] for place in order]
    return [Recommendation(*pair) for pair in zip(items, scores)][:count]


def metadata(model: str, options: Mapping[str, Any]) -> Task[ModelInfo]:
    """Asks what a model takes and returns."""
    method = _protocol.MODEL_METADATA
    version = options.get("model_version", "")
    response = yield Call(method, method.request(name=model, version=version))

    def tensors(field: Iterable[Message]) -> list[TensorInfo]:
        return [TensorInfo(each.name, each.datatype, tuple(each.shape)) for each in field]

    return ModelInfo(
        response.name,
        list(response.versions),
        response.platform,
        tensors(response.inputs),
        tensors(response.outputs),
        dict(response.properties),
    )


def models(ready: bool) -> Task[list[IndexEntry]]:
    """Lists the models that the daemon knows, or only those that are ready."""
    method = _protocol.REPOSITORY_INDEX
    response = yield Call(method, method.request(ready=ready))
    return [
        IndexEntry(each.name, each.version, each.state, each.reason) for each in response.models
    ]


def server_ready() -> Task[bool]:
    """Asks whether the daemon is ready."""
    return bool((yield Call(_protocol.SERVER_READY, _protocol.SERVER_READY.request())).ready)


def model_ready(model: str, options: Mapping[str, Any]) -> Task[bool]:
    """Asks whether a model is ready; one that is not served is not."""
    method = _protocol.MODEL_READY
    version = options.get("model_version", "")
    response = yield Call(method, method.request(name=model, version=version))
    return bool(response.ready)


def server_info() -> Task[ServerInfo]:
    """Asks for the daemon's name, version and extensions of the protocol."""
    method = _protocol.SERVER_METADATA
    response = yield Call(method, method.request())
    return ServerInfo(response.name, response.version, list(response.extensions))
