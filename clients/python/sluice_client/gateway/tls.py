"""Accepts the TLS connections of a listener, and reports the peers of handshakes that fail.

uvicorn's own listener drops a connection whose handshake fails without a word.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from typing import Any, Callable, Coroutine, Optional

from .fairness import Refusals, address_of
from .protocol import Connections

# The time until the next attempt if accepting fails, for example for lack of descriptors.
_RETRY_S = 0.1

_CHECK_S = 10.0  # between two looks at the files of the certificate, as in the daemon

_log = logging.getLogger("sluice_client.gateway")


class Certificate:
    """The files of the certificate and its key. New connections use their newest valid content."""

    def __init__(self, context: ssl.SSLContext, certificate: str, key: Optional[str]) -> None:
        """`context` has the content of the files."""
        self._context = context
        self._paths = certificate, key
        self._seen = self._state()

    def _state(self) -> list[Any]:
        state: list[Any] = []
        for path in filter(None, self._paths):
            try:
                found = os.stat(path)
                state.append((found.st_ino, found.st_size, found.st_mtime_ns))
            except OSError:
                state.append(None)
        return state

    def read(self) -> None:
        """Reads the files again. If they are not valid, the last valid content stays in use."""
        self._seen = self._state()
        try:
            # A pair that does not match would leave its first half in the context.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*self._paths)
            self._context.load_cert_chain(*self._paths)
        except OSError as error:
            _log.warning("--certificate %s, --key %s: %s; the gateway keeps the last valid pair,"
                         " and reads the files again when they change", *self._paths, error)
        else:
            _log.info("read --certificate %s again", self._paths[0])

    async def watch(self) -> None:
        """Reads the files whenever they have changed."""
        while True:
            await asyncio.sleep(_CHECK_S)
            if self._state() != self._seen:
                self.read()


class TlsListener:
    """Listens, and hands over each connection after its handshake."""

    def __init__(
        self,
        listeners: list[socket.socket],
        context: ssl.SSLContext,
        make: Callable[[], asyncio.BaseProtocol],
        connections: Connections,
        refusals: Refusals,
        handshake_timeout_s: float,
    ) -> None:
        """`make` returns the protocol of a new connection, which `connections` counts."""
        self._listeners = listeners
        self._context = context
        self._make = make
        self._connections = connections
        self._refusals = refusals
        self._handshake_timeout_s = handshake_timeout_s
        self._tasks: set[asyncio.Task[None]] = set()
        for each in listeners:
            self._start(self._accept(each))

    @staticmethod
    async def bind(host: str, port: int, backlog: int) -> list[socket.socket]:
        """Returns a listening socket for each address of `host`."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        listeners: list[socket.socket] = []
        try:
            for family, address in dict.fromkeys((each[0], each[4]) for each in found):
                listeners.append(
                    socket.create_server(address[:2], family=family, backlog=backlog))
                listeners[-1].setblocking(False)
        except OSError:
            for each in listeners:
                each.close()
            raise
        return listeners

    def close(self) -> None:
        """Stops accepting, and ends the handshakes in progress."""
        for task in self._tasks:
            task.cancel()
        for each in self._listeners:
            each.close()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, peer = await loop.sock_accept(listener)
            except OSError:
                await asyncio.sleep(_RETRY_S)
                continue
            self._start(self._secure(connection, peer[0]))

    async def _secure(self, connection: socket.socket, host: str) -> None:
        """Makes the handshake of a connection."""
        address = address_of(host)
        if not self._connections.begin_handshake(address):
            connection.close()
            return
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make, connection, ssl=self._context,
                ssl_handshake_timeout=self._handshake_timeout_s)
        except Exception as error:  # Mostly an OSError.
            self._connections.end_handshake(address)
            why = getattr(error, "reason", None) or str(error) or "the peer ended the connection"
            self._refusals.add("handshake", address, f"the TLS handshake failed: {why}")
