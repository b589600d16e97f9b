"""The errors of calls: one class for each status that callers handle differently."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import Any, Callable, Iterator, Mapping, Optional


# The reasons of docs/errors.md for errors of gRPC or the client.
_REASONS = {"DEADLINE_EXCEEDED": "deadline", "UNAVAILABLE": "unavailable",
            "CANCELLED": "cancelled", "UNIMPLEMENTED": "unimplemented"}


class SluiceError(Exception):
    """A call that failed.

    `code` is the gRPC status, such as "INVALID_ARGUMENT". `reason` is the machine-readable reason
    of docs/errors.md, or empty. `retry_after_s` is the delay that the daemon requests before a
    retry, or None. `item` is the index in the call's list of the input that is refused, or None.
    """

    def __init__(
        self, message: str, code: str, reason: str = "", retry_after_s: Optional[float] = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason or _REASONS.get(code, "")
        self.retry_after_s = retry_after_s
        self.item: Optional[int] = None
        self.is_local = False  # gRPC or the client made this error, not the daemon

    def __reduce__(self) -> tuple[Any, ...]:
        # By default, pickle calls the class with the message only.
        return _unpickled, (type(self), self.args), self.__dict__


def _unpickled(kind: type[SluiceError], args: tuple[Any, ...]) -> SluiceError:
    made = kind.__new__(kind, *args)
    made.args = args  # The constructor of OSError drops them.
    return made


class InvalidArgument(SluiceError):
    """The request is malformed; the message names the field and its limit."""


class NotFound(SluiceError):
    """The model or its version is not served."""


class NotServed(SluiceError):
    """The daemon or the model does not support this task."""


class Overloaded(SluiceError):
    """The daemon refused the request because it is overloaded or a limit was reached."""


class Unavailable(SluiceError):
    """The daemon cannot be reached, is draining, or is not ready."""


class DeadlineExceeded(SluiceError, TimeoutError):
    """The deadline passed before the answer arrived."""


class DeadlineUnreachable(DeadlineExceeded, Overloaded):
    """The daemon refused the request: its answer would not be complete before the deadline.

    The deadline is too short for the request, or for the other requests of the daemon.
    """


class Cancelled(SluiceError):
    """The call was cancelled."""


class ModelChanged(SluiceError):
    """The model was reloaded with other content during a call that takes several requests."""


def is_away(error: SluiceError) -> bool:
    """Returns whether the daemon is unavailable, or ended the call as it stopped.

    gRPC cancels the calls that it has not handed over when a daemon stops. The error has no reason.
    """
    return isinstance(error, Unavailable) or error.is_local and isinstance(error, Cancelled)


class NotAllowed(SluiceError):
    """The daemon does not recognise the caller, or does not allow the call."""


_CLASSES = {
    "INVALID_ARGUMENT": InvalidArgument,
    "NOT_FOUND": NotFound,
    "UNIMPLEMENTED": NotServed,
    "RESOURCE_EXHAUSTED": Overloaded,
    "UNAVAILABLE": Unavailable,
    "DEADLINE_EXCEEDED": DeadlineExceeded,
    "CANCELLED": Cancelled,
    "UNAUTHENTICATED": NotAllowed,
    "PERMISSION_DENIED": NotAllowed,
}


def error_of(
    code: str, message: str, reason: str = "", retry_after_ms: Optional[str] = None
) -> SluiceError:
    """Returns the error for a status. `retry_after_ms` is the push-back as decimal text."""
    kind = _CLASSES.get(code, SluiceError)
    if reason == "deadline_unreachable":
        kind = DeadlineUnreachable
    try:
        after = max(0, int(retry_after_ms)) / 1000 if retry_after_ms else None
    except ValueError:
        after = None
    return kind(message, code, reason, after)


def error_of_rpc(error: Any) -> SluiceError:
    """Returns the error for an RpcError of gRPC's blocking or asyncio API."""
    trailers: Mapping[str, str] = dict(error.trailing_metadata() or ())
    code, reason = error.code().name, trailers.get("sluice-reason", "")
    made = error_of(
        code,
        error.details() or code,
        reason,
        trailers.get("grpc-retry-pushback-ms"),
    )
    made.is_local = not reason
    return made


def late(message: str) -> DeadlineExceeded:
    """Returns the client's own error for a deadline that has passed."""
    return DeadlineExceeded(message, "DEADLINE_EXCEEDED")


# The place of a row in a message of the daemon.
_ROW = re.compile(
    r"(?:input (text_input|text_pair_input|input_ids|input_lengths)|parameter (spans):) \[(\d+)")


@contextmanager
def naming_items(item_of: Callable[[str, int], Optional[int]]) -> Iterator[None]:
    """A context whose errors name an item of the caller's list instead of a row of a request.

    `item_of` returns the item of a row, or None if the row belongs to no item. It gets the name of
    the tensor or parameter, or "pair" if the row is too long with its pair.
    """
    try:
        yield
    except SluiceError as error:
        if found := _ROW.match(error.message):
            name, row = found[1] or found[2], found[3]
            is_pair = "tokens with its pair" in error.message
            error.item = item_of("pair" if is_pair else name, int(row))
            if error.item is not None:
                rest = re.sub(rf"\brow {row}\b", f"row {error.item}", error.message[found.end():])
                error.message = f"{error.message[: found.start(3)]}{error.item}{rest}"
                error.args = (error.message,)
        raise
