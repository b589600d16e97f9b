"""Runs contenders in turn. Each is suspended while another is measured."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

import servers


class Failed(Exception):
    """A contender that failed while it was measured; the message has the reason in one line."""


class Contender(Protocol):
    def suspend(self) -> None: ...
    def resume(self) -> None: ...


class Library:
    """A library in its own process on one processor. The process reads a JSON line for each piece
    of work and writes one with the figures. At its start it writes one more line, `told`.
    `environment` has variables for the process, in addition to the inherited ones.
    """

    def __init__(self, python: pathlib.Path | None, script: pathlib.Path, arguments: list,
                 processor: int, log: pathlib.Path, stack: contextlib.ExitStack,
                 environment: Mapping[str, str] = MappingProxyType({})):
        if python is None:
            raise servers.NotStarted("no interpreter with its packages was given")
        self._process = subprocess.Popen(
            list(map(str, [python, script, *arguments])), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=stack.enter_context(log.open("w")), text=True,
            bufsize=1, env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            preexec_fn=lambda: os.sched_setaffinity(0, [processor]))
        stack.callback(self._process.kill)
        first = self._process.stdout.readline()
        if not first:
            lines = log.read_text().strip().splitlines()
            raise servers.NotStarted(lines[-1] if lines else "no output")
        self.told = json.loads(first)

    def ask(self, **asked) -> Any:
        try:
            self._process.stdin.write(json.dumps(asked) + "\n")
            return json.loads(self._process.stdout.readline())
        except (BrokenPipeError, json.JSONDecodeError) as error:
            raise Failed(f"its process ended or wrote no valid answer: {error}") from error

    def suspend(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)


def start_all(makers: dict[str, Callable[[], Any]], only: list[str] | None,
              tell: Callable[[Any], dict]) -> tuple[dict, dict[str, dict], dict[str, str]]:
    """Starts the contenders, or those whose names contain a word of `only`. Returns the started
    ones by name, suspended; the result of `tell` for each; and the reasons why others were left
    out.
    """
    started, told, left_out = {}, {}, {}
    for name, make in makers.items():
        if only and not any(word in name for word in only):
            continue
        try:
            contender = make()
        except (servers.NotStarted, OSError) as error:
            left_out[name] = str(error)[:200]
            print(f"{name} is left out: {error}", flush=True)
            continue
        told[name] = tell(contender)
        contender.suspend()
        started[name] = contender
        print(f"{name} has started", flush=True)
    return started, told, left_out


@contextlib.contextmanager
def turn_of(contender: Contender):
    """Resumes a contender while it is in use."""
    try:
        contender.resume()
        yield contender
    finally:
        contender.suspend()


def in_turn(order: list[str], started: dict, left_out: dict[str, str],
            work: Callable[[str, Any], None]) -> None:
    """Calls `work(name, contender)` for each started contender, in this order. A contender that
    fails is not measured again: it moves from `started` to `left_out`.
    """
    for name in order:
        if name not in started:
            continue
        try:
            with turn_of(started[name]) as contender:
                work(name, contender)
        except Failed as error:
            del started[name]
            left_out[name] = str(error)[:300]
            print(f"{name} is left out: {error}", flush=True)
