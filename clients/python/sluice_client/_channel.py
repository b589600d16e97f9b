"""How both clients connect, authenticate and retry."""

from __future__ import annotations

import copy
import numbers
import pathlib
import time
from dataclasses import dataclass
from typing import Any, Mapping, NamedTuple, Optional, Sequence, Union

import grpc

from .errors import (
    Cancelled,
    DeadlineExceeded,
    DeadlineUnreachable,
    SluiceError,
    Unavailable,
    is_away,
    late,
)
from .retry import Retry

# The daemon limits the size of messages, so the client does not. By default, the time between two
# attempts to connect grows to two minutes, in which a daemon that has restarted gets no calls.
_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1),
            ("grpc.max_reconnect_backoff_ms", 5000)]

_LONGEST_S = 1e8  # three years; gRPC fails at once with some longer deadlines

# How callers of the Python client avoid DeadlineExceeded. The gateway replaces these words.
LONGER = "give the call a longer deadline (timeout_s)"

# How callers of the Python client outlast a restart. The gateway removes these words.
OUTLAST = "; to repeat calls until a restart has ended, pass retry=Retry(attempts=12)"

Path = Union[str, "pathlib.Path"]


@dataclass(frozen=True)
class Tls:
    """How a client verifies the daemon and identifies itself.

    Without `ca_file`, the client trusts the system's certificate authorities. Set `server_name` if
    the name in the daemon's certificate differs from the address.
    """

    ca_file: Optional[Path] = None
    certificate_file: Optional[Path] = None
    key_file: Optional[Path] = None
    server_name: str = ""

    def credentials(self) -> grpc.ChannelCredentials:
        def content(path: Optional[Path]) -> Optional[bytes]:
            return None if path is None else pathlib.Path(path).read_bytes()

        return grpc.ssl_channel_credentials(
            content(self.ca_file), content(self.key_file), content(self.certificate_file)
        )


def check_address(address: str) -> None:
    if not isinstance(address, str):
        raise TypeError(f"address is {address!r}; expected a text HOST:PORT, such as"
                        " 'localhost:8001'")
    if "://" in address and not address.startswith(("dns://", "xds://", "unix://")):
        raise ValueError(f"address is {address!r}; expected HOST:PORT of the daemon's gRPC address,"
                         " without http:// (for TLS pass tls=Tls())")
    if ":" not in address.removeprefix("dns:///"):
        raise ValueError(f"address is {address!r} and has no port; expected HOST:PORT of the"
                         " daemon's gRPC address, such as localhost:8001")


def open_channel(
    module: Any, address: str, tls: Optional[Tls], options: Sequence[tuple[str, Any]]
) -> Any:
    """Opens a channel of `module`, which is grpc or grpc.aio."""
    settings = [*_OPTIONS, *options]
    if tls is not None and not isinstance(tls, Tls):
        raise TypeError(f"tls is {tls!r}; expected a Tls, such as Tls(), or None")
    if tls is None:
        return module.insecure_channel(address, options=settings)
    if tls.server_name:
        settings.append(("grpc.ssl_target_name_override", tls.server_name))
    return module.secure_channel(address, tls.credentials(), options=settings)


class Defaults(NamedTuple):
    """What a client's calls have in common."""

    address: str
    timeout_s: Optional[float]
    token: Optional[str]
    retry: Retry

    @staticmethod
    def checked(
        address: str, timeout_s: Optional[float], token: Optional[str], retry: Retry
    ) -> Defaults:
        check_address(address)
        if timeout_s is not None and not (_is_number(timeout_s) and timeout_s > 0):
            raise ValueError(f"timeout_s is {timeout_s!r}; expected a positive number of seconds,"
                             " or None")
        _check_token(token)
        if not isinstance(retry, Retry):
            raise TypeError(f"retry is {retry!r}; expected a Retry, such as Retry(attempts=3), or"
                            " NEVER for no retries")
        return Defaults(address, timeout_s, token, retry)


class Attempts:
    """The attempts of one call: its deadline, its metadata, and the number of failures.

    The option `timeout_s` limits the whole call. The client's timeout limits each request of it,
    because a call with a long list takes several requests. Requests that are in flight together
    need Attempts of their own; see `part`.
    """

    def __init__(self, options: Mapping[str, Any], defaults: Defaults) -> None:
        self._defaults = defaults
        self._is_whole = "timeout_s" in options
        self._timeout_s: Optional[float] = (
            options["timeout_s"] if self._is_whole else defaults.timeout_s)
        self._until = _from_now(self._timeout_s) if self._is_whole else None
        self._failures = self._away = 0
        self.is_part = False  # whether the request is a part of a list
        self.metadata = [*options.get("metadata", ())]
        if defaults.token is not None:
            self.metadata.append(("authorization", f"Bearer {defaults.token}"))

    def part(self) -> Attempts:
        """Returns the attempts of a part of the call, with the call's deadline and metadata."""
        made = copy.copy(self)
        made.is_part = True
        return made

    def queue_s(self) -> Optional[float]:
        """Returns the seconds for which a request may wait in the client; None if any time."""
        return self.remaining_s() if self._is_whole else None

    def begin(self) -> None:
        """Starts a request of the call."""
        self._failures = self._away = 0
        if not self._is_whole:
            self._until = _from_now(self._timeout_s)

    def remaining_s(self) -> Optional[float]:
        """Returns the seconds until the deadline, or None if there is no deadline.

        Raises DeadlineExceeded if the deadline has passed.
        """
        if self._until is None:
            return None
        left = self._until - time.monotonic()
        if left <= 0:
            raise late(f"the call's deadline of {self._timeout_s:g} s passed before this request"
                       f" was sent; {LONGER}, or send fewer inputs")
        return left

    def delay_s(self, error: SluiceError) -> float:
        """Returns the seconds to wait before the next attempt; raises `error` if there is none."""
        self._failures += 1
        self._away += is_away(error)
        left = float("inf") if self._until is None else self._until - time.monotonic()
        delay = self._defaults.retry.delay_s(error, self._failures, self._away, left)
        if delay is None:
            raise self.explained(error)
        return delay

    def explained(self, error: SluiceError) -> SluiceError:
        """Returns the error, or if gRPC made it, one that names the address or the deadline."""
        if isinstance(error, DeadlineUnreachable) and self._timeout_s is not None:
            error.message = (
                "by the daemon's forecast, the answer would not be complete within the call's"
                f" deadline of {self._timeout_s:g} s; {LONGER}, send fewer inputs, or retry later")
            error.args = (error.message,)
        elif isinstance(error, Unavailable) and error.reason == "draining":
            error.message += OUTLAST
            error.args = (error.message,)
        if error.is_local and isinstance(error, Unavailable):
            made = Unavailable(
                f"no daemon answers by gRPC at {self._defaults.address}: it does not run, it is"
                " stopping, its gRPC address has another port, or only one side uses TLS"
                f" (tls=Tls()). gRPC reports: {error.message}", error.code, error.reason)
            made.is_local = True
            return made
        if error.is_local and isinstance(error, Cancelled):
            stopped = Cancelled(
                f"the daemon at {self._defaults.address} ended the call without an answer, as it"
                " does while it stops or restarts; the client did not cancel the call. Call again"
                f" later, or allow more attempts (retry=Retry(attempts=12)). gRPC reports:"
                f" {error.message}", error.code, error.reason)
            stopped.is_local = True
            return stopped
        if not (error.is_local and isinstance(error, DeadlineExceeded)) or self._until is None:
            return error
        return late(f"no answer within the call's deadline of {self._timeout_s:g} s; {LONGER}, or"
                    " send fewer inputs")


def closed() -> SluiceError:
    """Returns the error of a call by a client that has been closed."""
    return SluiceError("the client is closed; make a new one, or make the call before close() and"
                       " inside of the with block", "FAILED_PRECONDITION", "failed_precondition")


def cut_off(error: Optional[SluiceError] = None) -> SluiceError:
    """Returns the error of a call that ended, with `error` if given, when its client was closed."""
    if error is not None and not is_away(error):
        return error
    return Cancelled("the client was closed during the call; close it after its calls have ended",
                     "CANCELLED")


def _check_token(token: Any) -> None:
    """Raises an error for a token that cannot be sent. The error does not contain the token."""
    if token is None:
        return
    if not isinstance(token, str):
        raise TypeError(f"token is of type {type(token).__name__}; expected a str, or None")
    for i, each in enumerate(token):
        if not " " <= each <= "~":
            raise ValueError(f"token: character {i} of {len(token)} is a line break or is not"
                             " printable ASCII. If the token is read from a file, remove its line"
                             " break with strip()")


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _from_now(seconds: Optional[float]) -> Optional[float]:
    if seconds is None:
        return None
    if not _is_number(seconds):
        raise TypeError(f"timeout_s must be a number of seconds or None, not {seconds!r}")
    if seconds != seconds:
        raise ValueError("timeout_s is NaN; expected a number of seconds, or None")
    if seconds < 0:
        raise ValueError(f"timeout_s is {seconds!r}; expected a positive number of seconds, or"
                         " None")
    return time.monotonic() + float(min(seconds, _LONGEST_S))
