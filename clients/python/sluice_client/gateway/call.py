"""What every handler uses: a request whose body has been read, its answer, and its failure."""

from __future__ import annotations

import json
import logging
import math
from dataclasses import dataclass
from typing import Any, AsyncGenerator, Awaitable, Callable, Mapping, Optional, Protocol, Union

import msgspec

from ..errors import SluiceError
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

# The daemon's words for statuses that gRPC or the gateway gives without a reason.
_REASONS = {"DEADLINE_EXCEEDED": "deadline", "UNAVAILABLE": "unavailable"}

# A caller whose own share of the gateway is used up may retry after this time.
_SHARE_RETRY_S = 1.0

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
    def of(error: Exception) -> Failure:
        if isinstance(error, Refused):
            retry_s = _SHARE_RETRY_S if error.status == 429 else None
            return Failure(error.status, error.message, error.field, error.reason, retry_s)
        if isinstance(error, SluiceError):
            status = _STATUSES.get(error.code, 500)
            message = error.message
            if not error.reason and error.code in _UNREACHABLE:
                status, message = 503, _UNREACHABLE[error.code]
            reason = error.reason or _REASONS.get(error.code, "")
            return Failure(status, message, None, reason, error.retry_after_s)
        _log.error("a handler failed", exc_info=error)
        return Failure(500, "internal error in the gateway; see its log")

    def headers(self) -> dict[str, str]:
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


@dataclass(frozen=True)
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
