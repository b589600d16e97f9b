"""The errors of calls: one class for each status that callers handle differently."""

from __future__ import annotations

from typing import Any, Mapping, Optional


class SluiceError(Exception):
    """A call that failed.

    `code` is the gRPC status, such as "INVALID_ARGUMENT". `reason` is the daemon's machine-readable
    reason (`sluice-reason`), or empty. `retry_after_s` is the delay that the daemon requests before
    a retry, or None.
    """

    def __init__(
        self, message: str, code: str, reason: str = "", retry_after_s: Optional[float] = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason
        self.retry_after_s = retry_after_s


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


class DeadlineExceeded(SluiceError):
    """The deadline passed before the answer arrived."""


class Cancelled(SluiceError):
    """The call was cancelled."""


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
    try:
        after = max(0, int(retry_after_ms)) / 1000 if retry_after_ms else None
    except ValueError:
        after = None
    return kind(message, code, reason, after)


def error_of_rpc(error: Any) -> SluiceError:
    """Returns the error for an RpcError of gRPC's blocking or asyncio API."""
    trailers: Mapping[str, str] = dict(error.trailing_metadata() or ())
    return error_of(
        error.code().name,
        error.details() or error.code().name,
        trailers.get("sluice-reason", ""),
        trailers.get("grpc-retry-pushback-ms"),
    )
