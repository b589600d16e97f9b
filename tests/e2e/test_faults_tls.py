"""Tests replacing TLS certificates under load, with valid and invalid files (fault 23)."""

import contextlib
import itertools
import os
import re
import signal
import socket
import ssl
import subprocess
import threading
import time
import warnings

import pytest
import tritonclient.grpc as grpcclient
from always import undisturbed
from authority import Authority
from certificates import Files, SecureDaemon
from conftest import SLUICE, free_port
from infer import infer, text_inputs
from waiting import PATIENCE_S, wait_until


@pytest.fixture(scope="module")
def authority():
    return Authority()


@pytest.fixture
def files(tmp_path, authority):
    return Files(tmp_path, authority)


@pytest.fixture
def secure(authority):
    with contextlib.ExitStack() as started:
        yield lambda *options: started.enter_context(
            SecureDaemon(authority.certificate, *options))


def reads(server, result):
    return server.metric("sluice_secret_reads_total", kind="certificate", result=result)


def expiry(server):
    return server.metric("sluice_certificate_expiry_timestamp_seconds")


def live(server):
    """Returns whether a new connection succeeds."""
    with server.client() as client:
        try:
            return client.is_server_live()
        except Exception:
            return False


def mismatched(files, authority):
    files.key.write_bytes(authority.pair()[1])


def missing(files, authority):
    files.crt.unlink()


def expired(files, authority):
    files.put(authority.pair(days=-1))


def half_written(files, authority):
    certificate, key = authority.pair()
    files.put((certificate[:len(certificate) // 2], key))


def unreadable(files, authority):
    """Replaces the certificate with a link to a file whose reads fail with EIO."""
    files.crt.unlink()
    files.crt.symlink_to("/proc/self/mem")


def test_the_last_good_certificate_is_used(secure, files, authority):
    server = secure(*files.options())
    assert 0 < expiry(server) - time.time() < 2 * 86400
    with undisturbed(server):
        faults = [mismatched, missing, expired, half_written, unreadable]
        for days, spoil in enumerate(faults, start=3):
            bad, good, shown = reads(server, "error"), reads(server, "ok"), expiry(server)
            spoil(files, authority)
            wait_until(lambda: reads(server, "error") > bad)
            assert live(server), spoil
            assert expiry(server) == shown
            files.crt.unlink(missing_ok=True)
            files.put(authority.pair(days=days))
            wait_until(lambda: expiry(server) > shown + 43200)
            assert reads(server, "ok") > good
            assert live(server)


def test_a_reload_reads_certificates_and_reports_bad_ones(secure, files, authority):
    server = secure(*files.options()[:-1], "1h")
    reload = [SLUICE, "reload", "--admin", server.admin]
    with undisturbed(server):
        mismatched(files, authority)
        failed = subprocess.run(reload, capture_output=True, text=True, timeout=PATIENCE_S)
        assert failed.returncode == 1
        assert "server.tls: " in failed.stderr
        assert "tls.key: does not match the certificate" in failed.stderr
        shown = expiry(server)
        files.put(authority.pair(days=5))
        assert subprocess.run(reload, timeout=PATIENCE_S, stdout=subprocess.DEVNULL).returncode == 0
        assert expiry(server) > shown + 86400
        files.put(authority.pair(days=9))
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: expiry(server) > shown + 4 * 86400)
        assert live(server)


@pytest.mark.parametrize("spoil", [mismatched, missing, expired, half_written, unreadable])
def test_bad_certificates_prevent_the_start(secure, files, authority, spoil):
    spoil(files, authority)
    with pytest.raises(AssertionError, match="server.tls: .*tls\\.(crt|key)"):
        secure(*files.options())


def test_no_call_fails_while_certificates_are_replaced(secure, files, authority):
    server = secure(*files.options())
    stop, failures, calls = threading.Event(), [], []

    def reconnect():
        while not stop.is_set():
            try:
                with server.client() as client:
                    infer(client, text_inputs("And"), max_tokens=1)
                calls.append(1)
            except Exception as failure:
                failures.append(failure)

    threads = [threading.Thread(target=reconnect) for _ in range(3)]
    for thread in threads:
        thread.start()
    with undisturbed(server):
        for days in range(2, 8):
            shown = expiry(server)
            files.put(authority.pair(days=days))  # Between the two writes, the files do not match.
            wait_until(lambda: expiry(server) > shown)
        wait_until(lambda: len(calls) > 10 or failures)
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_client_does_not_trust_another_authority(secure, files):
    server = secure(*files.options())
    server.ca = Authority().certificate
    assert not live(server)


def test_callers_need_a_certificate_if_the_daemon_requires_one(secure, files, authority, tmp_path):
    server = secure(*files.options(), "--server.tls.client-ca-file", str(files.ca))
    assert not live(server)
    server.own = Authority().pair()
    assert not live(server), "another authority signed the certificate"
    server.own = authority.pair(days=-1)
    assert not live(server), "the certificate has expired"
    server.own = authority.pair()
    (tmp_path / "caller").mkdir()
    own = Files(tmp_path / "caller", authority)
    with undisturbed(server):
        assert live(server)
        health = [SLUICE, "health", "--server", server.grpc, "--ca", files.ca]
        run = subprocess.run(
            [*health, "--cert", own.crt, "--key", own.key],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert run.stdout == "SERVING\n", run.stderr
        def refused(*own):
            run = subprocess.run([*health, *own], capture_output=True, text=True,
                                 timeout=PATIENCE_S)
            assert run.returncode == 3
            return run.stderr

        assert "requires a certificate of the caller (--cert, --key)" in refused()
        (tmp_path / "stranger").mkdir()
        stranger = Files(tmp_path / "stranger", Authority())
        assert "does not trust the certificate of --cert" in refused(
            "--cert", stranger.crt, "--key", stranger.key)
        assert "must be PEM files of one certificate" in refused(
            "--cert", own.crt, "--key", stranger.key)


def test_the_client_checks_the_servers_name(secure, files):
    server = secure(*files.options())
    health = [SLUICE, "health", "--server", server.grpc, "--ca", files.ca]
    for name, status in (("localhost", 0), ("elsewhere", 3)):
        run = subprocess.run(
            [*health, "--server-name", name], capture_output=True, timeout=PATIENCE_S
        )
        assert run.returncode == status
    assert (
        subprocess.run(health[:-2], capture_output=True, timeout=PATIENCE_S).returncode == 3
    ), "a plain-text connection must fail"


def test_only_probes_may_use_plaintext(secure, files):
    health = f"127.0.0.1:{free_port()}"
    server = secure(*files.options(), "--server.grpc.health-address", health)
    with grpcclient.InferenceServerClient(server.grpc) as plain:
        with pytest.raises(Exception):
            plain.is_server_live(client_timeout=5)
    assert (
        subprocess.run([SLUICE, "health", "--server", health], timeout=PATIENCE_S).returncode == 0
    )
    with grpcclient.InferenceServerClient(health) as probe:
        with pytest.raises(Exception, match="(?i)unimplemented"):
            probe.is_server_live()
    assert server.metric("sluice_connections_open", listener="health") <= 3


def test_the_admin_address_has_tls_if_configured(secure, files):
    server = secure(*files.options(), "--server.admin.secured", "true")
    for scheme, status in (("", 3), ("https://", 0)):
        run = subprocess.run([SLUICE, "buckets", "--json", "--admin", f"{scheme}{server.admin}",
                              "--ca", files.ca], capture_output=True, timeout=PATIENCE_S)
        assert run.returncode == status, run.stderr


def test_the_doctor_and_buckets_use_the_scheme_of_each_address(secure, files):
    server = secure(*files.options())  # the admin address has no TLS

    def run(*command, admin):
        environment = os.environ | {"SLUICE_SERVER": server.grpc, "SLUICE_ADMIN": admin}
        return subprocess.run([SLUICE, *command, "--ca", files.ca], capture_output=True, text=True,
                              timeout=PATIENCE_S, env=environment)

    doctor = run("doctor", "--metrics-address", server.http, admin=server.admin)
    assert "demo ran 0 batches" in doctor.stdout and "does not answer" not in doctor.stdout
    buckets = run("buckets", admin=server.admin)
    assert buckets.returncode == 0 and "demo" in buckets.stdout, buckets.stderr
    assert buckets.stderr == f"admin address: {server.admin}\n"
    assert run("buckets", admin=f"https://{server.admin}").returncode == 3
    plain = subprocess.run([SLUICE, "doctor", "--server", server.grpc, "--deadline", "5s"],
                           capture_output=True, text=True, timeout=PATIENCE_S)
    assert plain.returncode == 3 and "TLS and the other does not (--tls, --ca)" in " ".join(
        plain.stdout.split()), plain.stdout
    secured = secure(*files.options(), "--server.admin.secured", "true")
    server = secured
    assert run("buckets", admin=f"https://{server.admin}").returncode == 0
    assert run("buckets", admin=server.admin).returncode == 3


def test_the_hint_of_a_failed_certificate_check_names_the_flag(secure, files):
    server = secure(*files.options())

    def failure(*flags):
        run = subprocess.run([SLUICE, "health", "--server", server.grpc, *flags],
                             capture_output=True, text=True, timeout=PATIENCE_S)
        assert run.returncode == 3
        return run.stderr

    assert "--ca FILE" in failure("--tls")
    other = files.ca.with_name("other.crt")
    other.write_bytes(Authority().certificate)
    assert "--ca FILE" in failure("--ca", other)
    assert "with --server-name" in failure("--ca", files.ca, "--server-name", "elsewhere")


def test_tls_handshakes_that_stall_are_ended(secure, files):
    server = secure(*files.options(), "--server.grpc.connection.handshake-timeout", "2s")
    host, port = server.grpc.split(":")
    with undisturbed(server):
        stalled = [
            socket.create_connection((host, int(port)), timeout=PATIENCE_S) for _ in range(20)
        ]
        nothing, half_a_hello, noise = b"", b"\x16\x03\x01\x02\x00\x01\x00", os.urandom(64)
        for each, said in zip(stalled, itertools.cycle([nothing, half_a_hello, noise])):
            each.sendall(said)
        for each in stalled:
            with each, contextlib.suppress(ConnectionResetError):
                while each.recv(1024):  # A TLS alert may precede the close.
                    pass


def failed_handshakes(server, reason):
    return server.metric("sluice_handshakes_failed_total", listener="grpc", reason=reason)


def test_failed_handshakes_are_counted_and_logged_with_the_peer(secure, files, authority):
    server = secure(*files.options(), "--server.tls.client-ca-file", str(files.ca),
                    "--server.grpc.health-address", f"127.0.0.1:{free_port()}")
    host, port = server.grpc.split(":")

    def connect(source, hello=None, **settings):
        """Connects from the address `source`, and returns once the daemon has ended it."""
        with socket.create_connection((host, int(port)), PATIENCE_S, (source, 0)) as plain:
            if hello is not None:
                plain.sendall(hello)
                plain.shutdown(socket.SHUT_WR)
                with contextlib.suppress(ConnectionResetError):
                    while plain.recv(1024):
                        pass
                return
            context = ssl.create_default_context(**settings)
            context.set_alpn_protocols(["h2"])
            with contextlib.suppress(ssl.SSLError, ConnectionResetError):
                with context.wrap_socket(plain, server_hostname="localhost") as secured:
                    while secured.recv(1024):  # In TLS 1.3, the alert follows the handshake.
                        pass

    cases = {  # each from an address of its own
        "refused": ("127.0.0.2", {"cafile": files.ca}),  # without a certificate of its own
        "refused_by_peer": ("127.0.0.3", {}),  # does not trust the daemon's authority
        "incomplete": ("127.0.0.4", {"hello": b"GET / HTTP/1.1\r\n\r\n"}),
    }
    for reason, (source, settings) in cases.items():
        assert failed_handshakes(server, reason) == 0
        connect(source, **settings)
        wait_until(lambda reason=reason: failed_handshakes(server, reason) == 1, what=reason)
    server.own = authority.pair()
    assert live(server) and sum(failed_handshakes(server, reason) for reason in cases) == 3
    output = server.stop()
    lines = [line for line in output.splitlines() if "a TLS handshake failed" in line]
    # At most one line a second.
    assert "peer=ipv4:127.0.0.2 listener=grpc reason=refused detail=" in lines[0], output
    for line in lines[1:]:
        source, reason = re.search(r"peer=ipv4:(\S+) listener=grpc reason=(\S+)", line).groups()
        assert cases[reason][0] == source


def test_a_grpc_client_that_does_not_trust_the_certificate_counts_as_incomplete(secure, files):
    """gRPC's clients end such a connection without an alert."""
    server = secure(*files.options())
    other = files.ca.with_name("other.crt")
    other.write_bytes(Authority().certificate)
    run = subprocess.run([SLUICE, "health", "--server", server.grpc, "--ca", other],
                         capture_output=True, text=True, timeout=PATIENCE_S)
    assert run.returncode == 3, run.stderr
    wait_until(lambda: failed_handshakes(server, "incomplete") >= 1, what="incomplete")
    assert failed_handshakes(server, "refused_by_peer") == 0
    line = next(line for line in server.stop().splitlines() if "a TLS handshake failed" in line)
    assert 'reason=incomplete detail="no answer to the certificate; ' in line


def test_the_doctor_of_a_pod_checks_a_daemon_with_tls_and_callers(secure, files, authority,
                                                                  tmp_path):
    """The components tls and callers set SLUICE_SERVER to the admin address."""
    files.put(authority.pair(days=90))
    callers = tmp_path / "callers"
    callers.write_text("one: token:the-token-of-caller-one\n")
    server = secure(*files.options(), "--server.auth.callers-file", str(callers),
                    "--server.auth.anonymous", "false")

    def run(*command, address):
        environment = os.environ | {"SLUICE_SERVER": address}
        return subprocess.run([SLUICE, *command], capture_output=True, text=True,
                              timeout=PATIENCE_S, env=environment)

    checks = ("doctor", "--metrics-address", server.http, "--admin", server.admin)
    found = run(*checks, address=server.admin)
    assert found.returncode == 0 and "served: demo version 1" in found.stdout, found.stdout
    assert run("models", address=server.admin).returncode == 0
    # Without the variable, the address with TLS does not answer; the rest is checked.
    found = run(*checks, address=server.grpc)
    assert found.returncode == 3
    assert "does not answer" in found.stdout and "served: demo version 1" in found.stdout
    assert "the metrics show" in found.stdout or "advice" in found.stdout, found.stdout


def test_old_versions_of_tls_are_refused(secure, files):
    server = secure(*files.options())

    def speaks(version):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(files.ca)
        context.set_alpn_protocols(["h2"])
        context.set_ciphers("DEFAULT@SECLEVEL=0")  # So that OpenSSL itself permits old versions.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context.minimum_version = context.maximum_version = version
        host, port = server.grpc.split(":")
        try:
            with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as raw:
                with context.wrap_socket(raw, server_hostname=host) as connection:
                    return connection.selected_alpn_protocol() == "h2"
        except ssl.SSLError:
            return False

    assert not speaks(ssl.TLSVersion.TLSv1) and not speaks(ssl.TLSVersion.TLSv1_1)
    assert speaks(ssl.TLSVersion.TLSv1_2) and speaks(ssl.TLSVersion.TLSv1_3)
