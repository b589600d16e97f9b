"""Shares the gateway's resources between callers, so that one caller cannot use all of them.

A caller is an address together with a token. The gateway cannot check tokens, so a peer may invent
any number of them. Therefore addresses share a resource first, and then the tokens of an address
share the part of the address. An IPv6 address counts with its /64, because a host may use all
addresses of its /64.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections import OrderedDict, deque
from functools import lru_cache
from itertools import islice
from typing import Callable, Hashable, NamedTuple, Optional

from prometheus_client import CollectorRegistry, Counter

_log = logging.getLogger("sluice_client.gateway")

# An address may hold at most this multiple of the amount that remains free, and so may a token of
# the part of its address. One address can hold 80 % of a resource, and four can hold 24 % each.
_SHARE = 4


class Caller(NamedTuple):
    """The peer of a call: its address, and a hash of its `authorization` header."""

    address: str
    token: int = 0


@lru_cache(maxsize=4096)
def address_of(host: str) -> str:
    """Returns the address that shares are counted by: IPv4, or the /64 of an IPv6 address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))


def caller_of(host: str, authorization: Optional[str]) -> Caller:
    # Python's hash of a text has a secret seed, so that no caller can choose another's hash.
    return Caller(address_of(host), hash(authorization) if authorization else 0)


class Account:
    """A resource of `limit` units that callers share. The last units stay free for new callers."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self._of: dict[Hashable, int] = {}

    def refusal(self, caller: Caller, size: int) -> str:
        """Returns "" if `caller` may take `size` more units. Otherwise returns "full" if all
        callers together hold too much, or "share" if the caller's part is used up."""
        held = self.held + size
        if held > self.limit:
            return "full"
        if caller.address not in self._of:
            return ""
        rest = _SHARE * (self.limit - held) - (self._of[caller.address] + size)
        if rest < 0 or self._of.get(caller, 0) + size > _SHARE * (rest + size):
            return "share"
        return ""

    def take(self, caller: Caller, size: int) -> str:
        """Takes `size` units unless `refusal` refuses them, and returns the refusal."""
        if not (refused := self.refusal(caller, size)):
            self._add(caller, size)
        return refused

    def give_back(self, caller: Caller, size: int) -> None:
        self._add(caller, -size)

    def held_by(self, key: Hashable) -> int:
        """Returns the units of a caller, or of all callers of an address."""
        return self._of.get(key, 0)

    def _add(self, caller: Caller, size: int) -> None:
        self.held += size
        for key in (caller.address, caller):
            held = self._of.get(key, 0) + size
            if held:
                self._of[key] = held
            else:
                self._of.pop(key, None)


class _FairQueue:
    """Futures that wait, in turn by address, and in turn by token within an address."""

    # The most callers of an address that one `pop` tries; the next one tries the others.
    _MOST_TRIED = 4

    def __init__(self) -> None:
        # The first address is next, and its first caller.
        self._of: OrderedDict[str, OrderedDict[Caller, deque[asyncio.Future[None]]]] = OrderedDict()

    def __contains__(self, caller: Caller) -> bool:
        return caller.address in self._of

    def __bool__(self) -> bool:
        return bool(self._of)

    def add(self, caller: Caller) -> asyncio.Future[None]:
        waiting = asyncio.get_running_loop().create_future()
        callers = self._of.setdefault(caller.address, OrderedDict())
        callers.setdefault(caller, deque()).append(waiting)
        return waiting

    def remove(self, caller: Caller, waiting: asyncio.Future[None]) -> None:
        """Removes a wait unless `pop` has removed it."""
        callers = self._of.get(caller.address)
        if callers is None or waiting not in callers.get(caller, ()):
            return
        callers[caller].remove(waiting)
        if not callers[caller]:
            del callers[caller]
        if not callers:
            del self._of[caller.address]

    def pop(self, admit: Callable[[Caller], bool]) -> bool:
        """Ends the wait of the next caller that `admit` admits; returns false if it admits none."""
        for address in list(self._of):
            callers = self._of[address]
            for caller in list(islice(callers, self._MOST_TRIED)):
                callers.move_to_end(caller)
                waiting = callers[caller][0]
                if not waiting.done() and not admit(caller):
                    continue
                self._of.move_to_end(address)
                self.remove(caller, waiting)
                if not waiting.done():  # It is done if its task was cancelled.
                    waiting.set_result(None)
                return True
        return False


class Turns:
    """Gives callers turns on the event loop, which serves its sockets between turns.

    A caller waits for at most one request of each other caller, however many these have sent.
    """

    # Turns within one iteration of the event loop read at most this many bytes, or one request.
    _ITERATION_BYTES = 64 << 10
    _CALL_BYTES = 2 << 10  # the cost of a call without a body

    def __init__(self) -> None:
        self._waiting = _FairQueue()
        self._spent = 0
        self._scheduled = False

    async def take(self, caller: Caller, size: int) -> None:
        """Returns when the caller may run code with the processor time of reading `size` bytes."""
        if self._waiting or self._spent >= self._ITERATION_BYTES:
            waiting = self._waiting.add(caller)
            try:
                await waiting
            except asyncio.CancelledError:
                if waiting.cancelled():
                    self._waiting.remove(caller, waiting)
                raise
        self._spent += size + self._CALL_BYTES
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """Runs in each iteration of the event loop in which turns run or wait."""
        self._spent = 0
        self._scheduled = self._waiting.pop(lambda _: True)
        if self._scheduled:
            asyncio.get_running_loop().call_soon(self._next)


class Places:
    """Limits the calls in progress at the daemon. Waiting callers get free places in turn."""

    def __init__(self, limit: int, abort_hold_s: float = 1.0) -> None:
        """A cancelled call keeps its place for `abort_hold_s`. This limits how often a caller makes
        the gateway reset calls; the daemon closes connections with many reset calls."""
        self._account = Account(limit)
        self._abort_hold_s = abort_hold_s
        self._waiting = _FairQueue()

    def take(self, caller: Caller) -> bool:
        """Takes a place if one is free for the caller and no call of its address waits."""
        return caller not in self._waiting and not self._account.take(caller, 1)

    async def wait(self, caller: Caller) -> None:
        """Waits until the caller has a place."""
        waiting = self._waiting.add(caller)
        try:
            await waiting
        except asyncio.CancelledError:
            if waiting.cancelled():
                self._waiting.remove(caller, waiting)
            else:
                self.give_back(caller)
            raise

    def give_back(self, caller: Caller, aborted: bool = False) -> None:
        if aborted and self._abort_hold_s:
            asyncio.get_running_loop().call_later(self._abort_hold_s, self.give_back, caller)
            return
        self._account.give_back(caller, 1)
        while self._waiting.pop(lambda each: not self._account.take(each, 1)):
            pass


class Refusals:
    """Counts refusals by reason, and logs at most one line per reason in ten seconds."""

    _INTERVAL_S = 10.0

    def __init__(
        self, registry: CollectorRegistry, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._counter = Counter(
            "sluice_gateway_refused",
            "Requests and connections that the gateway refused at one of its own limits, TLS"
            " handshakes that failed, and requests of callers that the daemon does not know.",
            ["reason"],
            registry=registry,
        )
        self._clock = clock
        self._next: dict[str, float] = {}
        self._unlogged: dict[str, int] = {}

    def add(self, reason: str, peer: str, message: str) -> None:
        self._counter.labels(reason).inc()
        if (now := self._clock()) < self._next.get(reason, now):
            self._unlogged[reason] = self._unlogged.get(reason, 0) + 1
            return
        self._next[reason] = now + self._INTERVAL_S
        more = self._unlogged.pop(reason, 0)
        _log.warning("refused %s (%s): %s%s", peer, reason, message,
                     f"; {more} more since the last line" if more else "")

