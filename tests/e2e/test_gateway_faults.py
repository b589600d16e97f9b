"""Tests faults of the processes around the gateway: it is killed, or the daemon below it is."""

import http.client
import socket
import threading

from always import await_balance, undisturbed
from conftest import Daemon, free_port
from gateway import Gateway
from limits import descriptors
from waiting import PATIENCE_S, wait_until

BODY = {"model": "demo", "prompt": "And it came", "max_tokens": 24, "ignore_eos": True, "seed": 1}


class Callers:
    """Threads that call a gateway until the end of the context, and the outcomes of their calls.

    An outcome is a status and the text, or "closed" for a connection that ended."""

    def __init__(self, gateway, count=6):
        self._gateway = gateway
        self._ended = threading.Event()
        self.outcomes = []
        self._threads = [threading.Thread(target=self._run, args=(i % 2 == 1,))
                         for i in range(count)]

    def _run(self, stream):
        while not self._ended.is_set():
            try:
                reply = self._gateway.post("/v1/completions", {**BODY, "stream": stream})
                if reply.status != 200:
                    self.outcomes.append((reply.status, reply.body.decode()))
                elif stream and reply.stream_error:
                    self.outcomes.append((503, reply.stream_error["message"]))
                elif stream:
                    text = "".join(each["choices"][0]["text"] for each in reply.events
                                   if each.get("choices"))
                    self.outcomes.append((200, text))
                else:
                    self.outcomes.append((200, reply.json["choices"][0]["text"]))
            except (OSError, ValueError, http.client.HTTPException):
                self.outcomes.append(("closed", ""))
                if self._gateway.process.poll() is not None:
                    return

    def count(self, status):
        return sum(each[0] == status for each in list(self.outcomes))

    def await_answers(self, more=6):
        """Waits until `more` calls have been answered with 200."""
        wanted = self.count(200) + more
        wait_until(lambda: self.count(200) >= wanted, what=f"no answers: {self.outcomes[-5:]}")

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "a call never ended"


def answered_texts(callers):
    return {text for status, text in callers.outcomes if status == 200}


def test_a_killed_gateway_leaves_nothing_at_the_daemon(daemon):
    server = daemon()
    before = descriptors(server)
    with undisturbed(server):
        gateway = Gateway(server)
        with Callers(gateway) as callers:
            callers.await_answers()
            gateway.process.kill()
        gateway.process.wait(PATIENCE_S)
        gateway.process.stdout.close()
        assert len(answered_texts(callers)) == 1
        with Gateway(server) as again, Callers(again, count=2) as callers:
            callers.await_answers()
        assert callers.count(200) == len(callers.outcomes)
    # The calls of the killed gateway have been cancelled.
    await_balance(server)
    wait_until(lambda: descriptors(server) <= before + 1, what="a descriptor was left open")


def test_a_daemon_restarts_below_the_gateway():
    """Calls end with 503 while there is no daemon, and are answered once there is one again."""
    address = f"127.0.0.1:{free_port()}"
    daemon = Daemon(grpc=address)
    try:
        with Gateway(address) as gateway, Callers(gateway) as callers:
            for end in (Daemon.kill, Daemon.stop, Daemon.kill):
                callers.await_answers()
                end(daemon)
                refused = callers.count(503)
                wait_until(lambda before=refused: callers.count(503) > before + 6)
                assert gateway.get("/readyz").status == 503
                daemon = Daemon(grpc=address)
                wait_until(lambda: gateway.get("/readyz").status == 200)
            callers.await_answers()
        assert {status for status, _ in callers.outcomes} <= {200, 503}, callers.outcomes
        assert len(answered_texts(callers)) == 1
    finally:
        daemon.stop()


def test_the_gateway_connects_again_soon_after_a_long_outage():
    """The time between two attempts stays short. By gRPC's default it grows to two minutes."""
    attempts = 0
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        with Gateway(f"{host}:{port}", "--daemon-connections", 1):
            while attempts < 10:
                listener.settimeout(PATIENCE_S)
                listener.accept()[0].close()
                attempts += 1
