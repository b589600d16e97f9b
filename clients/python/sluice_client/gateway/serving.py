"""Handles one HTTP call from its first byte to its last, for every API.

An endpoint reads and limits the body, calls the handler, and writes the answer. Until the answer is
complete it watches for the caller's disconnect. If the caller disconnects, the handler is
cancelled, which cancels its calls to the daemon. Every error becomes a response in the format of
the API.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, AsyncGenerator, Awaitable, Callable, Mapping, Optional, Protocol, Union

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.datastructures import Headers

from ..aio import AsyncClient
from ..errors import SluiceError
from .chat import ChatTemplate
from .hostile import Disconnected, Limits, Refused, read_body
from .tracing import Span, Tracing

_log = logging.getLogger("sluice_client.gateway")

Send = Callable[[Any], Awaitable[None]]

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

# The entry in an ASGI scope's state: a function that drops the connection.
ABORT = "abort"

_PIECE_BYTES = 64 << 10


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
            return Failure(error.status, error.message, error.field)
        if isinstance(error, SluiceError):
            status = _STATUSES.get(error.code, 500)
            return Failure(status, error.message, None, error.reason, error.retry_after_s)
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

    headers: Headers
    path: Mapping[str, str]  # the parameters in the path
    body: bytes
    options: Mapping[str, Any]  # for the calls to the daemon


Handler = Callable[["Gateway", HttpCall], Awaitable[Answer]]


class Metrics:
    """The gateway's metrics, in a separate registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "sluice_gateway_requests",
            "Requests by route and HTTP status; 499: the caller disconnected.",
            ["route", "code"],
            registry=self.registry,
        )
        self.duration = Histogram(
            "sluice_gateway_request_duration_seconds",
            "Time from the head of a request to the end of its answer.",
            ["route"],
            buckets=(1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
            registry=self.registry,
        )
        self.in_flight = Gauge(
            "sluice_gateway_requests_in_flight",
            "Requests in progress.",
            registry=self.registry,
        )


class Gateway:
    """The state that all handlers share."""

    def __init__(
        self,
        client: AsyncClient,
        *,
        limits: Limits = Limits(),
        templates: Mapping[str, ChatTemplate] = {},
        origins: frozenset[str] = frozenset(),
        default_max_tokens: int = 128,
        tracing: Optional[Tracing] = None,
    ) -> None:
        self.client = client
        self.limits = limits
        self.templates = templates
        self.origins = origins
        self.default_max_tokens = default_max_tokens
        self.tracing = tracing or Tracing()
        self.metrics = Metrics()
        self.started = int(time.time())
        self.in_flight = 0
        self.pending_bytes = 0


class Endpoint:
    """An ASGI application for one route."""

    def __init__(self, gateway: Gateway, route: str, api: Api, handler: Handler) -> None:
        self._gateway = gateway
        self._route = route
        self._api = api
        self._handler = handler

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        gateway = self._gateway
        writer = _Writer(scope, send, gateway.limits.stall_timeout_s)
        began = time.monotonic()
        gateway.in_flight += 1
        gateway.metrics.in_flight.inc()
        held = 0

        def hold(size: int) -> None:
            nonlocal held
            if gateway.pending_bytes + size > gateway.limits.max_pending_bytes:
                raise Refused(503, "the gateway holds too many bytes of requests"
                              " (--max-pending-bytes); retry later")
            held += size
            gateway.pending_bytes += size

        headers = Headers(scope=scope)
        try:
            with gateway.tracing.span(scope["method"], self._route, headers) as span:
                try:
                    await self._serve(headers, scope, receive, writer, hold, span)
                finally:
                    span.end(writer.status or GONE)
        finally:
            gateway.pending_bytes -= held
            gateway.in_flight -= 1
            gateway.metrics.in_flight.dec()
            gateway.metrics.requests.labels(self._route, str(writer.status or GONE)).inc()
            gateway.metrics.duration.labels(self._route).observe(time.monotonic() - began)

    async def _serve(
        self,
        headers: Headers,
        scope: Any,
        receive: Any,
        writer: _Writer,
        hold: Callable[[int], None],
        span: Span,
    ) -> None:
        limits = self._gateway.limits
        try:
            self._admit(headers)
            options = call_options(headers, limits, span.traceparent())
            body = await read_body(receive, headers.get("content-length"), limits, hold)
        except Disconnected:
            return
        except Refused as refused:
            # The rest of the body is not read, so the connection cannot be reused.
            return await self._fail(writer, Failure.of(refused), {"connection": "close"})
        call = HttpCall(headers, scope.get("path_params", {}), body, options)
        work = asyncio.ensure_future(self._answer(call, writer))
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                writer.status = GONE
        finally:
            for task in (work, gone):
                task.cancel()
            await asyncio.wait({work, gone})
        if not work.cancelled() and work.exception() is not None:
            raise work.exception()  # type: ignore[misc]

    def _admit(self, headers: Headers) -> None:
        """Refuses a call from a page of a foreign origin, or a call over the limit."""
        origin = headers.get("origin")
        if origin is not None and not {"*", origin} & self._gateway.origins:
            raise Refused(403, f"pages of the origin {origin[:100]!r} are not allowed"
                          " (--allow-origin)")
        if self._gateway.in_flight > self._gateway.limits.max_in_flight:
            raise Refused(503, "the gateway has too many calls in progress (--max-in-flight);"
                          " retry later")

    async def _answer(self, call: HttpCall, writer: _Writer) -> None:
        try:
            answer = await self._handler(self._gateway, call)
            if isinstance(answer, Whole):
                await writer.whole(answer)
                return
            async with aclosing(answer) as events:
                await self._stream(events, writer)
        except _Stalled:
            await writer.give_up()
        except Exception as error:  # Every error becomes a response.
            await self._fail(writer, Failure.of(error))

    async def _stream(self, events: Events, writer: _Writer) -> None:
        """Writes events. The first event decides the status, so that a refusal has its own."""
        first = await events.__anext__()
        await writer.begin_events()
        await writer.event(first)
        try:
            async for event in events:
                await writer.event(event)
        except _Stalled:
            raise
        except Exception as error:
            await writer.event(self._api(Failure.of(error)))
        await writer.end()

    async def _fail(
        self, writer: _Writer, failure: Failure, headers: Mapping[str, str] = {}
    ) -> None:
        try:
            await writer.whole(
                Whole(self._api(failure), failure.status, {**failure.headers(), **headers})
            )
        except _Stalled:
            await writer.give_up()


async def _disconnected(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class _Stalled(Exception):
    """The caller does not receive its answer in time."""


class _Writer:
    """Writes a response, and limits the time for the caller to receive each piece."""

    def __init__(self, scope: Any, send: Send, stall_timeout_s: float) -> None:
        self._send = send
        self._stall_timeout_s = stall_timeout_s
        self._abort = scope.get("state", {}).get(ABORT)
        self.status: Optional[int] = None

    async def give_up(self) -> None:
        """Drops the connection and its buffered data; a close would wait until they are sent."""
        self.status = GONE
        if self._abort is not None:
            self._abort()
            await asyncio.sleep(0)

    async def whole(self, answer: Whole) -> None:
        content, headers = answer.content, dict(answer.headers)
        if not isinstance(content, bytes):
            content = to_json(content)
            headers["content-type"] = "application/json"
        headers["content-length"] = str(len(content))
        await self._start(answer.status, headers)
        await self._put(content, False)

    async def begin_events(self) -> None:
        await self._start(
            200,
            {
                "content-type": "text/event-stream; charset=utf-8",
                "cache-control": "no-store",
                "x-accel-buffering": "no",
            },
        )

    async def event(self, event: Union[Mapping[str, Any], str]) -> None:
        data = event.encode() if isinstance(event, str) else to_json(event)
        await self._put(b"data: " + data + b"\n\n", True)

    async def end(self) -> None:
        await self._put(b"", False)

    async def _start(self, status: int, headers: Mapping[str, str]) -> None:
        self.status = status
        encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        encoded.append((b"x-content-type-options", b"nosniff"))
        await self._send({"type": "http.response.start", "status": status, "headers": encoded})

    async def _put(self, body: bytes, more: bool) -> None:
        # send waits until the earlier data is sent, not until the piece passed to it is sent.
        for begin in range(0, max(1, len(body)), _PIECE_BYTES):
            piece = body[begin : begin + _PIECE_BYTES]
            last = begin + _PIECE_BYTES >= len(body)
            message = {"type": "http.response.body", "body": piece, "more_body": more or not last}
            try:
                await asyncio.wait_for(self._send(message), self._stall_timeout_s)
            except asyncio.TimeoutError:
                raise _Stalled from None


def to_json(value: Any) -> bytes:
    """Encodes an answer. A float32 value is exact, because it is written as a double.

    An unpaired surrogate, which an error may quote from a request, becomes a question mark.
    """
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.encode(errors="replace")


def call_options(
    headers: Headers, limits: Limits, traceparent: Optional[str] = None
) -> dict[str, Any]:
    """Returns the options of calls to the daemon that the headers of a request set.

    `x-request-timeout-ms` is a deadline and `x-request-id` names the request. `authorization`,
    `traceparent` and `tracestate` are passed on. `traceparent` replaces the caller's.
    """
    timeout_s = limits.timeout_s
    if (asked := headers.get("x-request-timeout-ms")) is not None:
        if not asked.isdecimal() or not asked.isascii() or not 0 < len(asked) <= 12:
            raise Refused(400, "the header x-request-timeout-ms must be a number of milliseconds"
                          " of at most 12 digits")
        timeout_s = min(int(asked) / 1000, limits.max_timeout_s)
    request_id = headers.get("x-request-id", "")
    if len(request_id) > 256 or not _printable(request_id):
        raise Refused(400, "x-request-id must be at most 256 printable ASCII characters")
    passed = []
    for name in ("authorization", "traceparent", "tracestate"):
        value = headers.get(name)
        if value is not None:
            if not _printable(value):
                raise Refused(400, f"the header {name} has characters that are not printable ASCII")
            passed.append((name, value))
    if traceparent is not None:
        passed = [each for each in passed if each[0] != "traceparent"]
        passed.append(("traceparent", traceparent))
    return {"timeout_s": timeout_s, "request_id": request_id, "metadata": passed}


def _printable(value: str) -> bool:
    return all(" " <= each <= "~" for each in value)
