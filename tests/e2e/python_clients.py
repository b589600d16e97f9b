"""The blocking and the asyncio client with the same methods, for tests of both."""

import asyncio
import contextlib
import gc
import threading
import time
import types
from unittest import mock

import grpc
import pytest
import sluice_client
from waiting import PATIENCE_S


class FromAsyncio:
    """An AsyncClient with the methods of a Client; its event loop runs in a thread."""

    def __init__(self, *arguments, **named):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        try:
            self._client = self._run(self._make(*arguments, **named))
        except BaseException:
            self._stop()
            raise

    async def _make(self, *arguments, **named):
        return sluice_client.AsyncClient(*arguments, **named)

    def _run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE_S)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._run(self._client.close())
        self._stop()

    def _stop(self):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __getattr__(self, name):
        return lambda *arguments, **named: self._run(
            getattr(self._client, name)(*arguments, **named)
        )

    def stream(self, *arguments, **named):
        parts = self._client.stream(*arguments, **named)
        try:
            while True:
                try:
                    yield self._run(anext(parts))
                except StopAsyncIteration:
                    return
        finally:
            self._run(parts.aclose())


@contextlib.contextmanager
def time_moved_by(seconds):
    """Moves the clients' clock forward."""
    moved = types.SimpleNamespace(monotonic=lambda: time.monotonic() + seconds)
    with mock.patch("sluice_client._channel.time", moved):
        yield


@contextlib.contextmanager
def no_call_left():
    """Asserts that no call lasts until the end of the block, through an error or a cycle.

    The finalizer of a call can block for ever while Python exits, so a call must not last so long.
    """
    def calls():
        return [each for each in gc.get_objects() if isinstance(each, grpc.RpcError)]

    gc.collect()
    before = {id(each) for each in calls()}  # of earlier tests
    gc.disable()
    try:
        yield
        left = [repr(gc.get_referrers(each)) for each in calls() if id(each) not in before]
    finally:
        gc.enable()
    if left:
        pytest.fail(f"calls are left in {left}")


@pytest.fixture(params=[sluice_client.Client, FromAsyncio], ids=["blocking", "asyncio"])
def connect(request):
    return request.param
