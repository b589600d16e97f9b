"""Calls to the daemon, which take the places, the turns and the memory of their caller."""

from __future__ import annotations

import asyncio
import hmac
import math
import time
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any, AsyncGenerator, AsyncIterator, Iterator, Mapping, Optional, Sequence

from .. import _protocol, tasks
from .._channel import Attempts
from ..aio import AsyncClient, within
from ..errors import NotFound, SluiceError, Unavailable, is_away, late
from ..options import Prompt
from ..results import Generation
from ..retry import Retry
from .call import HttpCall
from .fairness import Caller, Places
from .hostile import Refused

# Bytes of an answer of the daemon, of its tensors, and of their copies, for each of its bytes.
_COST_OF_ANSWER_BYTE = 4

_RETRY_OF_PARTS = Retry()


class Connections:
    """The connections to the daemon, and the places for calls at it."""

    def __init__(
        self, clients: Sequence[AsyncClient], max_calls: int, aliases: Mapping[str, str] = {}
    ) -> None:
        """`aliases` are further names of models."""
        self.aliases = aliases
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
                raise late("the deadline passed while the call waited for other calls"
                           " (--max-daemon-calls)") from None
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

    A call waits for a place for at most its deadline, or the client's timeout. A part of a list
    that the daemon refuses is repeated until then, so that the other parts are not lost.
    """

    def __init__(self, connections: Connections, call: HttpCall) -> None:
        self._connections = connections
        self._call = call
        self._defaults = connections.first._defaults

    async def _answer(self, call: tasks.Call, attempts: Attempts) -> _protocol.Message:
        attempts.begin()
        left_s, failures, away = attempts.remaining_s(), 0, 0
        until = math.inf if left_s is None else time.monotonic() + left_s
        while True:
            try:
                return await self._attempt(call, attempts)
            except SluiceError as error:
                failures += 1
                away += is_away(error)
                delay_s = None
                if attempts.is_part:
                    delay_s = _RETRY_OF_PARTS.delay_s(
                        error, failures, away, until - time.monotonic())
                if delay_s is None:
                    raise
            await asyncio.sleep(delay_s)  # without a place

    async def _attempt(self, call: tasks.Call, attempts: Attempts) -> _protocol.Message:
        with self._renamed(call.request):
            async with self._connections.place(self._call.caller, attempts.remaining_s()) as client:
                # gRPC copies and encodes the message on the event loop.
                await self._call.turn(call.request.ByteSize())
                answer = await client._answer(call, attempts)
        size = answer.ByteSize()
        self._call.hold(size * _COST_OF_ANSWER_BYTE)
        await self._call.turn(size)
        return answer

    @contextmanager
    def _renamed(self, request: _protocol.Message) -> Iterator[None]:
        """Replaces an alias, also that of ALIAS:ADAPTER, by the name of its model.

        Within the context, the error of a model that is not served names the alias, too.
        """
        aliases = self._connections.aliases
        field = "model_name" if hasattr(request, "model_name") else "name"
        alias, colon, adapter = getattr(request, field, "").partition(":")
        if alias not in aliases:
            try:
                yield
            except NotFound as error:
                if not aliases or "; served: " not in error.message:
                    raise
                names = ", ".join(sorted(aliases))[:200]
                raise NotFound(f"{error.message}; further names (--alias): {names}", error.code,
                               error.reason) from error
            return
        setattr(request, field, f"{aliases[alias]}{colon}{adapter}")
        try:
            yield
        except NotFound as error:
            raise NotFound(f"{alias!r} is a further name of the model {aliases[alias]!r} (--alias):"
                           f" {error.message}", error.code, error.reason) from error

    async def sparse(
        self, model: str, prompts: Sequence[Prompt], options: Mapping[str, Any]
    ) -> tasks.Parts:
        """Returns the tensors of `embed_sparse`."""
        return await self._run(tasks.sparse(model, prompts, options), options)

    async def _parts(
        self, request: _protocol.Message, options: Mapping[str, Any]
    ) -> AsyncGenerator[Generation, None]:
        attempts = Attempts(options, self._defaults)
        attempts.begin()
        with self._renamed(request):
            async with self._connections.place(self._call.caller, attempts.remaining_s()) as client:
                await self._call.turn(request.ByteSize())
                if "timeout_s" in options:
                    options = {**options, "timeout_s": attempts.remaining_s()}
                async with aclosing(client._parts(request, options)) as parts:
                    async for part in parts:
                        yield part


def not_ready() -> Unavailable:
    """Returns the error of a call for models of a daemon that has not loaded them."""
    return Unavailable("the daemon is not ready: it is loading its models, it serves none, or it is"
                       " shutting down; retry later", "UNAVAILABLE", "unavailable")


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
        """Returns whether the daemon is ready and the gateway does not drain."""
        return await self.of_daemon() and not self._draining

    async def of_daemon(self) -> bool:
        """Returns whether the daemon is ready."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._ask())
        return await asyncio.shield(self._asking)

    async def _ask(self) -> bool:
        try:
            return await self._client.server_ready(timeout_s=self._timeout_s)
        except SluiceError:
            return False


class Admin:
    """The daemon's admin address, and the token of the callers that may use it."""

    def __init__(self, client: AsyncClient, token: str, secured: bool) -> None:
        """`secured` is whether the daemon also checks the token (server.admin.secured)."""
        self.client = client
        self._expected = f"Bearer {token}".encode()
        self._secured = secured

    def options(self, call: HttpCall) -> Mapping[str, Any]:
        """Returns the options of calls to the admin address, or refuses the caller."""
        given = call.headers.get("authorization", "").encode("utf-8", "replace")
        if not hmac.compare_digest(given, self._expected):
            raise Refused(401, "this path needs the admin token of the gateway"
                          " (--admin-token-file) in the header Authorization: Bearer TOKEN",
                          "authorization")
        metadata = [
            (key, value) for key, value in call.options["metadata"]
            if self._secured or key != "authorization"
        ]
        return {**call.options, "metadata": metadata}
