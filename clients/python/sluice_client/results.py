"""The results of calls."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass, field, fields
from typing import Iterable, NamedTuple, Optional, TypeVar, Union

from .tensors import Tensor

T = TypeVar("T")

_short = reprlib.Repr()
_short.maxlist = _short.maxtuple = _short.maxdict = 3
_short.maxstring = 200
_short.maxother = 1000


class _Short:
    """A dataclass whose repr shows only the first elements of long lists."""

    def __repr__(self) -> str:
        shown = (
            f"{each.name}={_short.repr(getattr(self, each.name))}"
            for each in fields(self)  # type: ignore[arg-type]
        )
        return f"{type(self).__name__}({', '.join(shown)})"


class Results(list[T]):
    """A list with one result for each input, and the numbers of tokens of all inputs."""

    def __init__(
        self, results: Iterable[T], prompt_tokens: int = 0, truncated_tokens: int = 0
    ) -> None:
        super().__init__(results)
        self.prompt_tokens = prompt_tokens  # after truncation
        self.truncated_tokens = truncated_tokens

    def __repr__(self) -> str:
        return _short.repr(list(self))


class Candidate(NamedTuple):
    """A token that could have been sampled."""

    token_id: int
    logprob: float


@dataclass(frozen=True, repr=False)
class Generation(_Short):
    """A generated answer, or one part of a streamed answer."""

    text: str  # empty for a model without a tokenizer
    token_ids: list[int]
    logprobs: list[float]  # of each token at temperature 1; natural logarithms
    finish_reason: str  # "length" or "stop"; empty in all parts but the last
    top: list[list[Candidate]] = field(default_factory=list)  # with num_top_logprobs
    seed: Optional[int] = None  # the random seed, if the call gave none
    truncated_tokens: int = 0  # of the prompt
    prompt_tokens: int = 0  # 0 in all parts but the last
    cached_tokens: int = 0  # of these, the tokens that were not computed again
    drafted_tokens: int = 0  # drafts of this answer that the server checked
    accepted_tokens: int = 0  # of these, the tokens that are in the answer
    # With token_bytes: what each token adds to the text. It may be a part of a character.
    token_bytes: list[bytes] = field(default_factory=list)
    top_bytes: list[list[bytes]] = field(default_factory=list)  # of the candidates in `top`


@dataclass(frozen=True, repr=False)
class Score(_Short):
    """The log-probabilities of a prompt."""

    logprobs: list[float]  # of each token given those before it; 0 for the first
    total: float
    truncated_tokens: int = 0  # of the prompt


@dataclass(frozen=True, repr=False)
class Embeddings(Tensor):
    """A tensor [inputs, width] of embeddings, and the numbers of tokens of all inputs."""

    prompt_tokens: int = 0  # after truncation
    truncated_tokens: int = 0


@dataclass(frozen=True, repr=False)
class Encoding(_Short):
    """The requested outputs of one input; the others are None."""

    dense: Optional[Tensor] = None  # [width]
    sparse: Optional[dict[int, float]] = None  # weights of vocabulary terms, the heaviest first
    vectors: Optional[Tensor] = None  # [vectors, width], of a multi-vector model
    spans: Optional[Tensor] = None  # [spans, width]


class Classification(NamedTuple):
    """The scores of a classifier for one input: probabilities, unless `activation` is given."""

    label: int  # the label with the highest score
    scores: list[float]
    name: str = ""  # of the label, if the model names its labels


class ZeroShot(NamedTuple):
    """The candidate labels of a text, and their scores, the highest first."""

    labels: list[str]
    scores: list[float]


class Entity(NamedTuple):
    """A labelled part of a text, such as a person."""

    type: str  # the label; of a token classifier, without B- or I-
    score: float  # of a token classifier, the mean probability of the label
    begin: int  # [begin, end) in characters of the text
    end: int
    text: str


class Token(NamedTuple):
    """A token of a text."""

    id: int
    begin: int  # [begin, end) in characters of the text; -1 for special tokens
    end: int


class Ranked(NamedTuple):
    """The index of a document in the given list, and its score."""

    document: int
    score: float


class Recommendation(NamedTuple):
    """An item and its score, a logit."""

    item: int
    score: float


@dataclass(frozen=True, repr=False)
class Answer(_Short):
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
    """The daemon's metadata of a model."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorInfo]
    outputs: list[TensorInfo]  # the outputs returned by default
    properties: dict[str, str]


class IndexEntry(NamedTuple):
    """A version of a model that is served or in the daemon's repository."""

    name: str
    version: str
    state: str  # "READY" or "UNAVAILABLE"
    reason: str


class ServerInfo(NamedTuple):
    """The daemon's metadata of itself."""

    name: str
    version: str
    extensions: list[str]
