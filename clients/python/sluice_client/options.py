"""The types of prompts, and the options of each kind of call."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, Literal, Mapping, Optional, Sequence, TypedDict, Union, get_args

# A text, or token ids.
Prompt = Union[str, bytes, Sequence[int]]
# One prompt, or a list of prompts that are either all texts or all token ids.
Prompts = Union[Prompt, Sequence[Prompt]]
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
    timeout_s: float  # for the whole call, including retries
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


def check_options(kind: type, options: Mapping[str, Any]) -> None:
    """Raises TypeError for an option that `kind`, a TypedDict, does not have."""
    known = kind.__annotations__  # includes the annotations of the bases
    for name in options:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise TypeError(
                f"unknown option {name!r}{hint}; known options: {', '.join(sorted(known))}")
