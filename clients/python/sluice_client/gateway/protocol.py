"""The HTTP connections: uvicorn's protocol on httptools, with limits that uvicorn does not have."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from typing import Any, Callable, Optional, Protocol

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from .fairness import Account, Caller, Refusals, address_of

# The entry in an ASGI scope's state: the Connection of the request.
CONNECTION = "connection"

MAX_HEAD_BYTES = 16 << 10
# A body may have this many chunks, and one more for each 32 bytes.
_MAX_CHUNKS = 1024
_CHUNK_BYTES = 32
# The bytes of a request after its head that are not content, such as trailers.
_MAX_FRAMING_BYTES = 64 << 10


class Connection(Protocol):
    """A connection, as the code that answers a request sees it."""

    def abort(self) -> None:
        """Drops the connection and its buffered data."""

    def watch(self, lost: Optional[Callable[[], object]]) -> None:
        """Calls `lost` when the connection ends, once. None ends the watch."""

    def is_behind(self) -> bool:
        """Returns whether the peer has not received the data that was sent."""


class _Refused(Exception):
    """Ends the parsing of a connection's bytes."""


class Connections:
    """The open connections of a listener, shared by address.

    If there is no room for a connection, the oldest idle one of the address that needs the room is
    closed. An idle connection has no request in progress.
    """

    def __init__(self, limit: int, refusals: Refusals) -> None:
        self._account = Account(limit)
        self._refusals = refusals
        self._idle: dict[str, OrderedDict[asyncio.Transport, None]] = {}
        self._handshakes: Counter[str] = Counter()  # in progress, by address

    def begin_handshake(self, address: str) -> bool:
        """Counts a connection before its TLS handshake; returns false if it must be closed.

        `open` follows, or `end_handshake` if the handshake fails.
        """
        if not self._take(address):
            return False
        self._handshakes[address] += 1
        return True

    def end_handshake(self, address: str) -> None:
        self._leave_handshake(address)
        self._account.give_back(Caller(address), 1)

    def open(self, address: str, transport: asyncio.Transport) -> bool:
        """Counts a connection, and returns false if it must be closed."""
        if address in self._handshakes:
            self._leave_handshake(address)
        elif not self._take(address):
            return False
        self.idle(address, transport)
        return True

    def _leave_handshake(self, address: str) -> None:
        self._handshakes[address] -= 1
        if not self._handshakes[address]:
            del self._handshakes[address]

    def _take(self, address: str) -> bool:
        caller = Caller(address)
        if self._account.take(caller, 1):
            idle = self._idle.get(address)
            if not idle:
                self._refusals.add("connections", address,
                                   "too many open connections (--max-connections)")
                return False
            oldest = next(iter(idle))
            self.busy(address, oldest)
            oldest.abort()
            self._refusals.add("connections", address, "too many open connections"
                               " (--max-connections); closed the oldest idle one")
            # The old connection gives its unit back when the loop reports its end.
            self._account.give_back(caller, -1)
        return True

    def close(self, address: str, transport: asyncio.Transport) -> None:
        self.busy(address, transport)
        self._account.give_back(Caller(address), 1)

    def idle(self, address: str, transport: asyncio.Transport) -> None:
        self._idle.setdefault(address, OrderedDict())[transport] = None

    def busy(self, address: str, transport: asyncio.Transport) -> None:
        idle = self._idle.get(address)
        if idle is not None:
            idle.pop(transport, None)
            if not idle:
                del self._idle[address]


def protocol(connections: Connections, refusals: Refusals, head_timeout_s: float) -> type:
    """Returns the class of a listener's connections.

    uvicorn limits only the time between two requests. Without these limits, a connection could stay
    open although it sends nothing, or could send an endless head or any number of tiny chunks. The
    entry CONNECTION in a scope's state is the connection.
    """

    class Bounded(HttpToolsProtocol):
        _overdue: Optional[asyncio.TimerHandle] = None
        _address: Optional[str] = None
        _closing = False  # further bytes are ignored
        _in_head = True
        _head_bytes = 0  # of the names and values in a head
        _raw_bytes = 0  # received since the end of the last head or message
        _body_bytes = 0  # the content among them
        _chunks = 0
        _refusal: Optional[tuple[int, str, str]] = None  # status, reason, message
        _lost: Optional[Callable[[], object]] = None  # see watch

        def abort(self) -> None:
            self.transport.abort()

        def watch(self, lost: Optional[Callable[[], object]]) -> None:
            self._lost = lost

        def is_behind(self) -> bool:
            return self.flow.write_paused

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            address = address_of(self.client[0]) if self.client else ""
            if not connections.open(address, transport):
                self._closing = True
                transport.abort()
                return
            self._address = address
            self.app_state = {**self.app_state, CONNECTION: self}
            self._overdue = self.loop.call_later(head_timeout_s, transport.abort)

        def connection_lost(self, exc: Optional[Exception]) -> None:
            self._disarm()
            if self._address is not None:
                connections.close(self._address, self.transport)
                self._address = None
            super().connection_lost(exc)
            self.app_state = {}  # The connection and its state refer to each other.
            if self._lost is not None:
                self._lost()

        def data_received(self, data: bytes) -> None:
            self._unset_keepalive_if_required()
            if self._closing:
                return
            self._raw_bytes += len(data)
            try:
                self.parser.feed_data(data)
                self._check_sizes()
            except httptools.HttpParserUpgrade:
                # The request is answered in HTTP/1.1. The parser cannot read another one.
                self._stop_reading()
            except (httptools.HttpParserError, _Refused):
                self._refuse(*self._refusal or (400, "malformed", "the request is not HTTP/1.1"))
                return
            if self._is_busy():
                self._disarm()  # A head has arrived.
            elif self._overdue is None:
                self._overdue = self.loop.call_later(head_timeout_s, self.transport.abort)

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._in_head = True
            self._head_bytes = 0

        def on_url(self, url: bytes) -> None:
            self._head_bytes += len(url)
            super().on_url(url)

        def on_header(self, name: bytes, value: bytes) -> None:
            if self._in_head:  # Trailers of a chunked body are ignored.
                self._head_bytes += len(name) + len(value) + 4
                super().on_header(name, value)

        def on_headers_complete(self) -> None:
            if self._is_busy():
                # A pipelined request. It would hold memory until the answers before it have been
                # sent, so the connection closes after the current answer.
                self._stop_reading()
                raise _Refused
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse_head()
            self._in_head = False
            self._raw_bytes = self._body_bytes = self._chunks = 0
            super().on_headers_complete()
            if self._address is not None:
                connections.busy(self._address, self.transport)

        def on_body(self, body: bytes) -> None:
            self._body_bytes += len(body)
            super().on_body(body)

        def on_chunk_header(self) -> None:
            self._chunks += 1
            if self._chunks > _MAX_CHUNKS + self._body_bytes // _CHUNK_BYTES:
                self._refuse_body()

        def on_message_complete(self) -> None:
            super().on_message_complete()
            self._in_head = True
            self._raw_bytes = self._head_bytes = 0

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._disarm()  # uvicorn limits the time until the next request.
            if self._address is not None:
                connections.idle(self._address, self.transport)

        def _is_busy(self) -> bool:
            return self.cycle is not None and not self.cycle.response_complete

        def _check_sizes(self) -> None:
            if self._in_head:
                if self._raw_bytes > MAX_HEAD_BYTES:
                    self._refuse_head()
            elif self._raw_bytes > _MAX_FRAMING_BYTES + 2 * self._body_bytes:
                self._refuse_body()

        def _refuse_body(self) -> None:
            self._refusal = 400, "chunks", "the chunks of the body are too small"
            raise _Refused

        def _refuse_head(self) -> None:
            self._refusal = 431, "head", f"the head has more than {MAX_HEAD_BYTES} bytes"
            raise _Refused

        def _stop_reading(self) -> None:
            self._closing = True
            if self.cycle is not None:
                self.cycle.keep_alive = False

        def _refuse(self, status: int, reason: str, message: str) -> None:
            if self._closing:  # The current request is answered first.
                return
            self._closing = True
            refusals.add(reason, self._address or "", message)
            if self._is_busy():
                if self.cycle.response_started:
                    self.transport.abort()
                    return
                self.cycle.disconnected = True
                self.cycle.message_event.set()
            self.transport.write(
                b"%scontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n"
                b"connection: close\r\n\r\n%s"
                % (STATUS_LINE[status], len(message), message.encode())
            )
            self.transport.close()

        def _disarm(self) -> None:
            if self._overdue is not None:
                self._overdue.cancel()
                self._overdue = None

    return Bounded
