"""The sluice-gateway program."""

from __future__ import annotations

import argparse
import asyncio
import logging
import pathlib
import signal
from typing import Any, Optional

import prometheus_client
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from .. import NEVER, AsyncClient, Tls
from .app import application
from .chat import ChatTemplate
from .hostile import Limits
from .serving import ABORT, Gateway
from .tracing import Tracing

_MAX_HEAD_BYTES = 16 << 10


def arguments() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    limits = Limits()
    parser = argparse.ArgumentParser(
        prog="sluice-gateway", description="Serves a Sluice daemon over HTTP; see docs/http.md."
    )
    add = parser.add_argument
    add("--daemon", default="localhost:8001", metavar="HOST:PORT",
        help="the daemon's gRPC address (default: %(default)s)")
    add("--listen", default="127.0.0.1:8000", metavar="HOST:PORT",
        help="address of the HTTP listener (default: %(default)s)")
    add("--metrics", default="", metavar="HOST:PORT",
        help="address of the /metrics listener (default: none)")
    add("--chat", action="append", default=[], metavar="MODEL=PATH",
        help="path of a model's chat template: its folder, its tokenizer_config.json, or a Jinja"
             " file; may be repeated")
    add("--default-max-tokens", type=int, default=128, metavar="N",
        help="max_tokens of a chat request that sets no limit (default: %(default)s)")
    add("--allow-origin", action="append", default=[], metavar="ORIGIN",
        help="allow browser pages of this origin, such as https://example.org, or * for any; may"
             " be repeated")
    add("--timeout", type=float, default=limits.timeout_s, metavar="SECONDS",
        help="deadline of a call that sets none (default: %(default)g)")
    add("--max-timeout", type=float, default=limits.max_timeout_s, metavar="SECONDS",
        help="the longest deadline that a call may set (default: %(default)g)")
    add("--max-body-bytes", type=int, default=limits.max_body_bytes, metavar="N",
        help="most bytes in the body of a request (default: %(default)s)")
    add("--max-pending-bytes", type=int, default=limits.max_pending_bytes, metavar="N",
        help="bytes of all bodies in progress; more are refused with 503 (default: %(default)s)")
    add("--max-in-flight", type=int, default=limits.max_in_flight, metavar="N",
        help="most calls in progress; more are refused with 503 (default: %(default)s)")
    add("--max-connections", type=int, default=4096, metavar="N",
        help="most open connections (default: %(default)s)")
    add("--head-timeout", type=float, default=10, metavar="SECONDS",
        help="time for the head of a request to arrive (default: %(default)g)")
    add("--body-timeout", type=float, default=limits.body_timeout_s, metavar="SECONDS",
        help="time for the body of a request to arrive (default: %(default)g)")
    add("--stall-timeout", type=float, default=limits.stall_timeout_s, metavar="SECONDS",
        help="time for the caller to receive a piece of an answer (default: %(default)g)")
    add("--drain-timeout", type=int, default=30, metavar="SECONDS",
        help="time for calls to finish after SIGTERM (default: %(default)s)")
    add("--certificate", metavar="FILE", help="certificate of the HTTP listener (TLS)")
    add("--key", metavar="FILE", help="key of the certificate")
    add("--daemon-tls", action="store_true", help="connect to the daemon with TLS")
    add("--daemon-ca", metavar="FILE", help="CA of the daemon, instead of the system's")
    add("--daemon-certificate", metavar="FILE", help="client certificate for the daemon")
    add("--daemon-key", metavar="FILE", help="key of that certificate")
    add("--daemon-name", default="", metavar="NAME", help="the name in the daemon's certificate")
    add("--otlp-endpoint", default="", metavar="URL",
        help="send a span of each request to this OTLP/HTTP collector, such as"
             " http://localhost:4318/v1/traces; needs the extra [tracing]")
    add("--access-log", action="store_true", help="log each request")
    return parser


def _address(parser: argparse.ArgumentParser, text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        parser.error(f"{text!r} is not an address HOST:PORT")
    return host.strip("[]"), int(port)


def _templates(parser: argparse.ArgumentParser, chats: list[str]) -> dict[str, ChatTemplate]:
    made = {}
    for chat in chats:
        name, _, path = chat.partition("=")
        if not name or not path:
            parser.error(f"--chat {chat!r} is not of the form MODEL=PATH")
        try:
            made[name] = ChatTemplate.load(pathlib.Path(path))
        except (OSError, ValueError) as error:
            parser.error(f"--chat {chat}: {error}")
    return made


def _protocol(head_timeout_s: float) -> type:
    """Returns uvicorn's protocol with a limit on the time for a request's head to arrive.

    uvicorn limits only the time between two requests. Without this limit, a connection that sends
    nothing, or sends a head byte by byte, would stay open for ever. The ABORT entry in a scope's
    state is a function that drops the connection.
    """

    class Bounded(H11Protocol):
        _overdue: Optional[asyncio.TimerHandle] = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.app_state = {**self.app_state, ABORT: transport.abort}
            self._overdue = self.loop.call_later(head_timeout_s, transport.abort)

        def connection_lost(self, exc: Optional[Exception]) -> None:
            self._disarm()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self._disarm()  # A head has arrived.
            elif self._overdue is None:
                self._overdue = self.loop.call_later(head_timeout_s, self.transport.abort)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self.cycle is not None and self.cycle.response_complete:
                self._disarm()  # uvicorn limits the time until the next request.

        def _disarm(self) -> None:
            if self._overdue is not None:
                self._overdue.cancel()
                self._overdue = None

    return Bounded


async def _serve(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    limits = Limits(
        max_body_bytes=given.max_body_bytes,
        max_pending_bytes=given.max_pending_bytes,
        max_in_flight=given.max_in_flight,
        body_timeout_s=given.body_timeout,
        timeout_s=given.timeout,
        max_timeout_s=given.max_timeout,
        stall_timeout_s=given.stall_timeout,
    )
    tls = None
    if given.daemon_tls or given.daemon_ca or given.daemon_certificate:
        tls = Tls(given.daemon_ca, given.daemon_certificate, given.daemon_key, given.daemon_name)
    try:
        tracing = Tracing(given.otlp_endpoint)
    except ImportError as error:
        parser.error(f"--otlp-endpoint: {error}: install sluice-client[gateway,tracing]")
    # The gateway passes refusals on with their retry delay and does not retry: the caller waits.
    async with AsyncClient(
        given.daemon,
        tls=tls,
        retry=NEVER,
        timeout_s=given.timeout,
        # Calls are spread over all addresses of a name such as dns:///sluice-headless:8001.
        channel_options=[("grpc.lb_policy_name", "round_robin")],
    ) as client:
        gateway = Gateway(
            client,
            limits=limits,
            templates=_templates(parser, given.chat),
            origins=frozenset(given.allow_origin),
            default_max_tokens=given.default_max_tokens,
            tracing=tracing,
        )
        if given.metrics:
            host, port = _address(parser, given.metrics)
            prometheus_client.start_http_server(port, host, gateway.metrics.registry)
        host, port = _address(parser, given.listen)
        config = uvicorn.Config(
            application(gateway),
            host=host,
            port=port,
            http=_protocol(given.head_timeout),
            ws="none",
            lifespan="off",
            access_log=given.access_log,
            log_level="info" if given.access_log else "warning",
            server_header=False,
            proxy_headers=False,
            limit_concurrency=given.max_connections,
            timeout_graceful_shutdown=given.drain_timeout,
            h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
            ssl_certfile=given.certificate,
            ssl_keyfile=given.key,
        )
        await uvicorn.Server(config).serve()
    await asyncio.to_thread(tracing.close)


def main() -> None:
    """Runs the gateway until SIGTERM or SIGINT, then waits until its calls have ended."""
    parser = arguments()
    given = parser.parse_args()
    # After its shutdown, uvicorn raises the signal again; ignore it.
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: None)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    asyncio.run(_serve(parser, given))


if __name__ == "__main__":
    main()
