"""Tests connections that stall, flood or break: faults 13 to 17 of tests/faults.md."""

import re
import socket

import pytest
from always import undisturbed
from conftest import SLOWER, Daemon
from http2 import (
    DATA, END_HEADERS, HEADERS, INFER, INITIAL_WINDOW_SIZE, PING, PREFACE, RST_STREAM, SETTINGS,
    STREAM_INFER, Connection, frame, message,
)
from infer import infer, text_inputs
from limits import MIB, descriptors, grown, request, resident_before
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException
from waiting import PATIENCE_S, pause, wait_until

MAX_STREAMS = 128


@pytest.fixture(scope="module")
def server():
    """A daemon with short timeouts that are still far longer than the other client's calls."""
    with Daemon("--server.grpc.transfer-timeout", "1s",
                "--server.grpc.stream-idle-timeout", "1s",
                "--server.grpc.max-streams", str(MAX_STREAMS),
                "--server.grpc.connection.handshake-timeout", "1s",
                "--server.grpc.connection.idle-timeout", "1s",
                "--server.grpc.connection.keepalive-time", "1s",
                "--server.grpc.connection.keepalive-timeout", "3s") as daemon:
        yield daemon


@pytest.fixture
def descriptors_return(server):
    """Checks that the daemon has no more descriptors open after the test than before it."""
    wait_until(lambda: server.metric("sluice_requests_running") == 0)
    before = descriptors(server)
    yield
    wait_until(lambda: descriptors(server) <= before)


def test_client_killed_in_the_middle_of_its_upload(server, descriptors_return):
    with undisturbed(server):
        for _ in range(20):
            with Connection(server.grpc) as killed:
                killed.open(1, INFER)
                killed.send(1, message(b"x" * 50_000, 10 * MIB))
                killed.abort()


def test_client_killed_in_the_middle_of_its_response(server, descriptors_return):
    endings = server.metric("sluice_requests_total", code="CANCELLED")
    with undisturbed(server):
        for _ in range(5):
            with Connection(server.grpc) as killed:
                killed.open(1, STREAM_INFER)
                for _ in range(32):
                    killed.send(1, message(request(max_tokens=200)))
                killed.wait(lambda: 1 in killed.data)
                killed.abort()
        wait_until(lambda: server.metric("sluice_requests_total", code="CANCELLED") >= endings + 5)
        # The bystander has at most one request in progress.
        wait_until(lambda: server.metric("sluice_requests_running") <= 1)


def exhausted(end):
    return end.get("grpc-status") == "8" and "transfer_timeout" in end["grpc-message"]


@pytest.mark.parametrize("path", [INFER, "/inference.GRPCInferenceService/ServerLive",
                                  "/sluice.admin.v1.Admin/GetBuckets"])
def test_uploads_that_stall_are_ended_and_their_connection_reaped(server, descriptors_return, path):
    address = server.admin if "admin" in path else server.grpc
    with undisturbed(server), Connection(address) as stalled:
        stalled.open(1, path)  # No message follows.
        stalled.open(3, path)
        stalled.send(3, message(b"x" * 1000, 10 * MIB))
        stalled.open(5, path)
        stalled.send(5, b"\0\0")  # The message's prefix is incomplete.
        for stream in (1, 3, 5):
            assert exhausted(stalled.end(stream))
        assert stalled.closed()


def idle(end):
    return end.get("grpc-status") == "8" and "stream_idle_timeout" in end["grpc-message"]


@pytest.mark.parametrize("half", [b"", b"\0\0", message(b"x" * 1000, 10 * MIB)],
                         ids=["nothing", "half_prefix", "half_message"])
def test_streams_whose_message_stops_half_way_are_ended(server, descriptors_return, half):
    """The peer still answers pings, so the daemon keeps the connection."""
    ended = server.metric("sluice_idle_streams_ended_total")
    with undisturbed(server), Connection(server.grpc) as stalled:
        stalled.open(1, STREAM_INFER)
        stalled.send(1, message(request(max_tokens=2)))  # It is answered before the stream stalls.
        stalled.wait(lambda: 1 in stalled.data)
        stalled.open(3, STREAM_INFER)
        for stream in (1, 3):
            if half:
                stalled.send(stream, half)
        for stream in (1, 3):
            assert idle(stalled.end(stream))
        assert stalled.closed()
    assert server.metric("sluice_idle_streams_ended_total") == ended + 2


def test_a_stream_with_a_request_in_progress_is_not_idle(daemon):
    """The request takes longer than the idle timeout while responses keep arriving."""
    server = daemon("--server.grpc.stream-idle-timeout", "1s", faults="replay:delay=1500*2")
    with Connection(server.grpc) as working:
        working.open(1, STREAM_INFER)
        working.send(1, message(request(max_tokens=4)))
        assert idle(working.end(1))
        assert (
            last_response(working.data[1])
            .infer_response.parameters["triton_final_response"]
            .bool_param
        )
    assert server.metric("sluice_requests_total", code="OK") == 1


def last_response(data):
    while len(data) > 5 + int.from_bytes(data[1:5], "big"):
        data = data[5 + int.from_bytes(data[1:5], "big"):]
    return service_pb2.ModelStreamInferResponse.FromString(data[5:])


def test_a_trickle_of_bytes_counts_as_a_stall(server, descriptors_return):
    with undisturbed(server), Connection(server.grpc) as slow:
        slow.open(1, INFER)
        slow.send(1, message(b"", 10 * MIB))
        while 1 not in slow.headers:
            slow.send(1, b"x")
            try:
                slow.wait(lambda: 1 in slow.headers, 0.1)
            except TimeoutError:
                pass
        assert exhausted(slow.end(1))


def test_a_response_that_is_not_read_is_dropped(server, descriptors_return):
    """The peer answers pings but never opens its flow-control window."""
    with undisturbed(server), Connection(server.grpc, [(INITIAL_WINDOW_SIZE, 0)]) as deaf:
        deaf.open(1, INFER)
        deaf.send(1, message(request(max_tokens=4)))
        end = deaf.end(1)
        assert "reset" in end or exhausted(end)
        assert 1 not in deaf.data


def test_a_connection_without_ping_replies_is_closed(server, descriptors_return):
    with undisturbed(server), Connection(server.grpc, mute=True) as mute:
        mute.open(1, STREAM_INFER)  # A stream may idle for ever; a mute connection may not.
        assert mute.closed()


@pytest.mark.parametrize("said", [
    b"", PREFACE[:10], PREFACE, b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00",
    PREFACE + frame(SETTINGS)[:5], PREFACE + frame(DATA, 0, 1, b"x" * 100),
], ids=["nothing", "half_preface", "no_settings", "http1", "tls", "half_settings", "data_first"])
def test_handshakes_that_stall_are_ended(server, descriptors_return, said):
    with undisturbed(server):
        connections = [Connection(server.grpc) for _ in range(20)]
        for each in connections:
            each.socket.sendall(said)
        assert all(each.closed() for each in connections)


def test_headers_that_never_end_are_reaped(server, descriptors_return):
    block = b"\0\x01x\x7f\xff\xff\x01"  # It announces a value of many bytes.
    with undisturbed(server), Connection(server.grpc) as stalled:
        stalled.frame(HEADERS, 0, 1, block)
        assert stalled.closed()


def test_two_thousand_idle_connections_affect_no_call(daemon):
    server = daemon()
    before, descriptors_before = resident_before(server), descriptors(server)
    with undisturbed(server):
        connections = [Connection(server.grpc).__enter__() for _ in range(2000)]
        assert not any(each.settle() for each in connections)
        assert descriptors(server) > 2000
        for each in connections:
            each.socket.close()
    wait_until(lambda: descriptors(server) <= descriptors_before)
    assert grown(server, before) < 100 * MIB


def test_connections_beyond_the_limit_are_closed_and_accepted_later(daemon):
    server = daemon("--server.grpc.connection.max", "50",
                    "--server.grpc.connection.max-per-address", "50")
    with server.client() as client:
        infer(client, text_inputs("And"), max_tokens=1)
        connections = [Connection(server.grpc).__enter__() for _ in range(49)]
        assert not any(each.settle() for each in connections)
        with Connection(server.grpc) as one_more:
            assert one_more.closed()
        assert server.metric("sluice_connections_open", listener="grpc") == 50
        assert (
            server.metric("sluice_connections_refused_total", listener="grpc", reason="limit") >= 1
        )
        infer(client, text_inputs("And"), max_tokens=1)
        connections.pop().socket.close()

        def welcome():
            with Connection(server.grpc) as another:
                return not another.settle()
        wait_until(welcome)
        for each in connections:
            each.socket.close()


def test_accepting_resumes_when_descriptors_are_free_again(daemon):
    """The daemon accepts again after EMFILE, unlike gRPC's own listener."""
    server = daemon(descriptors=300)
    connections = [socket.create_connection(server.grpc.split(":")) for _ in range(400)]
    wait_until(lambda: descriptors(server) > 40)
    for each in connections:
        each.close()
    wait_until(lambda: answers(server))
    with undisturbed(server):
        pass


def test_accepting_continues_after_errors(daemon):
    """The daemon continues after accept() has failed for other reasons than EMFILE."""
    failures = 5
    server = daemon(faults=f"accept:fail=internal*{failures}")
    with undisturbed(server):
        pass
    refused = server.metric("sluice_connections_refused_total", reason="accept_failed")
    assert refused == failures


def answers(server):
    with server.client() as client:
        try:
            return client.is_server_live()
        except InferenceServerException:
            return False


def flood(connection, streams, reset):
    """Opens `streams` calls until the peer hangs up. If `reset`, resets each call at once."""
    written = b""
    for stream in range(1, 2 * streams, 2):
        written += frame(HEADERS, END_HEADERS, stream, connection.block(INFER))
        if reset:
            written += frame(RST_STREAM, 0, stream, b"\0\0\0\x08")
        if len(written) > 30_000 or stream == 2 * streams - 1:
            try:
                connection.socket.sendall(written)
            except ConnectionError:
                return
            written = b""


def test_a_peer_that_resets_rapidly_is_disconnected(server, descriptors_return):
    """CVE-2023-44487: a reset stream does not count for HTTP/2's stream limit but costs work."""
    before = resident_before(server)
    with undisturbed(server):
        for _ in range(3):
            with Connection(server.grpc) as flooding:
                flood(flooding, 20_000 // SLOWER, reset=True)
    assert grown(server, before) < 150 * MIB


def test_streams_beyond_the_limit_are_refused(server, descriptors_return):
    with undisturbed(server), Connection(server.grpc) as greedy:
        greedy.settle()
        flood(greedy, MAX_STREAMS + 1, reset=False)
        assert greedy.closed()


def test_the_stream_limit_holds_without_acknowledgement(server, descriptors_return):
    before = resident_before(server)
    broken_off = server.metric("sluice_connections_broken_off_total", listener="grpc")
    with undisturbed(server), Connection(server.grpc, mute=True) as mute:
        flood(mute, 20_000, reset=False)
        assert mute.closed()
    assert server.metric("sluice_connections_broken_off_total", listener="grpc") == broken_off + 1
    assert grown(server, before) < 50 * MIB


@pytest.mark.parametrize("mute", [False, True])
def test_20_kb_of_metadata_is_an_error(server, descriptors_return, mute):
    with undisturbed(server), Connection(server.grpc, mute=mute) as wordy:
        if not mute:
            wordy.settle()
        end = wordy.call(1, INFER, request(), ("x-long", "z" * 20_000))
        assert end.get("grpc-status") != "0"
        assert wordy.closed()


# CVE-2023-1428: gRPC before 1.53 may abort on these headers.
@pytest.mark.parametrize("odd", [
    {"te": "x"}, {"extra": (":scheme", "x")}, {"extra": ("grpclb_client_stats", "x")},
], ids=lambda odd: next(iter(odd.values()))[0].strip(":"))
def test_odd_headers_before_too_much_metadata_crash_no_daemon(server, descriptors_return, odd):
    odd = dict(odd)
    extra = [odd.pop("extra")] if "extra" in odd else []
    with undisturbed(server), Connection(server.grpc) as wordy:
        end = wordy.call(1, INFER, request(), *extra, ("x-long", "z" * 9_000), **odd)
        assert end.get("grpc-status") != "0"


# A call that has already reached the daemon may end as CANCELLED.
@pytest.mark.parametrize("wrong, statuses", [
    ({"extra": ("x-some-bin", "!!!!****")}, ("1", "14")),
    ({"extra": ("grpc-trace-bin", "%")}, ("1", "14")),
    ({"extra": ("grpc-timeout", "0n")}, ("1", "4")),
    ({"te": "gzip"}, ("2",)),
    ({"extra": (":method", "GET")}, ("2",)),
    ({"path": "/no.such/Method"}, ("12",)),
    ({"path": "nonsense\0"}, ("12",)),
    ({"path": ""}, ("12",)),
], ids=lambda value: re.sub(r"\W+", "_", str(value)))
def test_wrong_headers_are_an_error(server, descriptors_return, wrong, statuses):
    wrong = {"path": INFER, **wrong}
    path = wrong.pop("path")
    extra = [wrong.pop("extra")] if "extra" in wrong else []
    with undisturbed(server), Connection(server.grpc) as odd:
        assert odd.call(1, path, request(), *extra, **wrong)["grpc-status"] in statuses


def test_odd_headers_do_no_harm(server, descriptors_return):
    odd = [("grpc-timeout", "99999999999999x"), ("grpc-timeout", "-5S"), ("connection", "close"),
           ("X-Upper", "x"), ("x-control", "a\0b\n"), ("grpc-status", "77"), ("grpc-message", "%"),
           ("grpc-encoding", "snappy"), ("grpc-accept-encoding", ",,"), ("traceparent", "00-zz"),
           (":status", "200"), ("x-true-bin", b"\0\xff\xfe")]
    with undisturbed(server):
        for each in odd:
            with Connection(server.grpc) as connection:
                assert (
                    connection.call(1, INFER, request(max_tokens=1), each)["grpc-status"] == "0"
                ), each


def test_a_peer_that_floods_pings_is_disconnected(server, descriptors_return):
    with undisturbed(server), Connection(server.grpc) as flooding:
        flooding.socket.sendall(b"".join(frame(PING, 0, 0, b"12345678") for _ in range(10)))
        assert flooding.closed()
        assert flooding.goaway == b"too_many_pings"


@pytest.mark.parametrize("interval, pause_s", [("0", 0), ("1ms", 0.02)],
                         ids=["not limited", "slower than the limit"])
def test_pings_that_the_option_allows_are_answered(daemon, interval, pause_s):
    server = daemon("--server.grpc.connection.min-ping-interval", interval)
    with Connection(server.grpc) as pinging:
        for _ in range(10):
            pause(pause_s)
            assert not pinging.ping(), pinging.goaway
        assert pinging.call(1, INFER, request(max_tokens=1))["grpc-status"] == "0"


@pytest.mark.parametrize("said", [
    b"", b"GET /livez HTTP/1.1\r\n", b"GET /livez HTTP/1.1\r\nX: " + b"x" * 100_000, b"\0" * 100,
    b"POST /livez HTTP/1.1\r\nContent-Length: 1000000000\r\n\r\n", PREFACE,
], ids=["nothing", "half_a_head", "long_head", "zeros", "post", "http2"])
def test_stalled_or_malformed_http_requests_are_ended(server, descriptors_return, said):
    with undisturbed(server):
        sockets = [
            socket.create_connection(server.http.split(":"), timeout=PATIENCE_S) for _ in range(8)
        ]
        for each in sockets:
            each.sendall(said)
        for each in sockets:
            try:
                answer = each.recv(100)
                assert answer == b"" or answer.split()[1].startswith(b"4")
            except ConnectionResetError:
                pass
            each.close()


def test_a_connection_ends_at_its_age_and_its_calls_after_the_grace(daemon):
    server = daemon("--server.grpc.connection.max-age", "1s",
                    "--server.grpc.connection.age-grace", "1s")
    with Connection(server.grpc) as old:
        old.open(1, STREAM_INFER)
        assert old.closed()
        assert old.goaway is not None
    with Connection(server.grpc) as young:
        assert young.call(1, INFER, request(max_tokens=1))["grpc-status"] == "0"
