"""The sluice-gateway program."""

from __future__ import annotations

import argparse
import asyncio
import logging
import math
import pathlib
import re
import resource
import signal
import sys
from contextlib import AsyncExitStack
from typing import Any, Callable, Optional

import uvicorn
import uvloop

from .. import NEVER, AsyncClient, NotAllowed, SluiceError, Tls
from .app import application, probes
from .chat import ChatTemplate
from .daemon import Admin
from .head import is_printable
from .hostile import Limits
from .models import doubts
from .protocol import Connections, protocol
from .serving import Gateway
from .tls import Certificate, TlsListener
from .tracing import Tracing

_log = logging.getLogger("sluice_client.gateway")

_ALIAS = re.compile(r"[A-Za-z0-9_./-]{1,256}")
_START_TIMEOUT_S = 1.0  # for the daemon to list its models
_MODELS_RETRY_S = 1.0  # until the next attempt, if it does not

# Connections of the listener for probes, and descriptors for everything except connections.
_MAX_PROBES = 64
_OTHER_DESCRIPTORS = 128

# The time between two attempts to connect to a daemon that does not answer. By default it grows to
# two minutes, in which a daemon that has restarted gets no calls.
_FIRST_RECONNECT_MS = 100
_LONGEST_RECONNECT_MS = 2000


def _at_least(least: int) -> Callable[[str], int]:
    def integer(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}")
        return int(text)
    return integer


def _positive(text: str) -> float:
    if not 0 < float(text) < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a positive time in seconds")
    return float(text)


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
        help="address of a listener for /metrics, /livez and /readyz, which callers cannot fill"
             " (default: none)")
    add("--chat", action="append", default=[], metavar="MODEL=PATH",
        help="path of a model's chat template: its folder, its tokenizer_config.json, or a Jinja"
             " file; may be repeated")
    add("--tokenizer", action="append", default=[], metavar="MODEL=FOLDER",
        help="the model's folder, for the tokens that its template names, such as bos_token, if"
             " --chat names a file elsewhere; may be repeated")
    add("--host", action="append", default=[], metavar="NAME",
        help="a name of this gateway in the Host header, or * for any; addresses and private names"
             " such as *.svc are always accepted; may be repeated")
    add("--default-model", default="", metavar="NAME",
        help="model of requests that name none (default: the only served model)")
    add("--allow-token-ids", action="store_true",
        help="accept token ids for models that take texts; callers must use the model's own"
             " vocabulary")
    add("--allow-special-tokens", action="store_true",
        help="accept messages of chats with the texts of special tokens, which the model reads as"
             " these tokens; for callers that may write whole prompts")
    add("--alias", action="append", default=[], metavar="NAME=MODEL",
        help="a further name of a model, with any of the characters A-Z a-z 0-9 _ . - /, such as"
             " org/model; may be repeated")
    add("--default-max-tokens", type=_at_least(0), default=1024, metavar="N",
        help="most tokens of a chat that sets no limit; fewer if the model has no more positions"
             " after the prompt (default: %(default)s)")
    add("--allow-origin", action="append", default=[], metavar="ORIGIN",
        help="allow browser pages of this origin, such as https://example.org, or * for any; may"
             " be repeated")
    add("--timeout", type=_positive, default=limits.timeout_s, metavar="SECONDS",
        help="deadline of a call that sets none (default: %(default)g)")
    add("--max-timeout", type=_positive, default=limits.max_timeout_s, metavar="SECONDS",
        help="the longest deadline that a call may set (default: %(default)g)")
    add("--max-body-bytes", type=_at_least(1), default=limits.max_body_bytes, metavar="N",
        help="most bytes in the body of a request (default: %(default)s)")
    add("--max-pending-bytes", type=_at_least(1), default=limits.max_pending_bytes, metavar="N",
        help="estimated memory of all calls in progress; more are refused with 503 or 429"
             " (default: %(default)s)")
    add("--max-in-flight", type=_at_least(1), default=limits.max_in_flight, metavar="N",
        help="most calls in progress; more are refused with 503 or 429 (default: %(default)s)")
    add("--max-daemon-calls", type=_at_least(1), default=limits.max_daemon_calls, metavar="N",
        help="most calls in progress at the daemon; more wait, and callers take turns"
             " (default: %(default)s)")
    add("--daemon-connections", type=_at_least(1), default=4, metavar="N",
        help="connections to each address of the daemon (default: %(default)s)")
    add("--max-connections", type=_at_least(1), default=4096, metavar="N",
        help="most open connections (default: %(default)s)")
    add("--head-timeout", type=_positive, default=10, metavar="SECONDS",
        help="time for the head of a request to arrive (default: %(default)g)")
    add("--body-timeout", type=_positive, default=limits.body_timeout_s, metavar="SECONDS",
        help="time for the body of a request to arrive (default: %(default)g)")
    add("--template-timeout", type=_positive, default=limits.template_timeout_s, metavar="SECONDS",
        help="time for a chat template to render (default: %(default)g)")
    add("--stall-timeout", type=_positive, default=limits.stall_timeout_s, metavar="SECONDS",
        help="time for the caller to receive a piece of an answer (default: %(default)g)")
    add("--drain-timeout", type=_at_least(0), default=30, metavar="SECONDS",
        help="time for calls to finish after SIGTERM (default: %(default)s)")
    add("--certificate", metavar="FILE", help="certificate of the HTTP listener (TLS)")
    add("--key", metavar="FILE", help="key of the certificate")
    add("--admin", default="", metavar="HOST:PORT",
        help="the daemon's admin address, for /v1/load_lora_adapter and /v1/unload_lora_adapter;"
             " needs --admin-token-file (default: these paths are refused)")
    add("--admin-token-file", metavar="FILE",
        help="file with the bearer token of callers that may use these paths")
    add("--admin-secured", action="store_true",
        help="the admin address has the daemon's TLS and callers (server.admin.secured)")
    add("--daemon-tls", action="store_true", help="connect to the daemon with TLS")
    add("--daemon-ca", metavar="FILE", help="CA of the daemon, instead of the system's")
    add("--daemon-certificate", metavar="FILE", help="client certificate for the daemon")
    add("--daemon-key", metavar="FILE", help="key of that certificate")
    add("--daemon-name", default="", metavar="NAME", help="the name in the daemon's certificate")
    add("--otlp-endpoint", default="", metavar="URL",
        help="send a span of each request to this OTLP/HTTP collector, such as"
             " http://localhost:4318/v1/traces; needs the extra [tracing]")
    add("--access-log", action="store_true",
        help="log each call: the caller's address, the method and path, the status, the duration"
             " and the request id")
    return parser


def _address(parser: argparse.ArgumentParser, option: str, text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        parser.error(f"{option} is {text!r}; expected an address HOST:PORT")
    return host.strip("[]"), int(port)


def _named(
    parser: argparse.ArgumentParser, option: str, values: list[str]
) -> dict[str, pathlib.Path]:
    made = {}
    for value in values:
        name, _, path = value.partition("=")
        if not name or not path:
            expected = "NAME=MODEL" if option == "--alias" else "MODEL=PATH"
            parser.error(f"{option} {value!r} is not of the form {expected}")
        made[name] = pathlib.Path(path)
    return made


def _templates(
    parser: argparse.ArgumentParser, chats: list[str], tokenizers: list[str]
) -> dict[str, ChatTemplate]:
    made = {}
    folders = _named(parser, "--tokenizer", tokenizers)
    for name, path in _named(parser, "--chat", chats).items():
        try:
            made[name] = ChatTemplate.load(path, folders.get(name))
        except (OSError, ValueError) as error:
            parser.error(f"--chat {name}={path}: {error}")
        except (KeyError, TypeError, AttributeError):
            parser.error(f"--chat {name}={path}: its tokenizer files are not of the expected form")
    return made


def _aliases(parser: argparse.ArgumentParser, given: list[str]) -> dict[str, str]:
    named = {alias: str(name) for alias, name in _named(parser, "--alias", given).items()}
    for alias in named:
        if not _ALIAS.fullmatch(alias):
            parser.error(f"--alias: {alias[:256]!r} is not a name; expected 1 to 256 of the"
                         " characters A-Z a-z 0-9 _ . - /")
    return named


def check_names(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    """Exits with an error for a chat template, tokenizer or alias that cannot be used."""
    _templates(parser, given.chat, given.tokenizer)
    _aliases(parser, given.alias)


def _connections_for(requested: int) -> int:
    """Raises the limit of descriptors for `requested` connections, and returns how many fit."""
    needed = requested + _MAX_PROBES + _OTHER_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= needed:
        if soft != resource.RLIM_INFINITY and soft < needed:
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
        return requested
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    fitting = max(1, hard - _MAX_PROBES - _OTHER_DESCRIPTORS)
    _log.warning("the limit of %d open files allows %d connections instead of %d"
                 " (--max-connections); raise it", hard, fitting, requested)
    return fitting


async def _listen_for_probes(
    gateway: Gateway, host: str, port: int, head_timeout_s: float
) -> asyncio.Server:
    """Opens the listener for probes and metrics, whose connections have places of their own."""
    refusals = gateway.metrics.refusals
    kind = protocol(Connections(_MAX_PROBES, refusals), refusals, head_timeout_s)
    config = uvicorn.Config(probes(gateway), http=kind, ws="none", lifespan="off",
                            log_level="warning", access_log=False)
    config.load()
    state = uvicorn.server.ServerState()
    return await asyncio.get_running_loop().create_server(
        lambda: kind(config=config, server_state=state, app_state={}), host, port
    )


class _Server(uvicorn.Server):
    """A server that prints its address, the daemon and the models once it listens.

    From the signal to exit, the gateway is not ready.
    """

    def __init__(
        self, config: uvicorn.Config, gateway: Gateway, given: argparse.Namespace,
        connections: Connections,
    ) -> None:
        super().__init__(config)
        self._gateway = gateway
        self._given = given
        self._connections = connections
        self._tls: Optional[TlsListener] = None
        self._watches: list[asyncio.Task[None]] = []

    async def startup(self, sockets: Any = None) -> None:
        try:
            if self.config.ssl is None:
                await super().startup(sockets)
            else:
                listeners = await TlsListener.bind(
                    self.config.host, self.config.port, self.config.backlog)
                await super().startup([])  # listens at no socket
                self._tls = TlsListener(
                    listeners, self.config.ssl, self._connection, self._connections,
                    self._gateway.metrics.refusals, self._given.head_timeout)
                files = Certificate(self.config.ssl, self._given.certificate, self._given.key)
                self._watches.append(asyncio.ensure_future(files.watch()))
                asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, files.read)
        except (OSError, SystemExit) as error:
            if isinstance(error, OSError):  # Otherwise uvicorn has printed the reason.
                _log.error("%s", error)
            sys.exit(f"sluice-gateway: cannot listen on {self._given.listen} (--listen); choose"
                     " another port, or end the process that uses this one")
        if self.started:
            scheme = "https" if self._given.certificate else "http"
            print(f"sluice-gateway: {scheme}://{self._given.listen} serves the daemon at"
                  f" {self._given.daemon}; {await self._served()}", flush=True)
            self._watches.append(asyncio.ensure_future(self._check_names()))

    def _connection(self) -> asyncio.BaseProtocol:
        made: asyncio.BaseProtocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
        return made

    async def shutdown(self, sockets: Any = None) -> None:
        for each in self._watches:
            each.cancel()
        if self._tls is not None:
            self._tls.close()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: Any) -> None:
        self._gateway.readiness.drain()
        super().handle_exit(sig, frame)

    async def _served(self) -> str:
        try:
            entries = await self._gateway.connections.first.models(
                ready=True, timeout_s=_START_TIMEOUT_S)
        except NotAllowed:
            return "it lists its models for each caller, because it requires credentials"
        except SluiceError as error:
            return f"its models are unknown ({error.message})"
        chats = self._gateway.templates
        names = sorted({each.name for each in entries})
        models = ", ".join(
            f"{name} (with chats)" if name in chats else name for name in names) or "none"
        aliases = ", ".join(
            f"{alias} for {name}" for alias, name in self._gateway.connections.aliases.items())
        return f"models: {models}" + (f"; aliases: {aliases}" if aliases else "")

    async def _check_names(self) -> None:
        """Logs the models of --alias and --chat that the daemon does not serve, once it is ready.

        Without a credential, the gateway cannot list the models of a daemon that requires one.
        """
        gateway = self._gateway
        client, aliases = gateway.connections.first, gateway.connections.aliases
        if not aliases and not gateway.templates:
            return
        while not await gateway.readiness.of_daemon():
            await asyncio.sleep(_MODELS_RETRY_S)
        try:
            served = {each.name for each in await client.models(
                ready=True, timeout_s=_START_TIMEOUT_S)}
            lines = doubts(served, aliases, gateway.templates)
            for name in sorted({*gateway.templates} & served):
                info = await client.metadata(name, timeout_s=_START_TIMEOUT_S)
                if all(each.name != "output_ids" for each in info.outputs):
                    lines.append(f"--chat {name}: the model does not generate text; its chats are"
                                 " refused")
        except SluiceError:
            return
        for line in lines:
            _log.warning("%s", line)


_MAX_TOKEN_BYTES = 1024


def _admin_token(parser: argparse.ArgumentParser, path: str) -> str:
    """Returns the text of the file without the white space around it."""
    try:
        with open(path, encoding="ascii") as file:
            token = file.read(_MAX_TOKEN_BYTES + 1).strip()
    except (OSError, ValueError) as error:
        parser.error(f"--admin-token-file {path}: {error}")
    if not token or len(token) > _MAX_TOKEN_BYTES or not is_printable(token):
        parser.error(f"--admin-token-file {path}: expected 1 to {_MAX_TOKEN_BYTES} printable"
                     " characters of ASCII")
    return token


def _admin(parser: argparse.ArgumentParser, given: argparse.Namespace) -> Optional[Admin]:
    """Returns the admin address, or None if there is none."""
    if bool(given.admin) != bool(given.admin_token_file):
        parser.error("--admin and --admin-token-file belong together; give both or none")
    if not given.admin:
        return None
    token = _admin_token(parser, given.admin_token_file)
    client = _client(parser, given, "--admin", given.admin_secured)
    return Admin(client, token, given.admin_secured)


def _client(
    parser: argparse.ArgumentParser, given: argparse.Namespace, option: str = "--daemon",
    secured: bool = True,
) -> AsyncClient:
    """Returns a client of the address of `option` with a connection of its own."""
    tls = None
    if secured and (given.daemon_tls or given.daemon_ca or given.daemon_certificate):
        tls = Tls(given.daemon_ca, given.daemon_certificate, given.daemon_key, given.daemon_name)
    try:
        return AsyncClient(
            given.admin if option == "--admin" else given.daemon,
            tls=tls,
            # Refusals are passed on with their retry delay: the caller decides.
            retry=NEVER,
            timeout_s=given.timeout,
            max_in_flight=None,  # see --max-daemon-calls
            channel_options=[
                # Calls are spread over all addresses of a name such as dns:///sluice-headless:8001.
                ("grpc.lb_policy_name", "round_robin"),
                ("grpc.use_local_subchannel_pool", 1),  # connections of its own
                ("grpc.initial_reconnect_backoff_ms", _FIRST_RECONNECT_MS),
                ("grpc.max_reconnect_backoff_ms", _LONGEST_RECONNECT_MS),
            ],
        )
    except ValueError as error:
        parser.error(f"{option}: {error}")
    except OSError as error:
        parser.error(f"--daemon-ca, --daemon-certificate or --daemon-key: {error}")


async def _serve(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    limits = Limits(
        max_body_bytes=given.max_body_bytes,
        max_pending_bytes=given.max_pending_bytes,
        max_in_flight=given.max_in_flight,
        body_timeout_s=given.body_timeout,
        timeout_s=given.timeout,
        max_timeout_s=given.max_timeout,
        stall_timeout_s=given.stall_timeout,
        template_timeout_s=given.template_timeout,
        max_daemon_calls=given.max_daemon_calls,
    )
    try:
        tracing = Tracing(given.otlp_endpoint)
    except ImportError as error:
        parser.error(f"--otlp-endpoint: {error}; run"
                     " pip install './clients/python[gateway,tracing]' in Sluice's repository")
    templates = _templates(parser, given.chat, given.tokenizer)
    max_connections = _connections_for(given.max_connections)
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(_client(parser, given))
                   for _ in range(given.daemon_connections)]
        admin = _admin(parser, given)
        if admin is not None:
            await stack.enter_async_context(admin.client)
        gateway = Gateway(
            clients,
            limits=limits,
            templates=templates,
            origins=frozenset(given.allow_origin),
            hosts=frozenset(each.lower() for each in given.host),
            default_max_tokens=given.default_max_tokens,
            aliases=_aliases(parser, given.alias),
            logs_access=given.access_log,
            default_model=given.default_model,
            allow_token_ids=given.allow_token_ids,
            allow_special_tokens=given.allow_special_tokens,
            tracing=tracing,
            admin=admin,
        )
        stack.callback(gateway.renderer.close)
        refusals = gateway.metrics.refusals
        if given.metrics:
            host, port = _address(parser, "--metrics", given.metrics)
            try:
                listener = await _listen_for_probes(gateway, host, port, given.head_timeout)
            except OSError as error:
                parser.error(f"--metrics {given.metrics}: {error}; choose another address")
            stack.callback(listener.close)
        host, port = _address(parser, "--listen", given.listen)
        connections = Connections(max_connections, refusals)
        config = uvicorn.Config(
            application(gateway),
            host=host,
            port=port,
            http=protocol(connections, refusals, given.head_timeout),
            ws="none",
            lifespan="off",
            access_log=False,
            log_level="warning",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=given.drain_timeout,
            ssl_certfile=given.certificate,
            ssl_keyfile=given.key,
        )
        try:
            config.load()
        except OSError as error:
            parser.error(f"--certificate {given.certificate}, --key {given.key}: {error}; expected"
                         " files in PEM that belong together")
        await _Server(config, gateway, given, connections).serve()
    await asyncio.to_thread(tracing.close)


def main() -> None:
    """Runs the gateway until SIGTERM or SIGINT, then waits until its calls have ended."""
    parser = arguments()
    given = parser.parse_args()
    # After its shutdown, uvicorn raises the signal again; ignore it.
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: None)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    uvloop.run(_serve(parser, given))


if __name__ == "__main__":
    main()
