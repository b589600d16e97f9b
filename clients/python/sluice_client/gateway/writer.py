"""Writes a response, and limits the time for the caller to receive each piece."""

from __future__ import annotations

import asyncio
from typing import Any, Callable, Coroutine, Mapping, Optional, Union

from ..aio import within
from .call import GONE, Whole, to_json
from .head import is_printable
from .protocol import Connection

Send = Callable[[Any], Coroutine[Any, Any, None]]

_PIECE_BYTES = 64 << 10


class Stalled(Exception):
    """The caller does not receive its answer in time."""


class Writer:
    """Writes a response, and limits the time for the caller to receive each piece."""

    def __init__(
        self, connection: Connection, send: Send, stall_timeout_s: float, request_id: str
    ) -> None:
        """`request_id` becomes the answer's x-request-id."""
        self.request_id = request_id
        self._send = send
        self._stall_timeout_s = stall_timeout_s
        self._connection = connection
        self.status: Optional[int] = None

    def rename(self, request_id: str) -> None:
        """Sets the id of the request, unless a header cannot hold it."""
        if is_printable(request_id):
            self.request_id = request_id

    async def give_up(self) -> None:
        """Drops the connection and its buffered data; a close would wait until they are sent."""
        self.status = GONE
        self._connection.abort()
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
        encoded += [(b"x-content-type-options", b"nosniff"),
                    (b"x-request-id", self.request_id.encode())]
        await self._send({"type": "http.response.start", "status": status, "headers": encoded})

    async def _put(self, body: bytes, more: bool) -> None:
        # send waits until the earlier data is sent, not until the piece passed to it is sent.
        for begin in range(0, max(1, len(body)), _PIECE_BYTES):
            piece = body[begin : begin + _PIECE_BYTES]
            last = begin + _PIECE_BYTES >= len(body)
            message = {"type": "http.response.body", "body": piece, "more_body": more or not last}
            if not self._connection.is_behind():
                await self._send(message)
                continue
            try:
                await within(self._stall_timeout_s, self._send(message))
            except asyncio.TimeoutError:
                raise Stalled from None
