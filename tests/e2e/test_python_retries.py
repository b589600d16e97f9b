"""Tests the retries and deadlines of the Python client against a scripted server."""

import asyncio
import concurrent.futures
import copy
import math
import pickle
import sys
import threading
import types

import pytest
from conftest import free_port
from python_clients import FromAsyncio, connect, no_call_left, time_moved_by  # noqa: F401
from scripted_server import Refusal, ScriptedServer
from sluice_client import NEVER, AsyncClient, Client, Retry, _protocol, aio, errors
from sluice_client._channel import Attempts, Defaults
from waiting import PATIENCE_S


def test_call_is_retried_after_the_push_back_delay(connect):
    with ScriptedServer(
        Refusal("RESOURCE_EXHAUSTED", 50), Refusal("UNAVAILABLE"), "answer"
    ) as server, connect(server.address, retry=Retry(backoff_s=1e-3), token="secret") as client:
        assert client.generate("demo", "a", max_tokens=1).text == "answer"
    first, second, _ = server.arrivals
    assert second - first >= 0.05
    assert all(each["authorization"] == "Bearer secret" for each in server.metadata)


def test_an_unreachable_deadline_is_a_deadline_and_an_overload(connect):
    refused = Refusal("RESOURCE_EXHAUSTED", 60_000, "deadline_unreachable")
    with ScriptedServer(refused) as server, connect(server.address) as client:
        with pytest.raises(errors.DeadlineExceeded, match="60 s.*timeout_s") as caught:
            client.generate("m", "a", max_tokens=1)
    error = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(error, errors.Overloaded) and isinstance(error, TimeoutError)
    assert str(error) == str(caught.value) == error.message
    assert (error.code, error.retry_after_s) == ("RESOURCE_EXHAUSTED", 60)


def test_a_drain_names_the_retries_that_outlast_it(connect):
    refused = Refusal("UNAVAILABLE", 1, "draining")
    with ScriptedServer(refused) as server, connect(server.address, retry=NEVER) as client:
        with pytest.raises(errors.Unavailable, match=r"retry=Retry\(attempts=12\)"):
            client.generate("m", "a", max_tokens=1)


def test_stream_yields_each_part(connect):
    with ScriptedServer(["one", "two", "three"]) as server, connect(server.address) as client:
        parts = client.stream("demo", "a", max_tokens=3)
        assert [part.text for part in parts] == ["one", "two", "three"]


def test_stream_is_retried_only_before_its_first_part(connect):
    refused = Refusal("RESOURCE_EXHAUSTED", 1)
    with ScriptedServer([refused], ["one", refused]) as server, connect(server.address) as client:
        parts = client.stream("demo", "a", max_tokens=1)
        assert next(parts).text == "one"
        with pytest.raises(errors.Overloaded) as error:
            next(parts)
        assert error.value.retry_after_s == 0.001 and not server.script


@pytest.mark.parametrize("answers", [[Refusal("NOT_FOUND")], [["one", Refusal("NOT_FOUND")]]],
                         ids=["before the first part", "after it"])
def test_failed_stream_leaves_no_call(answers):
    with ScriptedServer(*answers) as server, Client(server.address) as client, no_call_left():
        with pytest.raises(errors.NotFound) as error:
            list(client.stream("demo", "a", max_tokens=2))
        assert error.value.code == "NOT_FOUND"


@pytest.mark.parametrize(
    "refusal, options",
    [
        pytest.param(Refusal("RESOURCE_EXHAUSTED"), {}, id="no push-back"),
        pytest.param(Refusal("RESOURCE_EXHAUSTED", 10**6), {}, id="longer than the deadline"),
        pytest.param(Refusal("INVALID_ARGUMENT", 1), {}, id="an error of the caller"),
        pytest.param(Refusal("UNAVAILABLE"), {"retry": NEVER}, id="no retries"),
    ],
)
def test_call_is_not_retried_if_a_retry_cannot_succeed(connect, refusal, options):
    with ScriptedServer(refusal) as server, connect(server.address, **options) as client:
        with pytest.raises(errors.SluiceError) as error:
            client.generate("demo", "a", max_tokens=1)
        assert error.value.code == refusal.code and not server.script
        own = {"UNAVAILABLE": "unavailable"}.get(refusal.code, "")  # The client's, without one.
        assert error.value.reason == ("full" if refusal.pushback_ms else own)


def test_call_that_a_stopping_daemon_cancels_is_repeated(connect):
    ended = Refusal("CANCELLED")
    with ScriptedServer(ended, ended, "answer") as server, connect(
        server.address, retry=Retry(backoff_s=0)
    ) as client:
        assert client.generate("demo", "a", max_tokens=1).text == "answer"
        assert not server.script


def test_call_that_is_cancelled_at_every_attempt_says_so(connect):
    with ScriptedServer(*[Refusal("CANCELLED")] * 3) as server, connect(
        server.address, retry=Retry(attempts=3, backoff_s=0)
    ) as client:
        with pytest.raises(errors.Cancelled, match="the client did not cancel the call") as error:
            client.generate("demo", "a", max_tokens=1)
        assert error.value.reason == "cancelled" and not server.script


def test_cancellation_with_a_reason_is_not_repeated(connect):
    # The daemon itself gives the reason.
    with ScriptedServer(Refusal("CANCELLED", 1)) as server, connect(server.address) as client:
        with pytest.raises(errors.Cancelled, match="^scripted refusal$"):
            client.generate("demo", "a", max_tokens=1)
        assert not server.script


def test_overloaded_daemon_is_called_until_the_deadline(connect):
    refusals = [Refusal("RESOURCE_EXHAUSTED", 1)] * 12
    with ScriptedServer(*refusals, "answer") as server, connect(server.address) as client:
        assert client.generate("demo", "a", max_tokens=1).text == "answer"
    with ScriptedServer(*refusals) as server, connect(
        server.address, retry=Retry(attempts=3)
    ) as client:
        with pytest.raises(errors.Overloaded):
            client.generate("demo", "a", max_tokens=1)
        assert len(server.arrivals) == 3


def test_delay_of_a_refusal_is_spread_and_kept_before_the_deadline():
    full = errors.Overloaded("full", "RESOURCE_EXHAUSTED", "queue_full", 2.0)
    assert Retry().delay_s(full, 1000, 0, 10, lambda: 0) == 2.0
    assert Retry().delay_s(full, 1000, 0, 10, lambda: 0.5) == pytest.approx(2.1)
    assert Retry().delay_s(full, 1, 0, 2.05, lambda: 0.5) is None
    assert NEVER.delay_s(full, 1, 0, 10) is None
    away = errors.Unavailable("away", "UNAVAILABLE")
    assert Retry().delay_s(away, 3, 3, 10, lambda: 0) == 0
    assert Retry().delay_s(away, 4, 4, 10, lambda: 0) is None


def test_refusals_for_overload_do_not_count_as_an_unavailable_daemon(connect):
    refusals = [Refusal("RESOURCE_EXHAUSTED", 1)] * 5 + [Refusal("UNAVAILABLE")]
    with ScriptedServer(*refusals, "answer") as server, connect(server.address) as client:
        assert client.generate("demo", "a", max_tokens=1).text == "answer"
    away = errors.Unavailable("away", "UNAVAILABLE")
    assert Retry().delay_s(away, 6, 1, 10, lambda: 1) == Retry().backoff_s
    assert Retry(attempts=6).delay_s(away, 6, 1, 10) is None


def test_backoff_of_many_attempts_is_the_longest_one():
    away = errors.Unavailable("away", "UNAVAILABLE")
    assert Retry(attempts=10**6).delay_s(away, 2000, 2000, 100, lambda: 1) == Retry().max_backoff_s


def test_deadline_of_a_call_limits_all_its_requests_and_the_default_limits_each():
    own = Attempts({"timeout_s": 10}, Defaults("", 60, None, Retry()))
    default = Attempts({}, Defaults("", 60, None, Retry()))
    for each, before, after in ((own, 10, 4), (default, 60, 60)):
        each.begin()
        assert before - 1 < each.remaining_s() <= before
        with time_moved_by(6):
            each.begin()
            assert after - 1 < each.remaining_s() <= after
        with time_moved_by(6):  # A part of a list has the deadline of a request.
            part = each.part()
            part.begin()
            assert after - 1 < part.remaining_s() <= after
    with time_moved_by(61):  # Waiting in the client counts only for a deadline of the whole call.
        assert default.part().queue_s() is None
        with pytest.raises(errors.DeadlineExceeded):
            own.part().queue_s()
    with time_moved_by(11), pytest.raises(errors.DeadlineExceeded, match=r"\(timeout_s\)"):
        own.remaining_s()


def test_backoff_grows_up_to_its_limit_and_ends():
    retry = Retry(attempts=4, backoff_s=1, max_backoff_s=3)
    away = errors.Unavailable("away", "UNAVAILABLE")
    waits = [retry.delay_s(away, attempt, attempt, 100, lambda: 0.5) for attempt in (1, 2, 3, 4)]
    assert waits == [0.5, 1, 1.5, None]
    assert retry.delay_s(away, 1, 1, 0.4, lambda: 0.5) is None


@pytest.mark.parametrize("timeout_s", [math.inf, 1e10, pytest.param(10**400, id="1e400")])
def test_call_may_have_any_long_deadline(connect, timeout_s):
    with ScriptedServer("one", ["two"], "three") as server:
        with connect(server.address) as client:
            assert client.generate("m", "a", max_tokens=1, timeout_s=timeout_s).text == "one"
            parts = client.stream("m", "a", max_tokens=1, timeout_s=timeout_s)
            assert [each.text for each in parts] == ["two"]
        with connect(server.address, timeout_s=timeout_s) as client:
            assert client.generate("m", "a", max_tokens=1).text == "three"
    assert min(server.times_left) > 1e7


def test_deadline_that_is_not_a_number_is_refused(connect):
    with ScriptedServer() as server, connect(server.address) as client:
        with pytest.raises(ValueError, match="timeout_s is NaN"):
            client.generate("m", "a", max_tokens=1, timeout_s=math.nan)
    with pytest.raises(ValueError, match="timeout_s is nan"):
        connect(server.address, timeout_s=math.nan)


@pytest.mark.parametrize("token", ["secret\n", "s\u00e9cret", "sec\tret"])
def test_token_that_cannot_be_sent_is_refused_and_not_shown(connect, token):
    with pytest.raises(ValueError, match="^token: character . of [67] is .*strip") as error:
        connect("localhost:1", token=token)
    assert token.strip() not in str(error.value)
    with pytest.raises(TypeError, match="^token is of type bytes"):
        connect("localhost:1", token=b"secret")


@pytest.mark.parametrize("kind", [errors.SluiceError, *errors.SluiceError.__subclasses__()])
def test_errors_can_be_pickled_and_copied(kind):
    made = kind("the text", "NOT_FOUND", "a_reason", 1.5)
    made.item, made.is_local = 3, True
    pickled = [pickle.dumps(made, each) for each in range(pickle.HIGHEST_PROTOCOL + 1)]
    for back in [*map(pickle.loads, pickled), copy.copy(made)]:
        assert type(back) is kind and str(back) == "the text" and vars(back) == vars(made)


def test_errors_of_the_client_have_a_reason_and_name_the_deadline(connect):
    address = f"127.0.0.1:{free_port()}"
    with connect(address, retry=NEVER) as client:
        with pytest.raises(errors.Unavailable, match=f"no daemon answers by gRPC at {address}: ") \
                as error:
            client.generate("demo", "a", max_tokens=1)
        assert error.value.reason == "unavailable"
        with pytest.raises(errors.DeadlineExceeded, match="deadline of 1e-09 s") as error:
            client.generate("demo", "a", max_tokens=1, timeout_s=1e-9)
        assert error.value.reason == "deadline"
    late = Attempts({}, Defaults("", 2.5, None, NEVER))
    late.begin()
    error = errors.error_of("DEADLINE_EXCEEDED", "Deadline Exceeded")
    error.is_local = True
    with pytest.raises(errors.DeadlineExceeded, match="deadline of 2.5 s"):
        late.delay_s(error)


def test_call_after_close_states_that_the_client_is_closed(connect):
    with ScriptedServer() as server, connect(server.address) as client:
        client.close()
        with pytest.raises(errors.SluiceError, match="the client is closed"):
            client.generate("demo", "a", max_tokens=1)
        with pytest.raises(errors.SluiceError, match="the client is closed"):
            list(client.stream("demo", "a", max_tokens=1))


class Held:
    """A server whose calls do not end. The stream of a call has one part."""

    def __init__(self):
        self.arrived, self._ended = threading.Event(), threading.Event()
        self._server = ScriptedServer(self, infer=self._infer)
        self.address = self._server.address

    def _infer(self, _, context):
        context.add_callback(self._ended.set)
        self.arrived.set()
        assert self._ended.wait(PATIENCE_S)

    def parts(self):
        yield "one"
        self.arrived.set()
        assert self._ended.wait(PATIENCE_S)

    def __enter__(self):
        self._server.script = [Parts(self)]
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._server.__exit__()


class Parts(list):
    """The parts of a stream that does not end."""

    def __init__(self, held):
        self._held = held

    def __iter__(self):
        return self._held.parts()


CALLS = {
    "one answer": lambda client: client.generate("m", "a", max_tokens=1),
    "a list": lambda client: client.embed("m", ["a"] * 200),
    "a stream": lambda client: list(client.stream("m", "a", max_tokens=2)),
}


@pytest.mark.parametrize("call", CALLS)
def test_call_in_progress_at_close_states_that_the_client_was_closed(connect, call):
    with Held() as server, connect(server.address) as client, \
            concurrent.futures.ThreadPoolExecutor() as threads:
        answer = threads.submit(CALLS[call], client)
        assert server.arrived.wait(PATIENCE_S)
        client.close()
        with pytest.raises(errors.Cancelled, match="closed during the call"):
            answer.result(PATIENCE_S)


@pytest.mark.parametrize("call", ["one answer", "a stream"])
def test_call_that_waits_for_its_next_attempt_at_close_is_cancelled(connect, call):
    class Closing(Retry):
        def delay_s(self, *arguments):
            if isinstance(client, FromAsyncio):
                asyncio.ensure_future(client._client.close())
            else:
                client.close()
            return super().delay_s(*arguments)

    refused = Refusal("RESOURCE_EXHAUSTED", 1)
    with ScriptedServer(refused if call == "one answer" else [refused]) as server, \
            connect(server.address, retry=Closing()) as client:
        with pytest.raises(errors.Cancelled, match="closed during the call"):
            CALLS[call](client)


@pytest.mark.parametrize("call", CALLS)
def test_call_that_starts_while_another_thread_closes_the_client_is_cancelled(monkeypatch, call):
    remaining_s = Attempts.remaining_s

    def closing(attempts):
        client.close()
        return remaining_s(attempts)

    monkeypatch.setattr(Attempts, "remaining_s", closing)
    with Client(f"127.0.0.1:{free_port()}") as client:
        with pytest.raises(errors.Cancelled, match="closed during the call"):
            CALLS[call](client)


def test_call_that_waits_for_a_slot_at_close_is_cancelled():
    async def run(server):
        client = AsyncClient(server.address, max_in_flight=1)
        calls = [asyncio.ensure_future(client.generate("m", "a", max_tokens=1)) for _ in range(3)]
        calls += [asyncio.ensure_future(anext(client.stream("m", "a", max_tokens=1)))]
        await asyncio.to_thread(server.arrived.wait, PATIENCE_S)
        await client.close()
        return await asyncio.gather(*calls, return_exceptions=True)

    in_flight = errors.Cancelled if sys.version_info >= (3, 11) else asyncio.CancelledError
    with Held() as server:
        assert [*map(type, asyncio.run(run(server)))] == [in_flight] + [errors.Cancelled] * 3


def test_close_during_a_call_fails_the_task_group_of_the_call():
    async def run(server):
        client = AsyncClient(server.address)

        async def close():
            await asyncio.to_thread(server.arrived.wait, PATIENCE_S)
            await client.close()

        async with asyncio.TaskGroup() as group:
            group.create_task(client.generate("m", "a", max_tokens=1))
            group.create_task(close())

    with Held() as server, pytest.raises(ExceptionGroup) as group:
        asyncio.run(run(server))
    assert [*map(type, group.value.exceptions)] == [errors.Cancelled]


def test_task_that_is_cancelled_before_close_is_cancelled():
    async def run(server):
        client = AsyncClient(server.address)
        call = asyncio.ensure_future(client.generate("m", "a", max_tokens=1))
        await asyncio.to_thread(server.arrived.wait, PATIENCE_S)
        call.cancel()
        await client.close()
        await asyncio.wait({call})
        return call.cancelled()

    with Held() as server:
        assert asyncio.run(run(server))


@pytest.fixture(params=["this Python", "Python 3.10"])
def version(request, monkeypatch):
    if request.param == "Python 3.10":
        monkeypatch.setattr(aio, "sys", types.SimpleNamespace(version_info=(3, 10)))


async def iterations(count):
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("after", range(8))
def test_call_that_is_cancelled_as_it_gets_a_slot_is_not_made(version, after):
    """The cancellation arrives `after` iterations of the event loop after the slot is free."""
    async def run():
        client, made, gate = AsyncClient("localhost:1", max_in_flight=1), [], asyncio.Event()

        async def infer(*_, **__):
            made.append(None)
            await (gate if len(made) == 1 else asyncio.Event()).wait()
            raise errors.NotFound("no such model", "NOT_FOUND")

        client._connected().unary[_protocol.MODEL_INFER] = infer
        first, second = (asyncio.ensure_future(client.generate(
            "m", "a", max_tokens=1, timeout_s=PATIENCE_S)) for _ in range(2))
        await iterations(20)
        with pytest.raises(errors.DeadlineExceeded, match="max_in_flight"):
            await client.generate("m", "a", max_tokens=1, timeout_s=0.001)
        assert len(made) == 1
        gate.set()
        await iterations(after)
        second.cancel()
        await iterations(20)
        assert second.cancelled() and not client._slots.locked()
        assert isinstance(first.exception(), errors.NotFound)
        await client.close()

    asyncio.run(run())


def test_cancellation_is_kept_if_the_work_ends_in_the_same_iteration(version):
    async def run():
        ended = asyncio.get_running_loop().create_future()

        async def work():
            await ended

        task = asyncio.ensure_future(aio.within(PATIENCE_S, work()))
        await iterations(5)
        ended.set_result(None)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()

    asyncio.run(run())


@pytest.mark.parametrize("address", ["localhost", "10.0.0.1", "dns:///sluice-headless"])
def test_address_without_a_port_is_refused(connect, address):
    with pytest.raises(ValueError, match="has no port; expected HOST:PORT"):
        connect(address)
