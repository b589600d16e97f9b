"""What every handler uses: a request whose body has been read, its answer, and its failure."""

from __future__ import annotations

import json
import logging
import math
import re
from dataclasses import dataclass
from typing import Any, AsyncGenerator, Awaitable, Callable, Mapping, Optional, Protocol, Union

import msgspec

from .._channel import LONGER, OUTLAST
from ..errors import DeadlineExceeded, SluiceError
from ..tensors import Tensor, element_bytes
from .fairness import Caller
from .head import Head
from .hostile import Refused

_log = logging.getLogger("sluice_client.gateway")

# The HTTP status of each gRPC status. 499 appears only in metrics.
_STATUSES = {
    "INVALID_ARGUMENT": 400,
    "OUT_OF_RANGE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "ABORTED": 503,
    "CANCELLED": 499,
    "INTERNAL": 500,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
GONE = 499

# The texts of errors that gRPC itself makes. Its own texts name the address of the daemon. A call
# whose connection ends has the status UNKNOWN, INTERNAL, or CANCELLED if the daemon ends.
_LOST = "the connection to the daemon was lost; retry later"
_UNREACHABLE = {
    "UNAVAILABLE": "the daemon cannot be reached; retry later",
    "UNKNOWN": _LOST,
    "INTERNAL": _LOST,
    "CANCELLED": _LOST,
}

# Messages of the daemon that name its own protocol or leave out the reason, in the words of HTTP.
_WORDS = {
    "credential_missing": "the request has no bearer token; send the header Authorization: Bearer"
                          " TOKEN (api_key of OpenAI's clients)",
    "token_unknown": "the daemon does not know the bearer token in the header Authorization;"
                     " correct the token, or add it to the daemon's server.auth.callers_file",
}
_TOO_MANY_TOKENS = re.compile(
    r"parameter max_tokens is (\d+); expected an integer in \[0, ([1-9]\d*)\]")


_GENERATES_NOTHING = re.compile(
    r"parameter max_tokens is \d+; the model generates no tokens: (.*)")
_PARAMETER = re.compile(r"parameter (\w+)\b")


_LONGER = ("send a longer deadline in the header x-request-timeout-ms, or start the gateway with a"
           " longer --timeout")


def _in_http_words(error: SluiceError) -> str:
    if error.message.endswith(OUTLAST):
        return error.message.removesuffix(OUTLAST)
    if isinstance(error, DeadlineExceeded) and "--" not in error.message:
        named = error.message.replace(LONGER, _LONGER)
        return named if named != error.message else f"{named}; {_LONGER}"
    if found := _GENERATES_NOTHING.fullmatch(error.message):
        return (f"the model does not generate text: {found[1]}. Use another model, or a path for"
                " this model's outputs, such as /v1/embeddings or /v1/rerank")
    if found := _TOO_MANY_TOKENS.fullmatch(error.message):
        return (f"max_tokens is {found[1]}; the model's max_positions is {found[2]}, and the prompt"
                " and max_tokens share it. Lower max_tokens")
    return _WORDS.get(error.reason, error.message)


# A caller whose own share of the gateway is used up may retry after this time.
_SHARE_RETRY_S = 1.0

# A daemon that is away may be called again after this time.
_AWAY_RETRY_S = 2.0

_JSON_VALUES = 8192  # numbers that are encoded in one turn
_JSON_VALUE_BYTES = 24  # of a number in JSON, at most


@dataclass(frozen=True)
class Failure:
    """Why a call failed, in a form that every API can convert to its own."""

    status: int
    message: str
    field: Optional[str] = None  # the invalid field of the request, if any
    reason: str = ""  # the daemon's machine-readable reason
    retry_after_s: Optional[float] = None

    @staticmethod
    def of(error: Exception, row_field: str = "") -> Failure:
        """Returns the failure for an error; see HttpCall.row_field."""
        if isinstance(error, Refused):
            retry_s = _SHARE_RETRY_S if error.status in (429, 503) else None
            return Failure(error.status, error.message, error.field, error.reason, retry_s)
        if isinstance(error, SluiceError):
            status = _STATUSES.get(error.code, 500)
            message = _in_http_words(error)
            reason, retry_s = error.reason, error.retry_after_s
            if error.is_local and error.code in _UNREACHABLE:
                status, message, reason = 503, _UNREACHABLE[error.code], "unavailable"
            if status == 503 and retry_s is None:
                retry_s = _AWAY_RETRY_S
            field = None if error.item is None else row_field.format(error.item) or None
            if field is None and (found := _PARAMETER.match(message)):
                field = found[1]
            return Failure(status, message, field, reason, retry_s)
        _log.error("a handler failed", exc_info=error)
        return Failure(500, "internal error in the gateway; see its log")

    def headers(self) -> dict[str, str]:
        if self.status == 401:
            return {"www-authenticate": "Bearer"}
        if self.retry_after_s is None:
            return {}
        return {
            "retry-after": str(math.ceil(self.retry_after_s)),
            "retry-after-ms": str(math.ceil(self.retry_after_s * 1000)),
        }


class Api(Protocol):
    """Formats the errors of an API."""

    def __call__(self, failure: Failure) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class Whole:
    """A complete answer: JSON, or bytes with their own headers."""

    content: Any
    status: int = 200
    headers: Mapping[str, str] = ()  # type: ignore[assignment]


# A handler returns an answer, or a stream of events: JSON objects, or texts that are sent verbatim.
Events = AsyncGenerator[Union[Mapping[str, Any], str], None]
Answer = Union[Whole, Events]


@dataclass
class HttpCall:
    """A request whose body has been read."""

    headers: Head
    path: Mapping[str, str]  # the parameters in the path
    body: bytes
    options: Mapping[str, Any]  # for the calls to the daemon
    caller: Caller
    hold: Callable[[int], None]  # takes memory until the call has ended; raises Refused
    turn: Callable[[int], Awaitable[None]]  # waits for a turn to compute; see Turns.take
    rename: Callable[[str], None]  # sets the answer's x-request-id
    row_field: str = ""  # the field of a row, such as "input[{}]" with {} for the row's index

    async def json_of(self, tensor: Tensor, begin: int, count: int) -> msgspec.Raw:
        """Encodes elements of a tensor of fixed-size elements as a list in JSON.

        A float32 value is exact, because it is written as a double. Refuses values that are not
        finite. Other callers get turns in between.
        """
        self.hold(count * _JSON_VALUE_BYTES)
        size = element_bytes(tensor.datatype)
        pieces = []
        for at in range(begin, begin + count, _JSON_VALUES):
            values = min(_JSON_VALUES, begin + count - at)
            await self.turn(values * _JSON_VALUE_BYTES)
            raw = tensor.raw[at * size : (at + values) * size]
            piece = msgspec.json.encode(Tensor("", tensor.datatype, (values,), raw).values())
            if b"null" in piece:  # how the encoder writes NaN and infinity
                raise not_finite(tensor)
            pieces.append(piece[1:-1])
        return msgspec.Raw(b"[" + b",".join(pieces) + b"]")

    async def json_rows(self, tensor: Tensor) -> list[msgspec.Raw]:
        """Encodes each row of a tensor as `json_of` does."""
        width = math.prod(tensor.shape[1:])
        return [await self.json_of(tensor, i * width, width) for i in range(len(tensor))]

    async def rows(self, tensor: Tensor) -> AsyncGenerator[list[Any], None]:
        """Yields the values of each row. Other callers get turns in between."""
        for row in tensor.rows():
            await self.turn(row.size * _JSON_VALUE_BYTES)
            yield row.values()


def not_finite(tensor: Tensor) -> Refused:
    return Refused(400, f"the output {tensor.name} has NaN or infinite values, which JSON cannot"
                   " represent; request it in binary form (binary_data of /v2, or base64)")


def to_json(value: Any) -> bytes:
    """Encodes an answer. A float32 value is exact, because it is written as a double.

    An unpaired surrogate, which an error may quote from a request, becomes a question mark.
    """
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return text.encode(errors="replace")
