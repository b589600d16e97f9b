"""The program sluice-serve, the command `sluice serve`: starts a daemon and a gateway together.

Prints both addresses once both answer. Ends both at SIGINT or SIGTERM, or when one of them ends.
"""

from __future__ import annotations

import argparse
import errno
import hashlib
import importlib
import importlib.util
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import urllib.request
from http.client import HTTPException
from typing import Any, Callable, NoReturn

from . import pair_frame

_POLL_S = 0.02
_PORTS = ("http_port", "grpc_port", "metrics_port", "admin_port")
# The daemon closes its calls within 5 s after its drain.
_END_S = 20.0


def arguments() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="sluice serve",
        description="Starts a daemon and an HTTP gateway on this host, prints their addresses, and"
                    " ends both at Ctrl-C.",
        epilog="Arguments after -- go to the daemon, and arguments after --gateway to the gateway:"
               " sluice serve DIR --gateway --default-model NAME -- --device cpu."
               " sluiced --help and sluice-gateway --help list them.")
    add = parser.add_argument
    add("folder", nargs="?", type=pathlib.Path, metavar="DIR",
        help="a model's folder, or a folder of such folders (default: the demo model)")
    add("--host", default="127.0.0.1", metavar="ADDRESS",
        help="the address at which both listen (default: %(default)s)")
    add("--grpc-port", type=int, default=8001, metavar="N",
        help="the daemon's port (default: %(default)s)")
    add("--http-port", type=int, default=8000, metavar="N",
        help="the gateway's port (default: %(default)s)")
    add("--metrics-port", type=int, default=8002, metavar="N",
        help="the port of /metrics and the status page (default: %(default)s)")
    add("--admin-port", type=int, default=8003, metavar="N",
        help="the port of the admin API, on 127.0.0.1 (default: %(default)s)")
    add("--state", metavar="FOLDER", default=_state_folder(),
        help="keeps the measured ladder, so that the next start is faster, and the daemon's log"
             " (default: %(default)s)")
    return parser


def _state_folder() -> str:
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(base, "sluice")


def _fail(problem: str) -> NoReturn:
    sys.exit(f"sluice serve: {problem}")


def _program(name: str) -> pathlib.Path:
    """Returns the path of a program next to this one or in PATH."""
    here = os.path.dirname(os.path.abspath(sys.argv[0]))
    found = shutil.which(name, path=os.pathsep.join([here, os.environ.get("PATH", os.defpath)]))
    if found is None:
        _fail(f"the program {name} is not in PATH. Install the package sluice-server, or add the"
              " folder of a build to PATH.")
    return pathlib.Path(found).resolve()


def _demo(sluiced: pathlib.Path) -> pathlib.Path:
    """Returns the demo model of an installation, or of the repository with this build."""
    places = [sluiced.parents[1] / "share" / "sluice" / "models" / "demo"]
    places += [each / "models" / "demo" for each in sluiced.parents]
    for place in places:
        if (place / "config.json").is_file():
            return place
    _fail(f"there is no demo model at {places[0]}. Name the folder of a model: sluice serve DIR")


def _folders(folder: pathlib.Path) -> list[pathlib.Path]:
    """Returns the folder of a model, or the folders in a folder of models."""
    try:
        if _is_model(folder):
            return [folder]
        found = sorted(each for each in folder.iterdir() if each.is_dir()
                       and not each.name.startswith("."))
    except OSError as error:
        _fail(f"cannot read {folder}: {error.strerror}. Name the folder of a model:"
              " sluice serve DIR")
    if not any(map(_is_model, found)):
        _fail(f"{folder} has no config.json and no folder with one. Name the folder of a model, or"
              " download one with sluice-pull.")
    return found


def _is_model(folder: pathlib.Path) -> bool:
    return any((folder / name).is_file() for name in ("config.json", "gliner_config.json"))


def _problem(sluiced: pathlib.Path, folder: pathlib.Path, name: str, options: list[str]) -> str:
    """Returns why the daemon cannot serve a folder, or an empty text."""
    if not (folder / "config.json").is_file():
        if not (folder / "gliner_config.json").is_file():
            return "it has no config.json"
        converted = folder.with_name(f"{folder.name}-sluice")
        return (f"it must be converted; run python tools/convert {shlex.quote(str(folder))}"
                f" {shlex.quote(str(converted))} in Sluice's repository")
    if not re.fullmatch(r"[\w.-]+", name):
        return ("its name cannot be the name of a model; rename it, with letters, digits and any of"
                " . _ - only")
    check = subprocess.run([str(sluiced), "--check", "--model", f"{name}={folder}", *options],
                           capture_output=True, text=True, errors="replace")
    lines = check.stderr.strip().splitlines() or [f"sluiced --check: status {check.returncode}"]
    return "" if check.returncode == 0 else "\n  ".join(lines)


def _models(
    sluiced: pathlib.Path, folder: pathlib.Path, options: list[str]
) -> dict[str, pathlib.Path]:
    """Returns the models of a folder by their names. Prints why the other folders are skipped.

    Exits if no folder can be served.
    """
    models, problems = {}, []
    for each in _folders(folder):
        name = each.resolve().name if each == folder else each.name
        if problem := _problem(sluiced, each, name, options):
            problems.append(f"{each}: {problem}")
        else:
            models[name] = each
    if not models:
        causes = {problem.partition(": ")[2] for problem in problems}
        # A wrong option of the daemon is the same problem for each folder.
        cause = causes.pop() if len(causes) == 1 else ""
        if cause.startswith("sluiced: unknown argument"):
            _fail(f"{cause}. The options after -- are the daemon's")
        _fail("\n".join(["no model can be served:", *([cause] if cause else problems)]))
    for line in problems:
        print(f"sluice serve: skips {line}", file=sys.stderr, flush=True)
    return models


def _has_template(folder: pathlib.Path) -> bool:
    # Without tokenizer.json, the template's special tokens would be read as plain text.
    if (folder / "tokenizer.model").is_file() and not (folder / "tokenizer.json").is_file():
        return False
    try:
        return pair_frame.template_of(folder) is not None
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _check_different(given: argparse.Namespace) -> None:
    options: dict[int, str] = {}
    for name in _PORTS:
        option, port = _option(name), getattr(given, name)
        if port in options:
            _fail(f"{options[port]} and {option} are both {port}. Use another port for one of"
                  " them.")
        options[port] = option


def _is_free(option: str, host: str, port: int) -> bool:
    """Returns whether a port can be used. Exits if no port of its kind can be used."""
    try:
        with socket.create_server((host, port)):
            return True
    except socket.gaierror as error:
        _fail(f"--host {host}: {error.strerror}. Use an address of this host, such as 127.0.0.1.")
    except PermissionError:
        _fail(f"{option}: only root may listen at port {port}. Use a port from 1024.")
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return False
        _fail(f"--host {host}: {error.strerror}. Use an address of this host, such as 127.0.0.1.")


def _free_port(host: str, used: set[int]) -> int:
    """Returns a free port that is not in `used`."""
    while True:
        with socket.create_server((host, 0)) as listener:
            port = int(listener.getsockname()[1])
        if port not in used:
            return port


def _command(given: argparse.Namespace, ports: dict[str, int], rest: list[str]) -> str:
    """Returns the command of this process with other ports."""
    words = ["sluice", "serve", *([str(given.folder)] if given.folder else [])]
    parser = arguments()
    for name, value in {**vars(given), **ports}.items():
        if name != "folder" and value != parser.get_default(name):
            words += [_option(name), str(value)]
    return shlex.join([*words, *rest])


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _addresses(given: argparse.Namespace, rest: list[str]) -> dict[str, str]:
    """Returns the addresses by the names of their options.

    Exits if ports are in use, with a command that has free ones.
    """
    hosts = {name: "127.0.0.1" if name == "admin_port" else given.host for name in _PORTS}
    for name in _PORTS:
        if not 1 <= getattr(given, name) <= 65535:
            _fail(f"{_option(name)} is {getattr(given, name)}; expected a port from 1 to 65535")
    taken = [name for name in _PORTS
             if not _is_free(_option(name), hosts[name], getattr(given, name))]
    if taken:
        used = {getattr(given, name) for name in _PORTS}
        free = {}
        for name in taken:
            free[name] = _free_port(hosts[name], used)
            used.add(free[name])
        ports = ", ".join(f"{getattr(given, name)} ({_option(name)})" for name in taken)
        running = ""
        if set(_PORTS[1:]) <= set(taken) and _answers(
                f"http://{hosts['metrics_port']}:{given.metrics_port}/livez"):
            running = (" A daemon runs at these addresses. To add models to it, start it with"
                       " sluice serve DIR -- --model-repository FOLDER, put their folders into"
                       f" FOLDER, and run sluice load NAME --admin {hosts['admin_port']}:"
                       f"{given.admin_port}.")
        _fail(f"these ports are in use by other processes: {ports}.{running} Use free ones:\n"
              f"  {_command(given, free, rest)}")
    return {name: f"{hosts[name]}:{getattr(given, name)}" for name in _PORTS}


def _doctor(given: argparse.Namespace, addresses: dict[str, str]) -> str:
    """Returns the command that checks the daemon."""
    parser = arguments()
    names = ("host", "grpc_port", "metrics_port", "admin_port")
    if all(getattr(given, name) == parser.get_default(name) for name in names):
        return "sluice doctor"
    return (f"sluice doctor --server {addresses['grpc_port']}"
            f" --metrics-address {addresses['metrics_port']} --admin {addresses['admin_port']}")


def _open_state(text: str, models: dict[str, pathlib.Path]) -> tuple[pathlib.Path, pathlib.Path]:
    """Makes the folder and returns the paths of the log and of the ladder file of these models."""
    folder = pathlib.Path(text).expanduser()
    served = json.dumps([[name, str(path.resolve())] for name, path in models.items()])
    log = folder / "sluiced.log"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with log.open("ab"):
            pass
        if not os.access(folder, os.W_OK):
            raise PermissionError(13, os.strerror(13))
    except OSError as error:
        _fail(f"cannot write to {folder}: {error.strerror}. Name a folder that this user can write:"
              " sluice serve --state FOLDER")
    return log, folder / f"ladder-{hashlib.sha256(served.encode()).hexdigest()[:16]}"


class _Children:
    """The daemon and the gateway. Leaving the context ends both, the gateway first."""

    def __init__(self) -> None:
        self._started: list[tuple[str, subprocess.Popen[str]]] = []
        self.stop = threading.Event()

    def __enter__(self) -> _Children:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, lambda *_: self.stop.set())
        return self

    def __exit__(self, *_: object) -> None:
        for _name, process in reversed(self._started):
            process.terminate()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def start(self, name: str, command: list[str], **options: Any) -> subprocess.Popen[str]:
        # A session of its own: Ctrl-C reaches this process only, which ends the others in order.
        process = subprocess.Popen(command, text=True, start_new_session=True, **options)
        self._started.append((name, process))
        return process

    def ended(self) -> str | None:
        """Returns the name and the status of a child that has ended, or None."""
        for name, process in self._started:
            if process.poll() is not None:
                return f"{name} ended with status {process.returncode}"
        return None


def _answers(url: str) -> bool:
    context = ssl.create_default_context()  # A certificate need not name the address of this host.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(url, timeout=1, context=context) as answer:
            return bool(answer.status == 200)
    except (OSError, HTTPException):
        return False


def _wait(children: _Children, url: str, log: pathlib.Path) -> None:
    """Waits until `url` answers. Exits if a child ends, with the last lines of the daemon's log."""
    while not children.stop.is_set() and not _answers(url):
        if ended := children.ended():
            lines = log.read_text(errors="replace").splitlines()[-5:]
            _fail("\n".join([f"{ended}. The last lines of {log}:", *lines]))
        children.stop.wait(_POLL_S)


def _gateway_arguments() -> tuple[argparse.ArgumentParser, Callable[..., None]]:
    """Returns the parser of the gateway's options, and a function that checks their values."""
    program = importlib.import_module("sluice_client.gateway.__main__")
    parser: argparse.ArgumentParser = program.arguments()
    parser.prog = "sluice serve DIR --gateway"
    return parser, program.check_names


def _check_gateway(options: list[str]) -> argparse.Namespace:
    """Returns the gateway's options. Exits if it does not have them, or if they are options of this
    program."""
    parser, check = _gateway_arguments()
    parsed = parser.parse_args(options)
    check(parser, parsed)
    for name, own in (("listen", "--host and --http-port"), ("daemon", "--host and --grpc-port")):
        if getattr(parsed, name) != parser.get_default(name):
            _fail(f"--{name} after --gateway is not allowed; use {own} before --gateway")
    return parsed


def _serve(
    given: argparse.Namespace, daemon_arguments: list[str], gateway_arguments: list[str]
) -> None:
    gateway = _check_gateway(gateway_arguments)
    sluiced = _program("sluiced")
    models = (_models(sluiced, given.folder, daemon_arguments) if given.folder
              else {"demo": _demo(sluiced)})
    _check_different(given)
    rest = [*(["--gateway", *gateway_arguments] if gateway_arguments else []),
            *(["--", *daemon_arguments] if daemon_arguments else [])]
    addresses = _addresses(given, rest)
    http, grpc, metrics, admin = (addresses[name] for name in _PORTS)
    log, ladder = _open_state(given.state, models)
    # urllib and gRPC would send calls of this host to a proxy of the environment.
    proxied = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
    os.environ["no_proxy"] = ",".join(filter(None, (proxied, given.host)))
    with _Children() as children, log.open("w") as output:
        children.start("the daemon", [
            str(sluiced), "--server.grpc.address", grpc, "--server.metrics.address", metrics,
            "--server.admin.address", admin, "--engine.ladder.file", str(ladder),
            "--server.lifecycle.drain-delay", "0",
            *(word for name, path in models.items() for word in ("--model", f"{name}={path}")),
            *daemon_arguments], stdout=output, stderr=subprocess.STDOUT)
        _wait(children, f"http://{metrics}/readyz", log)
        children.start("the gateway", [
            sys.executable, "-m", "sluice_client.gateway", "--daemon", grpc, "--listen", http,
            *(word for name, path in models.items() if _has_template(path)
              for word in ("--chat", f"{name}={path}")),
            *gateway_arguments], stdout=subprocess.DEVNULL)
        url = f"{'https' if gateway.certificate else 'http'}://{http}"
        _wait(children, f"{url}/livez", log)
        if not children.stop.is_set():
            print(f"gRPC:   {grpc}\nHTTP:   {url}\nstatus: http://{metrics}/\n"
                  f"admin:  {admin}\nmodels: {', '.join(models)}\n"
                  f"check:  {_doctor(given, addresses)}\n"
                  f"stop with Ctrl-C; the daemon's log is {log}",
                  flush=True)
        while not children.stop.wait(0.2):
            if ended := children.ended():
                _fail(f"{ended}; see {log}")


def main() -> None:
    parser = arguments()
    own: list[str] = []
    parts: dict[str, list[str]] = {"--": [], "--gateway": []}
    part = own
    for word in sys.argv[1:]:
        if word in parts:
            part = parts[word]
        else:
            part.append(word)
    given, unknown = parser.parse_known_args(own)
    if importlib.util.find_spec("uvicorn") is None:
        _fail("the gateway's packages are missing. Run pip install './clients/python[gateway]' in"
              " Sluice's repository.")
    if unknown:
        gateways, _ = _gateway_arguments()
        _, left = gateways.parse_known_args(unknown)
        where = "" if left else "; put options of the gateway after --gateway"
        if any(word.startswith("--") and "." in word for word in left):
            where = "; put options of the daemon after --"
        parser.error(f"unrecognized arguments: {' '.join(left or unknown)}{where}")
    try:
        _serve(given, parts["--"], parts["--gateway"])
    except KeyboardInterrupt:
        sys.exit(130)  # the exit status of shells after SIGINT


if __name__ == "__main__":
    main()
