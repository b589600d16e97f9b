"""Handles one HTTP call from its first byte to its last, for every API.

An endpoint reads and limits the body, calls the handler, and writes the answer. Until the answer is
complete it watches for the caller's disconnect. If the caller disconnects, the handler is
cancelled, which cancels its calls to the daemon. Every error becomes a response in the format of
the API.
"""

from __future__ import annotations

import asyncio
import copy
import ipaddress
import json
import logging
import math
import re
import time
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import (
    Any,
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Mapping,
    Optional,
    Protocol,
    Sequence,
    Union,
)

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.datastructures import Headers

from .. import _protocol, tasks
from .._channel import Attempts
from ..aio import AsyncClient
from ..errors import DeadlineExceeded, SluiceError
from ..options import Prompt
from ..results import Generation
from ..tensors import Tensor, element_bytes
from .chat import ChatTemplate, Renderer
from .fairness import Account, Caller, Places, Refusals, Turns, caller_of
from .hostile import Disconnected, Limits, Refused, read_body, within
from .models import Models
from .protocol import ABORT
from .tracing import Span, Tracing

_log = logging.getLogger("sluice_client.gateway")

Send = Callable[[Any], Coroutine[Any, Any, None]]

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

_PIECE_BYTES = 64 << 10

# Most bytes of `authorization` that are passed on. gRPC ends the connection, with the calls of all
# callers, if the headers of a call exceed the daemon's limit of 8 KiB.
_MAX_AUTHORIZATION_BYTES = 4096
_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)
_MAX_TRACESTATE_BYTES = 512

_PRIVATE_NAMES = (".localhost", ".local", ".internal", ".svc")

# The texts of errors that gRPC itself makes. Its own texts name the daemon's address.
_UNREACHABLE = {
    "UNAVAILABLE": "the daemon cannot be reached; retry later",
    "UNKNOWN": "the call to the daemon failed",
}

# A caller whose own share of the gateway is used up may retry after this time.
_SHARE_RETRY_S = 1.0

# Bytes of an answer of the daemon, of its tensors, and of their copies, for each of its bytes.
_COST_OF_ANSWER_BYTE = 4
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
                message = _UNREACHABLE[error.code]
            return Failure(status, message, None, error.reason, error.retry_after_s)
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
    caller: Caller
    hold: Callable[[int], None]  # takes memory until the call has ended; raises Refused
    turn: Callable[[int], Awaitable[None]]  # waits for a turn to compute; see Turns.take

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


Handler = Callable[["Gateway", HttpCall], Coroutine[Any, Any, Answer]]


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
        self.refusals = Refusals(self.registry)
        self.memory = Gauge(
            "sluice_gateway_memory_held_bytes",
            "Estimated memory of the requests in progress; --max-pending-bytes is the limit.",
            registry=self.registry,
        )
        self.in_flight = Gauge(
            "sluice_gateway_requests_in_flight",
            "Requests in progress.",
            registry=self.registry,
        )


class Connections:
    """The connections to the daemon, and the places for calls at it."""

    def __init__(self, clients: Sequence[AsyncClient], max_calls: int) -> None:
        self._clients = clients
        self._calls = [0] * len(clients)
        self._places = Places(max_calls)

    @property
    def first(self) -> AsyncClient:
        return self._clients[0]

    @asynccontextmanager
    async def place(
        self, caller: Caller, timeout_s: Optional[float]
    ) -> AsyncIterator[AsyncClient]:
        """Waits for a place for a call, and holds it while the context is open."""
        if not self._places.take(caller):
            try:
                await within(timeout_s, self._places.wait(caller))
            except asyncio.TimeoutError:
                raise DeadlineExceeded("the deadline passed while the call waited for other calls"
                                       " (--max-daemon-calls)", "DEADLINE_EXCEEDED") from None
        chosen = self._calls.index(min(self._calls))
        self._calls[chosen] += 1
        aborted = True
        try:
            yield self._clients[chosen]
            aborted = False
        except Exception:
            aborted = False
            raise
        finally:
            self._calls[chosen] -= 1
            self._places.give_back(caller, aborted)


class CallersClient(AsyncClient):
    """A client whose calls take the places, the turns and the memory of one caller.

    A call waits for a place for at most its deadline, or the client's timeout.
    """

    def __init__(self, connections: Connections, call: HttpCall) -> None:
        self._connections = connections
        self._call = call
        self._defaults = connections.first._defaults

    async def _answer(self, call: tasks.Call, attempts: Attempts) -> _protocol.Message:
        attempts.begin()
        async with self._connections.place(self._call.caller, attempts.remaining_s()) as client:
            # gRPC copies and encodes the message on the event loop.
            await self._call.turn(call.request.ByteSize())
            answer = await client._answer(call, attempts)
        size = answer.ByteSize()
        self._call.hold(size * _COST_OF_ANSWER_BYTE)
        await self._call.turn(size)
        return answer

    async def sparse(
        self, model: str, prompts: Sequence[Prompt], options: Mapping[str, Any]
    ) -> tasks.Parts:
        """Returns the tensors of `embed_sparse`."""
        return await self._run(tasks.sparse(model, prompts, options), options)

    async def _parts(
        self, request: _protocol.Message, options: Mapping[str, Any]
    ) -> AsyncGenerator[Generation, None]:
        attempts = Attempts(options, *self._defaults)
        attempts.begin()
        async with self._connections.place(self._call.caller, attempts.remaining_s()) as client:
            await self._call.turn(request.ByteSize())
            if "timeout_s" in options:
                options = {**options, "timeout_s": attempts.remaining_s()}
            async with aclosing(client._parts(request, options)) as parts:
                async for part in parts:
                    yield part


class Readiness:
    """Calls the daemon to learn whether it is ready. Concurrent probes share one call."""

    def __init__(self, client: AsyncClient, timeout_s: float = 2.0) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._asking: Optional[asyncio.Future[bool]] = None
        self._draining = False

    def drain(self) -> None:
        """From now on the gateway is not ready."""
        self._draining = True

    async def ready(self) -> bool:
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._ask())
        return await asyncio.shield(self._asking) and not self._draining

    async def _ask(self) -> bool:
        try:
            return await self._client.server_ready(timeout_s=self._timeout_s)
        except SluiceError:
            return False


class Gateway:
    """The state that all handlers share. A handler's `client` takes the places of its caller."""

    client: CallersClient

    def __init__(
        self,
        clients: Sequence[AsyncClient],
        *,
        limits: Limits = Limits(),
        templates: Mapping[str, ChatTemplate] = {},
        origins: frozenset[str] = frozenset(),
        hosts: frozenset[str] = frozenset(),
        default_max_tokens: int = 128,
        default_model: str = "",
        allow_token_ids: bool = False,
        tracing: Optional[Tracing] = None,
    ) -> None:
        """`clients` are connections to the daemon."""
        self.connections = Connections(clients, limits.max_daemon_calls)
        self.models = Models(allow_token_ids, default_model)
        self.readiness = Readiness(clients[0])
        self.renderer = Renderer(templates, limits.max_body_bytes, limits.template_timeout_s)
        self.hosts = hosts
        self.limits = limits
        self.templates = templates
        self.origins = origins
        self.default_max_tokens = default_max_tokens
        self.tracing = tracing or Tracing()
        self.metrics = Metrics()
        self.started = int(time.time())
        self.calls = Account(limits.max_in_flight)
        self.memory = Account(limits.max_pending_bytes)
        self.turns = Turns()

    def of(self, call: HttpCall) -> Gateway:
        """Returns a gateway with the same state, whose client makes requests for `call`."""
        made = copy.copy(self)
        made.client = CallersClient(self.connections, call)
        made.models = self.models.of(made.client)
        return made


class Endpoint:
    """An ASGI application for one route."""

    def __init__(self, gateway: Gateway, route: str, api: Api, handler: Handler) -> None:
        self._gateway = gateway
        self._route = route
        self._api = api
        self._handler = handler

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        gateway = self._gateway
        headers = Headers(scope=scope)
        peer = scope.get("client") or ("", 0)
        use = _Use(gateway, caller_of(peer[0], headers.get("authorization")))
        writer = _Writer(scope, send, gateway.limits.stall_timeout_s)
        began = time.monotonic()
        gateway.metrics.in_flight.inc()
        try:
            with gateway.tracing.span(scope["method"], self._route, headers) as span:
                try:
                    await self._serve(headers, scope, receive, writer, use, span)
                finally:
                    span.end(writer.status or GONE)
        finally:
            use.end()
            gateway.metrics.in_flight.dec()
            gateway.metrics.requests.labels(self._route, str(writer.status or GONE)).inc()
            gateway.metrics.duration.labels(self._route).observe(time.monotonic() - began)

    async def _serve(
        self, headers: Headers, scope: Any, receive: Any, writer: _Writer, use: _Use, span: Span
    ) -> None:
        limits = self._gateway.limits
        try:
            self._check_head(headers)
            use.begin()
            options = call_options(headers, limits, use.caller.address, span.traceparent())
            body = await read_body(receive, headers.get("content-length"), limits, use.hold)
        except Disconnected:
            return
        except Refused as refused:
            # The rest of the body is not read, so the connection cannot be reused.
            return await self._fail(writer, self._refused(refused, use), {"connection": "close"})
        path = scope.get("path_params", {})
        call = HttpCall(headers, path, body, options, use.caller, use.hold, use.turn)
        work = asyncio.ensure_future(self._answer(call, writer, use))
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

    def _check_head(self, headers: Headers) -> None:
        """Refuses a call from a page of a foreign origin, to a foreign name of this host, or with
        a compressed body."""
        host = headers.get("host")
        if host is not None and not is_own_host(host, self._gateway.hosts):
            raise Refused(421, f"{host[:100]!r} is not a name of this gateway (--host)",
                          reason="host")
        origin = headers.get("origin")
        if origin is not None and not {"*", origin} & self._gateway.origins:
            raise Refused(403, f"pages of the origin {origin[:100]!r} are not allowed"
                          " (--allow-origin)", reason="origin")
        coding = headers.get("content-encoding", "identity")
        if coding.lower() != "identity":
            raise Refused(415, f"the body has the coding {coding[:100]!r}; send it without"
                          " content-encoding")

    def _refused(self, refused: Refused, use: _Use) -> Failure:
        if refused.reason:
            refusals = self._gateway.metrics.refusals
            refusals.add(refused.reason, use.caller.address, refused.message)
        return Failure.of(refused)

    async def _answer(self, call: HttpCall, writer: _Writer, use: _Use) -> None:
        try:
            await call.turn(len(call.body))
            most_s = self._gateway.limits.max_timeout_s
            try:
                answer = await within(most_s, self._handler(self._gateway.of(call), call))
            except asyncio.TimeoutError:
                raise Refused(504, f"the call did not end within {most_s:g} s (--max-timeout);"
                              " send fewer rows") from None
            if isinstance(answer, Whole):
                await writer.whole(answer)
                return
            async with aclosing(answer) as events:
                await self._stream(events, writer)
        except _Stalled:
            self._stalled(use)
            await writer.give_up()
        except Refused as refused:
            await self._fail(writer, self._refused(refused, use))
        except Exception as error:  # Every error becomes a response.
            await self._fail(writer, Failure.of(error))

    def _stalled(self, use: _Use) -> None:
        self._gateway.metrics.refusals.add(
            "stalled", use.caller.address, "the answer was not read in time (--stall-timeout)")

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


class _Use:
    """The resources that one call holds."""

    def __init__(self, gateway: Gateway, caller: Caller) -> None:
        self.caller = caller
        self._gateway = gateway
        self._begun = False
        self._held = 0

    def begin(self) -> None:
        """Counts the call, or refuses it."""
        refused = self._gateway.calls.take(self.caller, 1)
        if refused:
            raise Refused(
                _status(refused), f"{_whose(refused)} too many calls in progress"
                " (--max-in-flight); retry later", reason="calls")
        self._begun = True

    def hold(self, size: int) -> None:
        """Takes memory until the call has ended, or refuses it."""
        gateway = self._gateway
        refused = gateway.memory.take(self.caller, size)
        if not refused:
            self._held += size
            gateway.metrics.memory.set(gateway.memory.held)
        elif self._held + size > gateway.memory.limit:
            raise Refused(413, f"the request needs about {self._held + size} bytes of memory; the"
                          f" limit is {gateway.memory.limit} (--max-pending-bytes)",
                          reason="memory")
        else:
            raise Refused(_status(refused), f"{_whose(refused)} too many bytes of requests"
                          " (--max-pending-bytes); retry later", reason="memory")

    async def turn(self, size: int) -> None:
        await self._gateway.turns.take(self.caller, size)

    def end(self) -> None:
        if self._begun:
            self._gateway.calls.give_back(self.caller, 1)
        self._gateway.memory.give_back(self.caller, self._held)
        self._gateway.metrics.memory.set(self._gateway.memory.held)


def _status(refusal: str) -> int:
    return 503 if refusal == "full" else 429


def _whose(refusal: str) -> str:
    return "the gateway has" if refusal == "full" else "this caller has"


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
                await within(self._stall_timeout_s, self._send(message))
            except asyncio.TimeoutError:
                raise _Stalled from None


def to_json(value: Any) -> bytes:
    """Encodes an answer. A float32 value is exact, because it is written as a double.

    An unpaired surrogate, which an error may quote from a request, becomes a question mark.
    """
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return text.encode(errors="replace")


def is_own_host(host: str, own: frozenset[str]) -> bool:
    """Returns whether a Host header is an address, a private name, or one of `own`.

    A page of another site whose name resolves to this gateway is refused by this, although its
    requests have no Origin (DNS rebinding).
    """
    name = host[1 : host.find("]")] if host.startswith("[") else host.partition(":")[0]
    name = name.lower()
    if "*" in own or name in own or "." not in name and ":" not in name:
        return True
    if name.endswith(_PRIVATE_NAMES):
        return True
    try:
        ipaddress.ip_address(name)
        return True
    except ValueError:
        return False


def call_options(
    headers: Headers, limits: Limits, address: str = "", traceparent: Optional[str] = None
) -> dict[str, Any]:
    """Returns the options of calls to the daemon that the headers of a request set.

    `x-request-timeout-ms` is the deadline of the whole call and `x-request-id` names the request.
    `authorization` and a well-formed trace context are passed on. `traceparent` replaces the
    caller's. Callers without `authorization` take turns at the daemon by their `address`.
    """
    options: dict[str, Any] = {}
    if (asked := headers.get("x-request-timeout-ms")) is not None:
        if not asked.isdecimal() or not asked.isascii() or not 0 < len(asked) <= 12:
            raise Refused(400, "the header x-request-timeout-ms must be a number of milliseconds"
                          " of at most 12 digits")
        options["timeout_s"] = min(int(asked) / 1000, limits.max_timeout_s)
    request_id = headers.get("x-request-id", "")
    if len(request_id) > 256 or not _printable(request_id):
        raise Refused(400, "x-request-id must be at most 256 printable ASCII characters")
    passed = []
    if (authorization := headers.get("authorization")) is not None:
        if len(authorization) > _MAX_AUTHORIZATION_BYTES:
            raise Refused(431, f"the header authorization has {len(authorization)} bytes; the limit"
                          f" is {_MAX_AUTHORIZATION_BYTES}", reason="head")
        if not _printable(authorization):
            raise Refused(400, "the header authorization has characters that are not printable"
                          " ASCII")
        passed.append(("authorization", authorization))
    elif address:
        passed.append(("sluice-client", address))
    traceparent = traceparent or headers.get("traceparent", "")
    if _TRACEPARENT.fullmatch(traceparent):
        passed.append(("traceparent", traceparent))
        state = headers.get("tracestate", "")
        if state and len(state) <= _MAX_TRACESTATE_BYTES and _printable(state):
            passed.append(("tracestate", state))
    return {**options, "request_id": request_id, "metadata": passed}


def _printable(value: str) -> bool:
    return all(" " <= each <= "~" for each in value)
