"""Handles one HTTP call from its first byte to its last, for every API.

An endpoint reads and limits the body, calls the handler, and writes the answer. Until the answer is
complete it watches for the caller's disconnect. If the caller disconnects, the handler is
cancelled, which cancels its calls to the daemon. Every error becomes a response in the format of
the API.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from contextlib import aclosing
from typing import Any, Callable, Coroutine, Mapping, Optional, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from ..aio import AsyncClient, within
from ..errors import NotFound, SluiceError, late
from .call import GONE, Answer, Api, Events, Failure, HttpCall, Whole
from .chat import ChatTemplate, Renderer
from .daemon import Admin, CallersClient, Connections, Readiness, not_ready
from .fairness import Account, Caller, Refusals, Turns, caller_of
from .head import Head, call_options, check_head, head_of, request_id_of
from .hostile import Disconnected, Limits, Refused, read_body
from .models import Models
from .protocol import CONNECTION, Connection
from .tracing import Span, Tracing
from .writer import Send, Stalled, Writer

_access = logging.getLogger("sluice_client.gateway.access")

Handler = Callable[["Gateway", HttpCall], Coroutine[Any, Any, Answer]]


class Metrics:
    """The gateway's metrics, in a separate registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "sluice_gateway_requests",
            "Requests by route and HTTP status; 499: the caller disconnected. A stream that fails"
            " after its first part counts with the status of its error.",
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
        default_max_tokens: int = 1024,
        default_model: str = "",
        allow_token_ids: bool = False,
        allow_special_tokens: bool = False,
        tracing: Optional[Tracing] = None,
        admin: Optional[Admin] = None,
        aliases: Mapping[str, str] = {},
        logs_access: bool = False,
    ) -> None:
        """`clients` are connections to the daemon. `aliases` are further names of models."""
        self.admin = admin
        self.connections = Connections(clients, limits.max_daemon_calls, aliases)
        self.logs_access = logs_access
        templates = {**{alias: templates[name] for alias, name in aliases.items()
                        if name in templates}, **templates}
        self.models = Models(allow_token_ids, default_model)
        self.special_tokens_allowed = allow_special_tokens
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
        made = object.__new__(Gateway)
        made.__dict__.update(self.__dict__)
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
        metrics = gateway.metrics
        self._duration = metrics.duration.labels(route)
        self._requests = functools.cache(lambda code: metrics.requests.labels(route, str(code)))

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        gateway = self._gateway
        headers = head_of(scope["headers"])
        peer = scope.get("client") or ("", 0)
        use = _Use(gateway, caller_of(peer[0], headers.get("authorization")))
        request_id = request_id_of(headers)
        writer = Writer(
            scope["state"][CONNECTION], send, gateway.limits.stall_timeout_s, request_id)
        began = time.monotonic()
        gateway.metrics.in_flight.inc()
        try:
            with gateway.tracing.span(
                scope["method"], self._route, headers, request_id
            ) as span:
                try:
                    await self._serve(headers, scope, receive, writer, use, span)
                finally:
                    span.end(writer.status or GONE)
        finally:
            use.end()
            gateway.metrics.in_flight.dec()
            status, seconds = writer.status or GONE, time.monotonic() - began
            self._requests(status).inc()
            self._duration.observe(seconds)
            if gateway.logs_access:
                _access.info('%s "%s %s" %d %.1f ms request_id=%s', peer[0], scope["method"],
                             self._route, status, seconds * 1e3, writer.request_id)

    async def _serve(
        self, headers: Head, scope: Any, receive: Any, writer: Writer, use: _Use, span: Span
    ) -> None:
        limits = self._gateway.limits
        try:
            check_head(headers, self._gateway.hosts, self._gateway.origins)
            use.begin()
            options = call_options(
                headers, limits, writer.request_id, use.caller.address, span.traceparent())
            body = await read_body(receive, headers.get("content-length"), limits, use.hold)
        except Disconnected:
            return
        except Refused as refused:
            # The rest of the body is not read, so the connection cannot be reused.
            return await self._fail(writer, self._refused(refused, use), {"connection": "close"})
        path = scope.get("path_params", {})
        call = HttpCall(
            headers, path, body, options, use.caller, use.hold, use.turn, writer.rename)
        with _Watch(scope["state"][CONNECTION]) as watch:
            await self._answer(call, writer, use)
        if watch.lost:
            writer.status = GONE

    def _refused(self, refused: Refused, use: _Use) -> Failure:
        if refused.reason:
            refusals = self._gateway.metrics.refusals
            refusals.add(refused.reason, use.caller.address, refused.message)
        return Failure.of(refused)

    async def _answer(self, call: HttpCall, writer: Writer, use: _Use) -> None:
        try:
            await call.turn(len(call.body))
            most_s = self._gateway.limits.max_timeout_s
            try:
                answer = await within(most_s, self._handler(self._gateway.of(call), call))
            except SluiceError:  # Some are a TimeoutError, too.
                raise
            except asyncio.TimeoutError:
                raise late(f"the call did not end within {most_s:g} s (--max-timeout); send fewer"
                           " rows") from None
            if isinstance(answer, Whole):
                await writer.whole(answer)
                return
            async with aclosing(answer) as events:
                await self._stream(events, writer)
        except Stalled:
            self._stalled(use)
            await writer.give_up()
        except Refused as refused:
            await self._fail(writer, self._refused(refused, use))
        except Exception as caught:  # Every error becomes a response.
            error = caught
            # A daemon that loads its models does not find them. Clients do not repeat a 404.
            if isinstance(caught, NotFound) and not await self._gateway.readiness.of_daemon():
                error = not_ready()
            failure = Failure.of(error, call.row_field)
            if failure.status == 401:  # The daemon knows only the gateway's own address.
                self._gateway.metrics.refusals.add(
                    failure.reason or "unauthenticated", use.caller.address, failure.message)
            await self._fail(writer, failure)

    def _stalled(self, use: _Use) -> None:
        self._gateway.metrics.refusals.add(
            "stalled", use.caller.address, "the answer was not read in time (--stall-timeout)")

    async def _stream(self, events: Events, writer: Writer) -> None:
        """Writes events. The first event decides the status, so that a refusal has its own."""
        first = await events.__anext__()
        await writer.begin_events()
        await writer.event(first)
        try:
            async for event in events:
                await writer.event(event)
        except Stalled:
            raise
        except Exception as error:
            failure = Failure.of(error)
            await writer.event(self._api(failure))
            writer.status = failure.status  # Metrics and log count the failure; 200 was sent.
        await writer.end()

    async def _fail(
        self, writer: Writer, failure: Failure, headers: Mapping[str, str] = {}
    ) -> None:
        try:
            await writer.whole(
                Whole(self._api(failure), failure.status, {**failure.headers(), **headers})
            )
        except Stalled:
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


class _Watch:
    """A context that ends early if the connection ends. `lost` states whether it has."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.lost = False

    def __enter__(self) -> _Watch:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._connection.watch(self._end)
        return self

    def __exit__(self, kind: Optional[type], *_: Any) -> bool:
        self._connection.watch(None)
        return self.lost and kind is asyncio.CancelledError

    def _end(self) -> None:
        self.lost = True
        self._task.cancel()
