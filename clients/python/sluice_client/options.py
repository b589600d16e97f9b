"""The types of prompts, and the options of each kind of call."""

from __future__ import annotations

import inspect
from difflib import get_close_matches
from functools import wraps
from typing import (
    Any,
    Callable,
    Iterable,
    Literal,
    Mapping,
    Optional,
    Sequence,
    TypedDict,
    TypeVar,
    Union,
    get_args,
)

T = TypeVar("T")

# A text, or token ids.
Prompt = Union[str, bytes, Sequence[int]]
# One prompt, or a list of prompts that are either all texts or all token ids.
Prompts = Union[Prompt, Iterable[Prompt]]
# One text, or a list of texts.
Texts = Union[str, bytes, Iterable[Union[str, bytes]]]
# Two texts that a model reads as one row, such as a query and a document.
Pair = tuple[Union[str, bytes], Union[str, bytes]]
PoolingName = Literal["mean", "cls", "last", "max", "weighted_mean", "mean_sqrt_len"]
POOLINGS = get_args(PoolingName)
Activation = Literal["none", "softmax", "sigmoid"]
# The use of texts, for models that encode queries and documents differently.
TaskName = Literal["query", "document"]
# Which parts of a text `extract` may return together.
SpanOverlap = Literal["flat", "nested"]
# The outputs of `encode`.
EncodeOutput = Literal["dense", "sparse", "vectors", "spans"]


class CallOptions(TypedDict, total=False):
    """Options of every call."""

    model_version: str  # a decimal number; the highest served version if not given
    request_id: str
    timeout_s: Optional[float]  # for the whole call, including retries
    metadata: Sequence[tuple[str, str]]
    priority: int


class PromptOptions(CallOptions, total=False):
    """Options of every call with prompts; docs/api.md describes the parameters."""

    truncate: Literal["error", "left", "right"]


class GenerateOptions(PromptOptions, total=False):
    """How tokens are sampled and when generation stops; docs/api.md describes the parameters."""

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
    speculation: bool
    prediction: str
    add_special_tokens: bool


class ExtractOptions(PromptOptions, total=False):
    """Which parts of texts are returned; docs/api.md describes the parameters."""

    threshold: float
    overlap: SpanOverlap
    multi_label: bool


class RecommendOptions(PromptOptions, total=False):
    """How items are chosen; docs/api.md describes the parameters."""

    diversity: float


class EmbedOptions(PromptOptions, total=False):
    """How embeddings are computed; docs/api.md describes the parameters."""

    pooling: PoolingName
    normalize: bool
    dimensions: int
    prompt_name: str


class EncodeOptions(EmbedOptions, total=False):
    """How the outputs of `encode` are computed; docs/api.md describes the parameters."""

    task: TaskName
    max_active_dims: int
    spans: Sequence[Sequence[Sequence[int]]]  # for each input, a list of [begin, end]
    span_unit: Literal["characters", "bytes", "tokens"]


class TokenizeOptions(PromptOptions, total=False):
    """How texts are encoded; docs/api.md describes the parameters."""

    prompt_name: str
    add_special_tokens: bool


class SparseOptions(PromptOptions, total=False):
    """How sparse embeddings are computed; docs/api.md describes the parameters."""

    max_active_dims: int
    prompt_name: str
    task: TaskName


class RerankOptions(PromptOptions, total=False):
    """How documents are compared with a query.

    Pooling and dimensions apply to embeddings only, activation to a cross-encoder only, and
    instruction to a reranker that is a language model only.
    """

    pooling: PoolingName
    dimensions: int
    activation: Activation
    instruction: str


class ClassifyOptions(PromptOptions, total=False):
    """How a classifier's scores are computed; docs/api.md describes the parameters."""

    activation: Activation
    window_overlap: int
    instruction: str


_CALL_OPTIONS = frozenset(CallOptions.__annotations__) - {"priority"}


def parameters_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of a call that are sent as request parameters."""
    if isinstance(stop := options.get("stop"), str):
        options = {**options, "stop": [stop]}  # The daemon reads a text that begins with [ as JSON.
    return {
        name: value
        for name, value in options.items()
        if name not in _CALL_OPTIONS and value is not None
    }


# A line about each option, for the documentation of the methods. docs/api.md has the details.
_LINES = {
    "activation": "none, softmax or sigmoid: applied to a classifier's scores",
    "add_special_tokens": "whether the tokenizer adds its special tokens; true by default",
    "allowed_token_ids": "the only tokens that may be generated",
    "dimensions": "the number of first values of an embedding to keep",
    "diversity": "0 to 1: how much the items differ from each other",
    "frequency_penalty": "subtracted from a token's logit for each time that it was generated",
    "ignore_eos": "whether to continue when the model would end",
    "instruction": "the task of a reranker that is a language model",
    "logit_bias": "a map of token ids and values added to their logits; None excludes a token",
    "max_active_dims": "the most terms of a sparse embedding",
    "metadata": "headers to send, as a list of pairs (name, value)",
    "min_p": "keeps the tokens with at least this share of the highest probability",
    "min_tokens": "the fewest tokens to generate",
    "model_version": "the version of the model; the highest one by default",
    "multi_label": "whether the same part may be returned with several labels",
    "normalize": "whether to scale embeddings to length 1",
    "num_top_logprobs": "the number of candidates to return for each token",
    "overlap": "flat or nested: whether found parts may be within each other",
    "pooling": "how the states of tokens become an embedding: " + ", ".join(POOLINGS),
    "prediction": "a text that the answer probably repeats",
    "presence_penalty": "subtracted from the logit of each token that was generated",
    "priority": "1 (the most urgent) to 3",
    "prompt_name": "the name of the model's prompt to put before each text",
    "repetition_penalty": "reduces the probability of tokens that occurred; 1 has no effect",
    "request_id": "an identifier for the access log",
    "seed": "the seed of sampling",
    "span_unit": "characters, bytes or tokens: the unit of spans",
    "spans": "for each input, a list of parts [begin, end] that get an embedding each",
    "speculation": "whether the server may draft tokens",
    "stop": "the text or texts that end the answer",
    "stop_token_ids": "tokens that end the answer",
    "task": "document or query: the use of the texts",
    "temperature": "0 for the most probable tokens; above 0 for sampling",
    "threshold": "the score that found parts must exceed",
    "timeout_s": "the seconds until the deadline of the whole call; None for no deadline",
    "top_k": "the number of the most probable tokens to sample from",
    "top_p": "the total probability of the tokens to sample from",
    "truncate": "error, left or right: whether a long text is refused, or the side to cut",
    "typical_p": "keeps the tokens whose information is the most typical, up to this probability",
    "window_overlap": "reads a long text in windows that share this number of tokens",
}


def documented(kind: type) -> Callable[[T], T]:
    """Returns a decorator that adds the options of `kind`, a TypedDict, to a docstring."""

    def add(function: T) -> T:
        lines = (f"{name}: {_LINES[name]}" for name in sorted(kind.__annotations__))
        text = inspect.cleandoc(function.__doc__ or "")
        function.__doc__ = "\n    ".join([f"{text}\n\nOptions:", *lines])
        return function

    return add


def _unknown(what: str, name: str, known: Iterable[str]) -> TypeError:
    names = sorted(known)
    near = get_close_matches(name, names, 1) or [
        each for each in names if each in name or name in each][:1]
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return TypeError(f"unknown {what} {name!r}{hint}; known {what}s: {', '.join(names)}")


def check_options(kind: type, options: Mapping[str, Any], *others: str) -> None:
    """Raises TypeError for an option that `kind`, a TypedDict, does not have.

    `others` are the other named arguments of the method.
    """
    known = kind.__annotations__  # includes the annotations of the bases
    for name in options:
        if name not in known:
            raise _unknown("option", name, {*known, *others})


def check_names(kind: type[T]) -> type[T]:
    """Makes the constructor of a class name the nearest argument if one is unknown."""
    construct: Any = getattr(kind, "__init__")
    known = [*inspect.signature(construct).parameters][1:]

    @wraps(construct)
    def checked(self: Any, *arguments: Any, **named: Any) -> None:
        for name in named:
            if name not in known:
                raise _unknown("argument", name, known)
        construct(self, *arguments, **named)

    setattr(kind, "__init__", checked)
    return kind
