"""Tests the limits of the gateway, and that one peer at a limit does not affect the others."""

import asyncio
import http.client
import json
import pathlib
import socket
import ssl
import threading
import types

import pytest
from authority import Authority
from certificates import Files
from gateway import Gateway
from scripted_server import Refusal, ScriptedServer, _answer
from waiting import PATIENCE_S, wait_until

ASKED = {"model": "scripted", "prompt": "a", "max_tokens": 1}
HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: a\r\n"


def connect(gateway, source="127.0.0.1"):
    """Opens a connection from `source`, an address of the loopback network."""
    host, port = gateway.address.split(":")
    return socket.create_connection((host, int(port)), PATIENCE_S, source_address=(source, 0))


def ask(gateway, path="/v1/completions", body=None, source="127.0.0.1", **headers):
    """Returns the status and the text of an answer to a call from `source`."""
    host, port = gateway.address.split(":")
    connection = http.client.HTTPConnection(host, int(port), PATIENCE_S,
                                            source_address=(source, 0))
    connection.request("GET" if body is None else "POST", path, body and json.dumps(body), headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def received(connection):
    """Returns everything that arrives until the connection ends."""
    content = b""
    try:
        while piece := connection.recv(1 << 16):
            content += piece
    except ConnectionResetError:
        pass
    return content


def in_flight(gateway):
    return gateway.metric("sluice_gateway_requests_in_flight")


def refused(gateway, reason):
    return gateway.metric(f'sluice_gateway_refused_total{{reason="{reason}"}}')


class Refusing(ScriptedServer):
    """Refuses each call, and counts the calls."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def _next(self, context):
        self.calls += 1
        return Refusal("INVALID_ARGUMENT")


class Blocked(ScriptedServer):
    """Answers each call with "a"; the first answer waits until `gate` is set."""

    def __init__(self):
        super().__init__()
        self.gate = threading.Event()
        self.order = []

    def _infer(self, request, context):
        self.order.append(request.id)
        if len(self.order) == 1:
            assert self.gate.wait(PATIENCE_S)
        return _answer("a")


def test_a_peer_that_fills_the_calls_leaves_room_for_others():
    with ScriptedServer("a", "b") as server, Gateway(
        server.address, "--max-in-flight", 10
    ) as gateway:
        slow = []
        for count in range(1, 8):
            slow.append(connect(gateway))
            slow[-1].sendall(HEAD + b"content-length: 9\r\n\r\n{")
            wait_until(lambda: in_flight(gateway) == count)
        status, text = ask(gateway, body=ASKED)
        assert status == 429 and "--max-in-flight" in text and '"code":"calls"' in text
        assert ask(gateway, body=ASKED, source="127.0.0.2")[0] == 200
        assert refused(gateway, "calls") == 1
        for each in slow:
            each.close()
        wait_until(lambda: in_flight(gateway) == 0)
        assert ask(gateway, body=ASKED)[0] == 200


def test_a_peer_that_fills_the_memory_leaves_room_for_others():
    with ScriptedServer("a") as server, Gateway(
        server.address, "--max-pending-bytes", 1_000_000
    ) as gateway:
        slow = []
        for count in range(1, 8):
            slow.append(connect(gateway))
            slow[-1].sendall(HEAD + b"content-length: 110000\r\n\r\n" + b" " * 100_000)
            wait_until(lambda: gateway.metric("sluice_gateway_memory_held_bytes")
                       == count * 100_000)
        big = {**ASKED, "prompt": "a" * 20_000}
        status, text = ask(gateway, body=big)
        assert status == 429 and "--max-pending-bytes" in text
        assert ask(gateway, body=big, source="127.0.0.2")[0] == 200
        for each in slow:
            each.close()
        wait_until(lambda: gateway.metric("sluice_gateway_memory_held_bytes") == 0)


def test_copies_of_a_prompt_count_as_memory():
    """Each of n answers is a request of its own to the daemon, with a copy of the prompt."""
    with ScriptedServer("a") as server, Gateway(
        server.address, "--max-pending-bytes", 1_000_000
    ) as gateway:
        asked = {**ASKED, "prompt": "a" * 20_000}
        assert ask(gateway, body=asked)[0] == 200
        status, text = ask(gateway, body={**asked, "n": 16})
        assert status == 413 and "--max-pending-bytes" in text
        assert not server.script


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("size, sent", [(500_000, 2), (2_000_000, 1)])
def test_few_copies_of_a_long_prompt_are_sent_before_one_is_answered(stream, size, sent):
    with Refusing() as server, Gateway(server.address) as gateway:
        asked = {**ASKED, "prompt": "a" * size, "n": 16, "stream": stream}
        assert ask(gateway, body=asked)[0] == 400
        assert 1 <= server.calls <= sent


def test_callers_take_turns_at_the_daemon():
    with Blocked() as server, Gateway(server.address, "--max-daemon-calls", 1) as gateway:
        threads = []

        def start(name, source):
            thread = threading.Thread(target=ask, args=(gateway, "/v1/completions", ASKED, source),
                                      kwargs={"x-request-id": name})
            thread.start()
            threads.append(thread)
            wait_until(lambda: in_flight(gateway) == len(threads))

        for i in range(12):
            start(f"flood {i}", "127.0.0.1")
        start("honest", "127.0.0.2")
        server.gate.set()
        for thread in threads:
            thread.join()
        assert len(server.order) == 13
        assert server.order.index("honest") <= 2, server.order


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("by_header", [False, True])
def test_a_call_that_waits_for_a_place_ends_at_its_deadline(stream, by_header):
    options = [] if by_header else ["--timeout", 1]
    deadline = {"x-request-timeout-ms": "50"} if by_header else {}
    with Blocked() as server, Gateway(
        server.address, "--max-daemon-calls", 1, *options
    ) as gateway:
        first = threading.Thread(
            target=ask, args=(gateway, "/v1/completions", ASKED),
            kwargs={"x-request-timeout-ms": str(round(PATIENCE_S * 1000))})
        first.start()
        wait_until(lambda: server.order)
        status, text = ask(gateway, body={**ASKED, "stream": stream}, **deadline)
        assert status == 504 and "--max-daemon-calls" in text and '"code":"deadline"' in text
        server.gate.set()
        first.join()


def test_a_call_ends_at_the_longest_deadline():
    """The timeout of one request to the daemon may be longer, and a call may make several."""
    with Blocked() as server, Gateway(server.address, "--max-timeout", 0.2) as gateway:
        status, text = ask(gateway, body=ASKED)
        assert status == 504 and "--max-timeout" in text and '"code":"deadline"' in text
        server.gate.set()


def test_silent_connections_of_a_peer_leave_room_for_others_and_for_probes():
    with ScriptedServer() as server, Gateway(
        server.address, "--max-connections", 10, "--head-timeout", 3600
    ) as gateway:
        silent = [connect(gateway) for _ in range(30)]
        wait_until(lambda: refused(gateway, "connections") > 0)
        assert ask(gateway, "/livez", source="127.0.0.2")[0] == 200
        # A new connection of the same peer replaces the peer's oldest silent one.
        assert ask(gateway, "/livez")[0] == 200
        host, port = gateway.metrics_address.split(":")
        probes = [socket.create_connection((host, int(port)), PATIENCE_S) for _ in range(100)]
        threads = threads_of(gateway)
        probe = http.client.HTTPConnection(host, int(port), PATIENCE_S)
        probe.request("GET", "/livez")
        assert probe.getresponse().status == 200
        probe.close()
        assert threads_of(gateway) == threads
        for each in silent + probes:
            each.close()


def threads_of(gateway):
    status = pathlib.Path(f"/proc/{gateway.process.pid}/status").read_text()
    return int(status.partition("Threads:")[2].split()[0])


@pytest.mark.parametrize(
    "sent, status, reason",
    [
        pytest.param(b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"a" * 17_000 + b"\r\n\r\n", 431, "head",
                     id="a long header"),
        pytest.param(b"GET / HTTP/1.1\r\nhost: a\r\n" + b"x: a\r\n" * 4000, 431, "head",
                     id="many headers"),
        pytest.param(b"GET /" + b"a" * 17_000, 431, "head", id="a long path"),
        pytest.param(b"NOTHING\r\n\r\n", 400, "malformed", id="not HTTP"),
        pytest.param(HEAD + b"transfer-encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 5000, 400,
                     "chunks", id="tiny chunks"),
        pytest.param(HEAD + b"transfer-encoding: chunked\r\n\r\n0\r\nx: " + b"a" * 900_000, 400,
                     "chunks", id="a long trailer"),
        pytest.param(HEAD + b"authorization: " + b"a" * 5000 + b"\r\ncontent-length: 0\r\n\r\n",
                     431, "head", id="a long token"),
        pytest.param(b"GET /v1/models HTTP/1.1\r\nhost: evil.example\r\n\r\n", 421, "host",
                     id="another host"),
    ],
)
def test_requests_over_a_limit_of_http_are_refused(sent, status, reason):
    with ScriptedServer() as server, Gateway(server.address) as gateway:
        with connect(gateway) as connection:
            try:
                connection.sendall(sent)
            except ConnectionError:
                pass  # The refusal came first.
            if reason == "host":
                connection.shutdown(socket.SHUT_WR)
            assert received(connection).startswith(b"HTTP/1.1 %d" % status)
        assert refused(gateway, reason) == 1


def test_a_pipelined_request_closes_the_connection_after_the_first_answer():
    with Blocked() as server, Gateway(server.address) as gateway:
        body = json.dumps(ASKED).encode()
        call = HEAD + b"content-length: %d\r\n\r\n%s" % (len(body), body)
        with connect(gateway) as connection:
            connection.sendall(call * 1000)
            wait_until(lambda: server.order)
            server.gate.set()
            answer = received(connection)
        assert answer.startswith(b"HTTP/1.1 200") and b"connection: close" in answer
        assert answer.count(b"HTTP/1.1") == 1 and len(server.order) == 1


def test_names_of_the_gateway_are_configured():
    with ScriptedServer(*"abc") as server, Gateway(
        server.address, "--host", "Models.example"
    ) as gateway:
        for host in ("models.example:8000", "127.0.0.1:80", "[::1]:80"):
            assert ask(gateway, body=ASKED, Host=host)[0] == 200
        assert ask(gateway, body=ASKED, Host="other.example")[0] == 421


def test_only_a_well_formed_trace_context_is_passed_on():
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with ScriptedServer(*"abcd") as server, Gateway(server.address) as gateway:
        for parent, state in ((trace, "a=b"), (trace, "a" * 600), (trace + "-x", "a=b"),
                              ("00" * 4000, "a=b")):
            assert ask(gateway, body=ASKED, traceparent=parent, tracestate=state)[0] == 200
        passed = [("traceparent" in each, "tracestate" in each) for each in server.metadata]
        assert passed == [(True, True), (True, False), (False, False), (False, False)]


def test_errors_do_not_name_the_address_of_the_daemon():
    with ScriptedServer() as server:
        address = server.address
    with Gateway(address) as gateway:
        for path, body in (("/v1/models", None), ("/v1/completions", ASKED),
                           ("/v1/completions", {**ASKED, "stream": True})):
            status, text = ask(gateway, path, body)
            port = address.split(":")[1]
            assert status == 503 and "127.0.0.1" not in text and port not in text, text
            assert '"code":"unavailable"' in text


def test_rows_and_padding_are_limited_before_they_take_memory():
    with ScriptedServer() as server, Gateway(server.address) as gateway:
        for rows, text in (([[1]] * 3000, "2048"), ([[1] * 30_000] + [[1]] * 1000, "1048576"),
                           (["a"] * 3000, "2048")):
            for path, name in (("/v1/embeddings", "input"), ("/v1/rerank", "documents"),
                               ("/rerank", "texts"), ("/v2/embed", "texts"), ("/embed", "inputs"),
                               ("/embed_all", "inputs"), ("/embed_sparse", "inputs"),
                               ("/predict", "inputs"), ("/tokenize", "inputs"),
                               ("/score", "text_2"), ("/classify", "input"), ("/pooling", "input")):
                # A list of texts is one row of /predict.
                body = {"model": "scripted", name: [[each] for each in rows]
                        if path == "/predict" and rows[0] == "a" else rows}
                body.update({"query": "a"} if "rerank" in path else {})
                body.update({"text_1": "a"} if path == "/score" else {})
                status, answer = ask(gateway, path, body)
                assert status == 400 and text in answer and "Split" in answer, (path, answer)
        status, answer = ask(gateway, "/similarity", {
            "model": "scripted", "inputs": {"source_sentence": "a", "sentences": ["a"] * 3000}})
        assert status == 400 and "2048" in answer and "Split" in answer
        for texts, labels in ((3000, 1), (1, 3000), (70, 70)):
            status, answer = ask(gateway, "/zero-shot-classification", {
                "model": "scripted", "inputs": ["a"] * texts,
                "parameters": {"candidate_labels": [str(i) for i in range(labels)]}})
            assert status == 400 and "2048" in answer, answer
        assert refused(gateway, "size") == 3 * 12 + 1 + 3
        wait_until(lambda: in_flight(gateway) == 0)


def test_calls_are_spread_over_connections():
    from sluice_client.gateway.daemon import Connections
    from sluice_client.gateway.fairness import Caller

    async def run():
        connections = Connections(["a", "b", "c"], 10)
        used = []

        async def hold(depth):
            async with connections.place(Caller("x"), None) as client:
                used.append(client)
                if depth:
                    await hold(depth - 1)

        await hold(5)
        return used

    assert asyncio.run(run()) == ["a", "b", "c"] * 2


def test_other_calls_are_served_between_the_answers_of_a_call():
    from sluice_client.gateway.completions import _all, _Job
    from sluice_client.results import Generation

    turns = 0

    async def count_turns():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def generate(*_, **__):
        return Generation("a", [1], [-0.5], "stop")

    async def run():
        counter = asyncio.ensure_future(count_turns())
        job = _Job("m", ["a"], 8, 1, {}, False, False, False, lambda held: None)
        gateway = types.SimpleNamespace(client=types.SimpleNamespace(generate=generate))
        converted, _ = await _all(gateway, job, lambda index, part: {"index": index, "at": turns})
        counter.cancel()
        return converted

    converted = asyncio.run(run())
    assert [each["index"] for each in converted] == list(range(8))
    assert len({each["at"] for each in converted}) == 8


def test_concurrent_probes_share_one_call_to_the_daemon():
    from sluice_client.gateway.daemon import Readiness

    class Client:
        calls = 0

        async def server_ready(self, timeout_s):
            self.calls += 1
            await asyncio.sleep(0)
            return True

    async def run():
        client = Client()
        readiness = Readiness(client)
        assert all(await asyncio.gather(*(readiness.ready() for _ in range(100))))
        assert client.calls == 1
        assert await readiness.ready() and client.calls == 2
        readiness.drain()
        assert not await readiness.ready()

    asyncio.run(run())


def test_handshakes_in_progress_count_as_connections(tmp_path):
    authority = Authority()
    files = Files(tmp_path, authority)
    with ScriptedServer() as server, Gateway(
        server.address, "--certificate", files.crt, "--key", files.key, "--max-connections", 10,
        "--head-timeout", 3600, authority=files.ca
    ) as gateway:
        trusted = ssl.create_default_context(cafile=files.ca)
        for _ in range(3):  # A handshake that ends gives its place back.
            others, handshakes = (refused(gateway, each) for each in ("connections", "handshake"))
            silent = [connect(gateway, "127.0.0.2") for _ in range(30)]
            wait_until(lambda: refused(gateway, "connections") == others + 23)
            with trusted.wrap_socket(connect(gateway, "127.0.0.1"),
                                     server_hostname="localhost") as honest:
                honest.sendall(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n")
                assert honest.recv(1 << 10).startswith(b"HTTP/1.1 200")
            for each in silent:
                each.close()
            wait_until(lambda: refused(gateway, "handshake") == handshakes + 7)


@pytest.mark.parametrize(
    "soft, hard, requested, fit, raised",
    [(256, 65536, 4096, 4096, 4288), (65536, 65536, 4096, 4096, None), (256, 1024, 4096, 832, 1024),
     (-1, -1, 4096, 4096, None), (256, -1, 4096, 4096, 4288)],
)
def test_descriptors_suffice_for_the_connections(monkeypatch, soft, hard, requested, fit, raised):
    from sluice_client.gateway import __main__ as program

    made = []
    monkeypatch.setattr(program.resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(program.resource, "setrlimit", lambda _, pair: made.append(pair[0]))
    assert program._connections_for(requested) == fit
    assert made == ([] if raised is None else [raised])
