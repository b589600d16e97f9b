"""Tests deadlines, cancellation, TLS, connections and shutdown of the gateway."""

import contextlib
import json
import signal
import socket
import ssl
import subprocess
import threading

import grpc
import pytest
import sluice_client
from authority import Authority
from browser import DESKTOP, Browser
from certificates import Files, SecureDaemon
from conftest import DEMO, SLUICE
from gateway import Gateway
from gateway_fixtures import client, gateway, page, template
from scripted_server import Refusal, ScriptedServer
from sentence_models import SENTENCES
from test_python_lists import embedded, texts_of
from waiting import PATIENCE_S, wait_until


def test_refusal_has_a_retry_delay():
    with ScriptedServer(
        Refusal("RESOURCE_EXHAUSTED", 1500), Refusal("UNAVAILABLE"), [Refusal("UNAVAILABLE")],
        ["a", Refusal("INTERNAL")],
    ) as server, Gateway(server.address) as gateway:
        asked = {"model": "scripted", "prompt": "a", "max_tokens": 1}
        refused = gateway.post("/v1/completions", asked)
        assert refused.status == 429 and refused.headers["retry-after"] == "2"
        assert refused.headers["retry-after-ms"] == "1500"
        assert refused.json["error"]["type"] == "rate_limit_error"
        assert gateway.post("/v1/completions", asked).status == 503
        # If a stream fails before its first part, the HTTP status is the error's status.
        assert gateway.post("/v1/completions", {**asked, "stream": True}).status == 503
        later = gateway.post("/v1/completions", {**asked, "stream": True})
        assert later.status == 200
        first, *_, error = [json.loads(each.removeprefix(b"data: "))
                            for each in later.body.split(b"\n\n") if each.startswith(b"data: {")]
        assert first["choices"][0]["text"] == "a" and error["error"]["type"] == "server_error"
        # It counts as a failure, although its status was sent before.
        counted = 'sluice_gateway_requests_total{code="%d",route="/v1/completions"}'
        wait_until(lambda: gateway.metric(counted % 500) == 1)
        assert gateway.metric(counted % 503) == 2 and gateway.metric(counted % 200) == 0
        assert not server.script


class Crowded:
    """Refuses the next `refusals` requests with the text "full"; answers all others."""

    def __init__(self, refusals):
        self.calls, self.refusals, self._lock = 0, refusals, threading.Lock()

    def __call__(self, request, context):
        texts = texts_of(request)
        with self._lock:
            self.calls += 1
            refused = b"full" in texts and self.refusals > 0
            self.refusals -= refused
        if refused:
            context.set_trailing_metadata(
                [("grpc-retry-pushback-ms", "1"), ("sluice-reason", "queue_full")])
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "scripted refusal")
        return embedded(texts)


def test_refused_part_of_a_list_is_repeated_until_the_deadline():
    texts = ["a" * (1 + i) for i in range(200)]
    texts[150] = "full"
    crowded = Crowded(refusals=3)
    with ScriptedServer(infer=crowded) as server, Gateway(
        server.address, "--max-daemon-calls", 1
    ) as gateway:
        answer = gateway.post("/v1/embeddings", {"model": "m", "input": texts, "normalize": False})
        assert answer.status == 200, answer.body
        lengths = [each["embedding"] for each in answer.json["data"]]
        assert lengths == [[float(len(each))] for each in texts]
        assert crowded.calls == 4 + 3
        # A list that takes one request is not repeated.
        crowded.refusals = 1
        short = gateway.post("/v1/embeddings", {"model": "m", "input": ["full"]})
        assert short.status == 429 and short.headers["retry-after-ms"] == "1"
        crowded.refusals = 1 << 30
        late = gateway.post("/v1/embeddings", {"model": "m", "input": texts},
                            x_request_timeout_ms="300")
        assert late.status in (429, 504), late.body


def test_deadlines_and_headers_are_passed_on():
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with ScriptedServer("a", "b", "c") as server, Gateway(
        server.address, "--timeout", 50, "--max-timeout", 70
    ) as gateway:
        asked = {"model": "scripted", "prompt": "a", "max_tokens": 1}
        for milliseconds in ("20000", "90000"):
            gateway.post("/v1/completions", asked, x_request_timeout_ms=milliseconds,
                         authorization="Bearer secret", traceparent=trace)
        gateway.post("/v1/completions", asked)
        bounds = [(0, 20), (25, 70), (25, 50)]
        for left, (low, high) in zip(server.times_left, bounds):
            assert low < left < high + 1, server.times_left  # gRPC rounds deadlines up.
        assert server.metadata[0]["authorization"] == "Bearer secret"
        assert server.metadata[0]["traceparent"] == trace


def test_expired_deadline_returns_504(gateway):
    late = gateway.post("/v1/completions", {"model": "demo", "prompt": "a", "max_tokens": 250,
                                            "ignore_eos": True}, x_request_timeout_ms="1")
    assert late.status == 504 and late.json["error"]["code"] == "deadline"
    message = late.json["error"]["message"]
    assert "x-request-timeout-ms" in message and "--timeout" in message
    assert "timeout_s" not in message


def test_every_answer_names_its_request(gateway):
    asked = {"model": "demo", "prompt": "a", "max_tokens": 1}
    tensor = {"name": "input_ids", "datatype": "INT32", "shape": [1, 1], "data": [1]}
    long = "a" * 257
    for path, body, status in (
        ("/v1/completions", asked, 200), ("/v1/completions", {**asked, "stream": True}, 200),
        ("/v1/completions", {**asked, "top_p": 7}, 400), ("/v1/nothing", asked, 404),
        ("/v2/models/demo/infer", {"inputs": [tensor]}, 200),
    ):
        reply = gateway.post(path, body, x_request_id="own id")
        assert (reply.status, reply.headers["x-request-id"]) == (status, "own id")
        ids = {gateway.post(path, body).headers["x-request-id"] for _ in range(2)}
        assert len(ids) == 2 and all(ids), ids
        for given in ("", long):
            reply = gateway.post(path, body, x_request_id=given)
            assert reply.headers["x-request-id"] not in ("", given)
    # The header names the id that the daemon has.
    for body in ({"id": "of the body", "inputs": [tensor]}, {"id": "of the body", "inputs": []}):
        reply = gateway.post("/v2/models/demo/infer", body, x_request_id="own id")
        assert reply.headers["x-request-id"] == "of the body"
    reply = gateway.post("/v2/models/demo/infer", {"id": "\u00e9\n", "inputs": [tensor]})
    assert reply.json["id"] == "\u00e9\n" and reply.headers["x-request-id"].isalnum()


def test_a_request_without_an_id_is_explained_by_the_id_of_its_answer(demo, gateway, client):
    answer = client.completions.create(model="demo", prompt="a", max_tokens=1)
    assert answer.id == f"cmpl-{answer._request_id}"
    explained = subprocess.run(
        [SLUICE, "explain", answer._request_id, "--admin", demo.admin],
        capture_output=True, text=True)
    assert explained.returncode == 0 and answer._request_id in explained.stdout, explained


@pytest.mark.parametrize("stream", [False, True])
def test_disconnect_cancels_the_request(daemon, gate, stream):
    middle = gate("middle")
    server = daemon(faults=f"deliver@s:delay=0*3;deliver@s:{middle}*1;deliver@s:delay=20")
    with Gateway(server) as gateway:
        connection = gateway.connection()
        asked = {"model": "demo", "prompt": "a", "max_tokens": 250, "ignore_eos": True,
                 "stream": stream}
        connection.request("POST", "/v1/completions", json.dumps(asked), {"x-request-id": "s"})
        middle.await_met()
        if stream:
            connection.getresponse().read(1)
        connection.close()
        # The gateway counts the request once it has noticed the disconnect.
        sample = 'sluice_gateway_requests_total{code="499",route="/v1/completions"}'
        wait_until(lambda: gateway.metric(sample) == 1)
        assert gateway.metric("sluice_gateway_requests_in_flight") == 0
        middle.open()
        wait_until(lambda: server.metric("sluice_requests_total", code="CANCELLED") == 1)


def test_connection_is_dropped_if_the_caller_does_not_read(daemon):
    started = daemon()
    with Gateway(started, "--stall-timeout", 0.3) as gateway:
        # An answer of about 12 MB, which does not fit into the buffers of the connection.
        asked = {"inputs": [{"name": "input_ids", "datatype": "INT32", "shape": [300, 64],
                             "data": [1] * (300 * 64)}],
                 "outputs": [{"name": "xsa_cos_sim"}, {"name": "xsa_proj_frac"}]}
        body = json.dumps(asked).encode()
        with socket.socket() as idle:
            idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            host, port = gateway.address.split(":")
            idle.connect((host, int(port)))
            idle.sendall(b"POST /v2/models/demo/infer HTTP/1.1\r\nhost: a\r\n"
                         b"content-length: %d\r\n\r\n%s" % (len(body), body))
            route = "/v2/models/{model}/infer"
            sample = f'sluice_gateway_requests_total{{code="499",route="{route}"}}'
            wait_until(lambda: gateway.metric(sample) == 1)
            assert gateway.metric("sluice_gateway_requests_in_flight") == 0
            received = b""
            while piece := idle.recv(1 << 20):
                received += piece
            head, _, body = received.partition(b"\r\n\r\n")
            assert len(body) < int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])


def test_gateway_uses_tls_on_both_sides(tmp_path):
    authority = Authority()
    files = Files(tmp_path, authority)
    token = "a-token-of-the-tests"
    (tmp_path / "callers").write_text(f"alice: token:{token}\n")
    own = tmp_path / "own.crt", tmp_path / "own.key"
    for file, content in zip(own, authority.pair(name="gateway")):
        file.write_bytes(content)
    server = SecureDaemon(
        authority.certificate, *files.options(), "--server.tls.client-ca-file", str(files.ca),
        "--server.auth.callers-file", str(tmp_path / "callers"), "--server.auth.anonymous", "false")
    try:
        with Gateway(server, "--certificate", files.crt, "--key", files.key, "--daemon-ca",
                     files.ca, "--daemon-certificate", own[0], "--daemon-key", own[1],
                     "--daemon-name", "localhost", authority=files.ca) as gateway:
            asked = {"model": "demo", "prompt": "a", "max_tokens": 1}
            answer = gateway.post("/v1/completions", asked, authorization=f"Bearer {token}")
            assert answer.status == 200 and answer.json["usage"]["completion_tokens"] == 1
            refused = gateway.post("/v1/completions", asked)
            assert refused.status == 401
            assert refused.json["error"]["type"] == "authentication_error"
            assert refused.headers["www-authenticate"] == "Bearer"
            assert "header Authorization: Bearer" in refused.json["error"]["message"]
            assert refused.json["error"]["code"] == "credential_missing"
    finally:
        server.stop()


def test_a_daemon_that_an_authority_of_the_system_signed_is_reached_with_tls(tmp_path, monkeypatch):
    authority = Authority()
    files = Files(tmp_path, authority)
    monkeypatch.setenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", str(files.ca))
    with SecureDaemon(authority.certificate, *files.options()) as server:
        for options, status in ((["--daemon-tls"], 200), ([], 503)):
            with Gateway(server, *options) as gateway:
                answer = gateway.post("/v1/completions",
                                      {"model": "demo", "prompt": "a", "max_tokens": 1})
                assert answer.status == status, answer.body


def test_callers_that_the_daemon_does_not_know_are_counted_and_logged_with_their_address(
    daemon, tmp_path
):
    callers = tmp_path / "callers"
    callers.write_text("alice: token:a-token-of-the-tests\n")
    server = daemon("--server.auth.callers-file", str(callers), "--server.auth.anonymous", "false")
    gateway = Gateway(server)
    asked = {"model": "demo", "prompt": "a", "max_tokens": 1}
    for token, reason in ((None, "credential_missing"), ("unknown-token-0123456", "token_unknown")):
        headers = {"authorization": f"Bearer {token}"} if token else {}
        for _ in range(3):
            assert gateway.post("/v1/completions", asked, **headers).status == 401
        assert gateway.metric(f'sluice_gateway_refused_total{{reason="{reason}"}}') == 3
    status, output = gateway.stop()
    assert status == 0
    assert "refused 127.0.0.1 (credential_missing): the request has no bearer token" in output
    assert "refused 127.0.0.1 (token_unknown): the daemon does not know" in output


def test_failed_handshakes_are_counted_and_logged_with_the_peer(tmp_path):
    authority = Authority()
    files = Files(tmp_path, authority)
    with ScriptedServer("a") as server:
        gateway = Gateway(server.address, "--certificate", files.crt, "--key", files.key,
                          "--head-timeout", 5, authority=files.ca)
        host, port = gateway.address.split(":")
        before = gateway.metric('sluice_gateway_refused_total{reason="handshake"}')
        with socket.create_connection((host, int(port)), PATIENCE_S, ("127.0.0.7", 0)) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
            with contextlib.suppress(ConnectionResetError):
                while plain.recv(1024):
                    pass
        wait_until(lambda: gateway.metric(
            'sluice_gateway_refused_total{reason="handshake"}') == before + 1)
        assert gateway.get("/livez").status == 200
        status, output = gateway.stop()
    assert status == 0
    assert "refused 127.0.0.7 (handshake): the TLS handshake failed: HTTP_REQUEST" in output


def test_silent_connections_are_closed():
    with ScriptedServer("a") as server, Gateway(server.address, "--head-timeout", 0.2,
                                                "--body-timeout", 0.2) as gateway:
        host, port = gateway.address.split(":")
        for sent in (b"", b"POST /v1/compl", b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\nGET /li"):
            with socket.create_connection((host, int(port)), PATIENCE_S) as slow:
                slow.sendall(sent)
                received = b""
                while piece := slow.recv(1 << 16):
                    received += piece
                assert received.count(b"HTTP/1.1") == sent.count(b"\r\n\r\n")
        with socket.create_connection((host, int(port)), PATIENCE_S) as slow:
            slow.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n{")
            assert slow.recv(1 << 16).startswith(b"HTTP/1.1 408")
        assert gateway.metric('sluice_gateway_refused_total{reason="slow"}') == 1


def test_number_of_calls_in_progress_is_limited():
    with ScriptedServer() as server, Gateway(server.address, "--max-in-flight", 1) as gateway:
        host, port = gateway.address.split(":")
        head = b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n{"
        with socket.create_connection((host, int(port)), PATIENCE_S) as first:
            first.sendall(head)
            wait_until(lambda: gateway.metric("sluice_gateway_requests_in_flight") == 1)
            refused = gateway.post("/v1/completions", {})
            assert refused.status == 503 and "--max-in-flight" in refused.json["error"]["message"]
        wait_until(lambda: gateway.metric("sluice_gateway_requests_in_flight") == 0)


def test_readiness_follows_the_daemon(daemon):
    started = daemon()
    with Gateway(started) as gateway:
        assert gateway.get("/readyz").status == 200
        assert gateway.get("/v2/health/ready").json == {"ready": True}
        started.stop()
        assert gateway.get("/readyz").status == 503
        assert gateway.get("/livez").status == gateway.get("/v2/health/live").status == 200
        assert gateway.get("/v1/models").status == 503


def test_probes_of_readiness_need_no_token(daemon, tmp_path):
    callers = tmp_path / "callers"
    callers.write_text("alice: token:a-token-of-the-tests\n")
    server = daemon("--server.auth.callers-file", str(callers), "--server.auth.anonymous", "false")
    with Gateway(server) as gateway:
        def refused():
            return server.metric("sluice_unauthenticated_total", reason="credential_missing")

        wait_until(lambda: refused() == 1)  # The gateway asks for the list of models once.
        for path in ("/readyz", "/health", "/v2/health/ready"):
            assert gateway.get(path).status == 200
        with sluice_client.Client(server.grpc) as own:
            assert own.server_ready()
        assert refused() == 1
        assert gateway.post("/v1/completions", {"model": "demo", "prompt": "a"}).status == 401


def test_a_page_streams_text_if_its_origin_is_allowed(gateway, page, tmp_path):
    stream = """(async () => {
      const answer = await fetch("http://%s/v1/chat/completions", {method: "POST",
        headers: {"content-type": "application/json"},
        body: JSON.stringify({model: "demo", stream: true, max_tokens: 30, temperature: 0,
                              messages: [{role: "user", content: "In the beginning"}]})});
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = "", rest = "";
      for (;;) {
        const {value, done} = await reader.read();
        if (done) return text;
        const events = (rest + value).split("\\n\\n");
        rest = events.pop();
        for (const event of events) {
          const data = event.slice("data: ".length);
          if (data !== "[DONE]") text += JSON.parse(data).choices[0].delta.content;
        }
      }
    })()""" % gateway.address
    asked = {"model": "demo", "max_tokens": 30, "temperature": 0,
             "messages": [{"role": "user", "content": "In the beginning"}]}
    expected = gateway.post("/v1/chat/completions", asked).json["choices"][0]["message"]["content"]
    with Browser(tmp_path) as browser:
        browser.show(page + "/", DESKTOP)
        assert browser.value(stream) == expected
        assert not browser.errors
    exposed = gateway.post("/embed", {"inputs": "a"}, origin=page).headers[
        "access-control-expose-headers"]
    assert {"x-request-id", "retry-after", "x-truncated-tokens",
            "inference-header-content-length"} <= set(exposed.split(", "))
    # Requests from other pages are refused, even those that a browser sends without a preflight.
    refused = gateway.post("/v1/completions", {"model": "demo", "prompt": "a"},
                           origin="http://evil.example", content_type="text/plain")
    assert refused.status == 403 and "--allow-origin" in refused.json["error"]["message"]


def test_sigterm_waits_for_calls(daemon):
    started = daemon()
    gateway = Gateway(started)
    connection = gateway.connection()
    connection.request("POST", "/v1/completions", json.dumps(
        {"model": "demo", "prompt": "a", "max_tokens": 200, "ignore_eos": True, "stream": True}))
    answer = connection.getresponse()
    gateway.process.terminate()
    assert answer.read().endswith(b"data: [DONE]\n\n")
    assert gateway.process.wait(PATIENCE_S) == 0


def test_models_of_a_daemon_that_is_not_ready_are_not_missing(daemon, tmp_path):
    # A daemon that loads its models does not find them, as this one without models.
    server = daemon("--model-repository", str(tmp_path), models=(), awaited="/livez")
    asked = {"model": "demo", "input": "a", "prompt": "a", "inputs": "a", "query": "a",
             "documents": ["a"], "messages": [{"role": "user", "content": "a"}]}
    with Gateway(server) as gateway:
        replies = [gateway.get("/v1/models"), gateway.get("/v1/models/demo")]
        for path, fields in {"/v1/embeddings": "model input", "/tokenize": "model prompt",
                             "/v1/completions": "model prompt", "/embed": "inputs",
                             "/v1/chat/completions": "model messages",
                             "/rerank": "model query documents"}.items():
            replies.append(gateway.post(path, {each: asked[each] for each in fields.split()}))
    for reply in replies:
        assert reply.status == 503 and int(reply.headers["retry-after"]) >= 1, reply.body
        assert b"the daemon is not ready" in reply.body


def served_certificate(gateway):
    host, port = gateway.address.split(":")
    return ssl.get_server_certificate((host, int(port)), timeout=PATIENCE_S)


def test_a_new_certificate_is_read_at_sighup_and_when_its_files_change(tmp_path):
    authority = Authority()
    files = Files(tmp_path, authority)
    old, second, third = [authority.pair() for _ in range(3)]
    files.put(old)
    with ScriptedServer("a") as server:
        gateway = Gateway(server.address, "--certificate", files.crt, "--key", files.key,
                          authority=files.ca)
        assert served_certificate(gateway).encode() == old[0]
        files.put(second)
        gateway.process.send_signal(signal.SIGHUP)
        wait_until(lambda: served_certificate(gateway).encode() == second[0])
        # A pair that does not match leaves the last valid one.
        files.put((third[0], old[1]))
        gateway.process.send_signal(signal.SIGHUP)
        assert gateway.get("/livez").status == 200  # It answers after the signal.
        assert served_certificate(gateway).encode() == second[0]
        files.put(third)
        wait_until(lambda: served_certificate(gateway).encode() == third[0])
        status, output = gateway.stop()
    assert status == 0 and output.count("the gateway keeps the last valid pair") == 1, output


def test_names_of_options_that_the_daemon_does_not_serve_are_logged(daemon, template):
    server = daemon(models=[("demo", DEMO), ("cross", SENTENCES / "cross_1")])
    gateway = Gateway(
        server, "--alias", "org/small=demo", "--alias", "org/typo=dmeo", "--alias", "cross=demo",
        "--chat", f"demo={template}", "--chat", f"cross={template}", "--chat", f"other={template}")
    listed = [each["id"] for each in gateway.get("/v1/models").json["data"]]
    assert listed == ["cross", "demo", "org/small"]
    unknown = gateway.post("/v1/embeddings", {"model": "org/typo", "input": "a"})
    assert unknown.status == 404 and "'org/typo'" in unknown.json["error"]["message"]
    assert "'dmeo'" in unknown.json["error"]["message"]
    lines = []
    while sum(" --" in line for line in lines) < 4:
        lines.append(gateway.process.stdout.readline())
    status, output = gateway.stop()
    logged = "".join([*lines, output])
    assert status == 0 and logged.count("WARNING") == 4, logged
    assert "aliases: org/small for demo, org/typo for dmeo, cross for demo" in logged
    assert "--alias org/typo=dmeo: there is no model 'dmeo'; the daemon serves cross" in logged
    assert "--alias cross=demo: the daemon serves a model 'cross'" in logged
    assert "--chat other: there is no model 'other'" in logged
    assert "--chat cross: the model does not generate text" in logged


def test_the_start_line_for_a_daemon_that_requires_credentials_says_so(daemon, tmp_path):
    callers = tmp_path / "callers"
    callers.write_text("alice: token:a-token-of-the-tests\n")
    server = daemon("--server.auth.callers-file", str(callers), "--server.auth.anonymous", "false")
    gateway = Gateway(server, "--alias", "a=b")
    status, output = gateway.stop()
    assert status == 0 and "for each caller, because it requires credentials" in output
    assert "unknown" not in output and "WARNING" not in output
