"""Tests how callers are identified and how their requests are limited."""

import contextlib
import hashlib
import json
import os
import re
import subprocess
import urllib.request

import grpc
import pytest
from always import await_balance, undisturbed
from authority import Authority
from certificates import Files, SecureDaemon
from conftest import BUILD, SLUICE, Daemon, free_port
from http2 import INFER, STREAM_INFER, Connection
from infer import infer, text_inputs
from limits import request
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException
from waiting import PATIENCE_S, wait_until

SLUICE_LOAD = BUILD / "loadtest" / "load" / "sluice-load"
ALICE, BOB, STRANGER = "alice-0123456789abcdef", "bob-0123456789abcdef", "stranger-0123456789"


class TokenDaemon(Daemon):
    """A daemon whose clients present the token ALICE."""

    def client(self, **options):
        client = super().client(**options)
        plain = client.infer
        client.infer = lambda *args, **named: plain(*args, headers=bearer(ALICE), **named)
        return client


def bearer(token):
    return {"authorization": f"Bearer {token}"}


@pytest.fixture
def callers(tmp_path):
    """Starts daemons with a callers file that contains `text`."""
    path = tmp_path / "callers"
    with contextlib.ExitStack() as started:
        def start(text, *options):
            path.write_text(text)
            server = started.enter_context(TokenDaemon(
                "--server.auth.callers-file", str(path), "--server.secrets.poll-interval", "100ms",
                *options))
            server.callers = path
            return server

        yield start


def call(server, method, message, token=None):
    """Returns the status name and the trailers of a unary call or a one-message stream."""
    metadata = token and [("authorization", f"Bearer {token}")]
    with grpc.insecure_channel(server.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        try:
            if method == "ModelStreamInfer":
                answers = stub.ModelStreamInfer(
                    iter([message]), timeout=PATIENCE_S, metadata=metadata
                )
                for answer in answers:
                    code = answer.infer_response.parameters["error_code"].string_param
                    if code:
                        return code, {
                            k: v.int64_param for k, v in answer.infer_response.parameters.items()
                        }
                return "OK", dict(answers.trailing_metadata())
            _, made = getattr(stub, method).with_call(
                message, timeout=PATIENCE_S, metadata=metadata
            )
            return "OK", dict(made.trailing_metadata())
        except grpc.RpcError as error:
            return error.code().name, dict(error.trailing_metadata())


def message(max_tokens=1):
    return service_pb2.ModelInferRequest.FromString(request(max_tokens=max_tokens))


TWO = f"alice: token:{ALICE}\nbob: sha256:{hashlib.sha256(BOB.encode()).hexdigest()}\n"


def test_every_method_refuses_unknown_callers(callers):
    server = callers(TWO, "--server.auth.anonymous", "false")
    health = [SLUICE, "health", "--server", server.grpc]
    with undisturbed(server):
        for method, what in (("ModelInfer", message()), ("ModelStreamInfer", message()),
                             ("ServerLive", service_pb2.ServerLiveRequest()),
                             ("RepositoryIndex", service_pb2.RepositoryIndexRequest())):
            assert call(server, method, what, ALICE)[0] == "OK", method
            assert call(server, method, what, BOB)[0] == "OK", method
            for token, reason in ((None, "credential_missing"), (STRANGER, "token_unknown"),
                                  (ALICE[:-1], "token_unknown"), (ALICE + "0", "token_unknown")):
                status, trailers = call(server, method, what, token)
                assert status == "UNAUTHENTICATED" and trailers["sluice-reason"] == reason, method
        assert (
            subprocess.run(health, capture_output=True, timeout=PATIENCE_S).returncode == 0
        ), "probes have no token"
    assert server.metric("sluice_unauthenticated_total", reason="credential_missing") == 4
    assert server.metric("sluice_unauthenticated_total", reason="token_unknown") == 12
    with urllib.request.urlopen(f"http://{server.http}/status.json", timeout=PATIENCE_S) as page:
        refused = json.load(page)["daemon"]["refused"]
    assert refused == {"credential_missing": 4, "token_unknown": 12}
    assert server.metric("sluice_caller_requests_total", caller="bob") == 2
    assert server.metric("sluice_caller_tokens_total", caller="bob") > 2
    assert server.metric("sluice_caller_requests_total", caller="anonymous") == 0


def test_unknown_callers_are_refused_at_their_headers(callers):
    """The daemon refuses an unknown caller before any part of a message arrives."""
    server = callers(
        TWO, "--server.auth.anonymous", "false", "--server.admin.on-grpc-address", "true"
    )
    with Connection(server.grpc) as stranger:
        stranger.settle()
        paths = (INFER, STREAM_INFER, "/sluice.admin.v1.Admin/GetBuckets")
        for stream, path in zip((1, 3, 5), paths):
            stranger.open(stream, path)
            end = stranger.end(stream)
            assert end["grpc-status"] == "16" and end["sluice-reason"] == "credential_missing", path


def replace(file, text):
    """Replaces the file in one step, because the daemon may read it at any time."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.rename(file)


def test_replaced_tokens_take_effect_while_the_daemon_serves(callers):
    server = callers(TWO, "--server.auth.anonymous", "false")
    reads = lambda result: server.metric("sluice_secret_reads_total", kind="callers", result=result)
    live = lambda token: call(server, "ServerLive", service_pb2.ServerLiveRequest(), token)[0]
    with undisturbed(server):
        replace(server.callers, TWO + "nonsense\n")
        wait_until(lambda: reads("error") == 1)
        assert server.metric("sluice_secret_files_valid", kind="callers") == 0
        assert live(ALICE) == live(BOB) == "OK", "the last valid file stays in effect"
        replace(server.callers, TWO + f"carol: token:{STRANGER}\n")
        wait_until(lambda: live(STRANGER) == "OK")
        assert server.metric("sluice_secret_files_valid", kind="callers") == 1
        replace(server.callers, f"alice: token:{ALICE}\n")
        wait_until(lambda: live(BOB) == "UNAUTHENTICATED")
        server.callers.unlink()
        wait_until(lambda: reads("error") == 2)
        assert live(ALICE) == "OK"


def test_a_daemon_with_a_bad_callers_file_does_not_start(callers):
    with pytest.raises(
        AssertionError, match=r"server.auth.callers_file: .*callers:1: a token has 16 to 512 bytes"
    ):
        callers("alice: token:short\n")


def test_each_caller_has_a_separate_request_rate(callers):
    server = callers(
        TWO.replace("\nbob", " requests_per_second=0\nbob"),
        "--server.rate.requests-per-second",
        "0.001",
        "--server.rate.requests-burst",
        "3",
    )
    with undisturbed(server):  # The bystander is alice.
        for method in ("ModelInfer", "ModelStreamInfer"):
            token = {"ModelInfer": BOB, "ModelStreamInfer": None}[method]
            assert [call(server, method, message(), token)[0] for _ in range(5)] == (
                ["OK"] * 3 + ["RESOURCE_EXHAUSTED"] * 2)
        status, trailers = call(server, "ModelInfer", message(), BOB)
        assert status == "RESOURCE_EXHAUSTED" and trailers["sluice-reason"] == "rate_limited"
        assert 100_000 < int(trailers["grpc-retry-pushback-ms"]) <= 1_000_000
        _, parameters = call(server, "ModelStreamInfer", message(), None)
        assert 100_000 < parameters["retry_pushback_ms"] <= 1_000_000
    assert server.metric("sluice_caller_refused_total", caller="bob") == 3
    assert server.metric("sluice_caller_refused_total", caller="anonymous") == 3
    assert server.metric("sluice_rejected_total", reason="rate_limited") == 6
    await_balance(server)


def test_tokens_are_limited_and_a_reload_changes_the_rate(tmp_path, callers):
    config = tmp_path / "sluice.yaml"
    config.write_text("server: {rate: {tokens_per_second: 0.01, tokens_burst: 100}}\n")
    server = callers(TWO, "--config", str(config))
    long = message(max_tokens=60)
    assert call(server, "ModelInfer", long, BOB)[0] == "OK"
    status, trailers = call(server, "ModelInfer", long, BOB)
    assert status == "RESOURCE_EXHAUSTED" and trailers["sluice-reason"] == "rate_limited"
    config.write_text("server: {rate: {tokens_per_second: 0, tokens_burst: 100}}\n")
    run = subprocess.run(
        [SLUICE, "reload", "--admin", server.admin],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert "applied: server.rate.tokens_per_second" in run.stdout, run.stderr
    for _ in range(3):
        assert call(server, "ModelInfer", long, BOB)[0] == "OK"
    await_balance(server)


def test_sluice_sends_its_token(callers, monkeypatch):
    server = callers(TWO, "--server.auth.anonymous", "false")
    models = [SLUICE, "models", "--server", server.grpc]
    generate = [SLUICE, "generate", "--server", server.grpc, "--max-tokens", "2", "--text", "And"]
    for command in (models, generate):
        run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
        assert run.returncode == 1 and "requires a credential: set SLUICE_TOKEN" in run.stderr
        run = subprocess.run([*command, "--token", STRANGER], capture_output=True, text=True,
                             timeout=PATIENCE_S)
        assert run.returncode == 1 and "the daemon does not know this token" in run.stderr
        assert (
            subprocess.run(
                [*command, "--token", ALICE], capture_output=True, timeout=PATIENCE_S
            ).returncode
            == 0
        )
    monkeypatch.setenv("SLUICE_TOKEN", BOB)
    assert subprocess.run(models, capture_output=True, timeout=PATIENCE_S).returncode == 0


def test_doctor_does_not_count_its_own_calls(callers):
    server = callers(TWO, "--server.auth.anonymous", "false")
    run = subprocess.run([SLUICE, "doctor", "--server", server.grpc, "--metrics-address",
                          server.http, "--admin", server.admin], capture_output=True, text=True,
                         timeout=PATIENCE_S)
    assert server.metric("sluice_unauthenticated_total") > 0, "its calls have no token"
    assert "the metrics show no problem" in run.stdout, run.stdout


def test_sluice_load_speaks_tls_and_sends_its_token(tmp_path):
    authority = Authority()
    files = Files(tmp_path, authority)
    known, report = tmp_path / "callers", tmp_path / "load.json"
    known.write_text(TWO)
    certificate, key = authority.pair(name="load")
    (tmp_path / "own.crt").write_bytes(certificate)
    (tmp_path / "own.key").write_bytes(key)
    server = SecureDaemon(
        authority.certificate, *files.options(), "--server.tls.client-ca-file", str(files.ca),
        "--server.auth.callers-file", str(known), "--server.auth.anonymous", "false",
        "--server.grpc.health-address", f"127.0.0.1:{free_port()}")
    run = [
        SLUICE_LOAD,
        "run",
        "--server",
        server.grpc,
        "--rate",
        "40",
        "--duration",
        "0.5",
        "--warm-up",
        "0",
        "--lengths",
        "fixed:8",
        "--quiet",
        "--out",
        report,
        "--ca",
        files.ca,
        "--server-name",
        "localhost",
        "--cert",
        tmp_path / "own.crt",
        "--key",
        tmp_path / "own.key",
    ]

    def outcomes(*more, token=""):
        report.unlink(missing_ok=True)
        subprocess.run([*run, *more], timeout=PATIENCE_S, env={**os.environ, "SLUICE_TOKEN": token})
        phase = json.loads(report.read_text())["phases"][0]
        return phase["outcomes"], [error["code"] for error in phase["errors"]]

    try:
        for streaming in ([], ["--streaming"]):
            counts, errors = outcomes(*streaming, token=BOB)
            assert counts["ok"] > 0 and not errors
            counts, errors = outcomes(*streaming, token=STRANGER)
            assert counts["ok"] == 0 and errors == [grpc.StatusCode.UNAUTHENTICATED.value[0]]
        assert server.metric("sluice_caller_requests_total", caller="bob") > 0
        stranger = [SLUICE_LOAD, "run", "--server", server.grpc, "--rate", "1", "--cert", files.crt]
        half = subprocess.run(stranger, capture_output=True, text=True, timeout=PATIENCE_S)
        assert half.returncode == 2 and "--key: missing" in half.stderr
    finally:
        server.stop()


def test_the_access_log_names_the_caller(callers):
    server = callers(TWO, "--server.log.access-sample", "1")
    for token, name in ((BOB, "bob"), (ALICE, "alice"), (None, "anonymous")):
        assert call(server, "ModelInfer", message(), token)[0] == "OK"
    log = server.stop()
    assert re.findall(r"total_us=\d+ caller=(\w+)", log) == ["bob", "alice", "anonymous"]


# Without a sample in the access log, a refused caller would leave no trace.
def test_refusals_of_callers_are_logged_at_a_rate(callers):
    server = callers(TWO, "--server.log.access-sample", "0", "--server.rate.requests-per-second",
                     "0.001", "--server.rate.requests-burst", "1")
    for token in (BOB, ALICE, None):
        statuses = [call(server, "ModelInfer", message(), token)[0] for _ in range(20)]
        assert statuses == ["OK"] + ["RESOURCE_EXHAUSTED"] * 19
    log = server.stop()
    lines = re.findall(r"refused a request caller=(\w+) .*reason=(\w+).*unlogged_before=(\d+)", log)
    assert {(name, reason) for name, reason, _ in lines} == {
        ("bob", "rate_limited"), ("alice", "rate_limited"), ("anonymous", "rate_limited")}
    for name in ("bob", "alice", "anonymous"):
        written = [int(unlogged) for each, _, unlogged in lines if each == name]
        assert len(written) + sum(written) <= 19


def test_calls_of_unknown_callers_are_logged_with_the_peer_and_the_reason(callers):
    server = callers(TWO, "--server.auth.anonymous", "false")
    with Connection(server.grpc, source="127.0.0.8") as stranger:
        for stream in range(1, 41, 2):
            assert stranger.call(stream, INFER, request())["grpc-status"] == "16"
    log = server.stop()
    lines = re.findall(r"refused a call: its caller is unknown peer=ipv4:127.0.0.8 "
                       r"reason=credential_missing .*unlogged_before=(\d+)", log)
    assert lines and len(lines) + sum(map(int, lines)) <= 20


def test_refusals_are_logged_without_a_file_of_callers(daemon):
    server = daemon("--server.log.access-sample", "0")
    with Connection(server.grpc, source="127.0.0.9") as connection:
        for stream in range(1, 41, 2):
            assert connection.call(stream, INFER, request(max_tokens=-1))["grpc-status"] == "3"
    log = server.stop()
    lines = re.findall(r"refused a request caller=anonymous peer=ipv4:127.0.0.9 reason=parameter "
                       r".*unlogged_before=(\d+)", log)
    assert lines and len(lines) + sum(map(int, lines)) <= 20


def test_a_caller_is_identified_by_its_certificate(tmp_path):
    authority = Authority()
    files = Files(tmp_path, authority)
    known = tmp_path / "callers"
    known.write_text(
        "batch: certificate:batch.example.org requests_per_second=0.01 requests_burst=1\n"
    )
    server = SecureDaemon(
        authority.certificate, *files.options(), "--server.tls.client-ca-file", str(files.ca),
        "--server.auth.callers-file", str(known), "--server.auth.anonymous", "false",
        "--server.grpc.health-address", f"127.0.0.1:{free_port()}")
    try:
        server.own = authority.pair(name="batch.example.org")
        with server.client() as client:
            infer(client, text_inputs("And"), max_tokens=1)
            with pytest.raises(
                InferenceServerException, match="caller batch: more than 0.01 requests"
            ):
                infer(client, text_inputs("And"), max_tokens=1)
        # The common name does not count if there are alternative names.
        for names in (("unknown.example.org", None), ("batch.example.org", "other.example.org")):
            server.own = authority.pair(name=names[0], alternative=names[1])
            with server.client() as client, pytest.raises(
                InferenceServerException, match="known caller"
            ):
                client.is_server_live()
    finally:
        server.stop()


def test_certificates_that_no_caller_can_present_are_reported(daemon, tmp_path):
    file = tmp_path / "callers"
    file.write_text("batch: certificate:batch.example.org\n")
    served = daemon("--server.auth.callers-file", str(file))
    log = served.stop()
    assert "server.tls.client_ca_file is not set, so no caller can present one" in log
    file.write_text(f"batch: sha256:{'0' * 64}\n")
    log = daemon("--server.auth.callers-file", str(file)).stop()
    assert "client_ca_file" not in log
