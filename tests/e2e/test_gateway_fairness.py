"""Tests how the gateway shares its resources between callers."""

import asyncio
import random

import pytest


def caller(address, token=0):
    from sluice_client.gateway.fairness import Caller

    return Caller(address, token)


@pytest.mark.parametrize(
    "host, counted",
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("socket", "socket"),
    ],
)
def test_ipv6_addresses_count_by_their_64_bits(host, counted):
    from sluice_client.gateway.fairness import address_of

    assert address_of(host) == counted


def test_one_peer_cannot_fill_an_account(first_seed):
    """A peer with any number of tokens leaves room for other addresses, and a token for others."""
    from sluice_client.gateway.fairness import Account

    draw = random.Random(first_seed)
    for _ in range(50):
        limit = draw.randrange(100, 5000)
        account = Account(limit)
        held = []
        for _ in range(400):
            peer, size = caller("a", draw.randrange(30)), draw.randrange(1, limit // 10)
            if not account.take(peer, size):
                held.append((peer, size))
        assert account.held <= 0.8 * limit
        assert account.take(caller("b"), limit - account.held) == ""
        assert account.take(caller("c"), 1) == "full"
        account.give_back(caller("b"), account.held_by("b"))
        for each in held:
            account.give_back(*each)
        assert account.held == 0 and not account._of


@pytest.mark.parametrize("token", [0, 5])
def test_one_caller_may_have_the_calls_of_a_client_with_1000_connections(token):
    from sluice_client.gateway.fairness import Account, Caller
    from sluice_client.gateway.hostile import Limits

    calls = Account(Limits().max_in_flight)
    while not calls.take(Caller("a", token), 1):
        pass
    assert 1000 <= calls.held == 1560
    assert not calls.take(Caller("b"), 1)


def test_a_token_leaves_room_for_other_tokens_of_its_address():
    from sluice_client.gateway.fairness import Account

    account = Account(100)
    while not account.take(caller("a", 1), 1):
        pass
    assert account.take(caller("a", 1), 1) == "share"
    assert account.take(caller("a", 2), 1) == ""


def test_turns_go_round_between_addresses_and_tokens():
    from sluice_client.gateway.fairness import Turns

    async def run():
        turns, order = Turns(), []

        async def use(peer):
            await turns.take(peer, 1 << 20)
            order.append(peer)

        many = [asyncio.ensure_future(use(caller("a"))) for _ in range(20)]
        await asyncio.sleep(0)
        others = [asyncio.ensure_future(use(each))
                  for each in (caller("b"), caller("c", 1), caller("c", 2))]
        many[5].cancel()
        await asyncio.gather(*many, *others, return_exceptions=True)
        return order

    order = asyncio.run(run())
    assert len(order) == 22
    # Each of the others waits for at most one request of each other address.
    assert {caller("b"), caller("c", 1)} <= set(order[:5])
    assert caller("c", 2) in order[:7]


def test_the_loop_serves_its_sockets_between_turns():
    from sluice_client.gateway.fairness import Turns

    async def run():
        turns, events = Turns(), []
        loop = asyncio.get_running_loop()

        async def use():
            await turns.take(caller("a"), 1 << 20)
            events.append("turn")

        waiting = [asyncio.ensure_future(use()) for _ in range(3)]
        reader, writer = __import__("socket").socketpair()
        writer.send(b"x")
        loop.add_reader(reader, lambda: (reader.recv(1), events.append("socket")))
        await asyncio.gather(*waiting)
        loop.remove_reader(reader)
        reader.close()
        writer.close()
        return events

    events = asyncio.run(run())
    assert "socket" in events[:-1], events


def test_places_go_to_waiting_callers_in_turn_and_none_is_lost(first_seed):
    from sluice_client.gateway.fairness import Places

    draw = random.Random(first_seed)

    async def run():
        places, running, most, order = Places(10, abort_hold_s=0), 0, 0, []

        async def use(peer):
            nonlocal running, most
            if not places.take(peer):
                await places.wait(peer)
            running += 1
            most = max(most, running)
            order.append(peer)
            try:
                for _ in range(draw.randrange(4)):
                    await asyncio.sleep(0)
            finally:
                running -= 1
                places.give_back(peer, aborted=draw.random() < 0.5)

        flood = [asyncio.ensure_future(use(caller("a", draw.randrange(50)))) for _ in range(300)]
        await asyncio.sleep(0)
        before = len(order)  # Calls that end in their first step make room for more.
        honest = asyncio.ensure_future(use(caller("b")))
        for each in draw.sample(flood, 60):
            await asyncio.sleep(0)
            each.cancel()
        await asyncio.wait_for(asyncio.gather(honest, *flood, return_exceptions=True), 60)
        assert places._account.held == 0 and not places._waiting
        return most, order.index(caller("b")) - before

    most, position = asyncio.run(run())
    assert most <= 10 and position <= 4


def test_an_aborted_call_keeps_its_place_for_a_time():
    from sluice_client.gateway.fairness import Places

    async def run():
        places = Places(2, abort_hold_s=0.01)
        peer = caller("a")
        assert places.take(peer)
        places.give_back(peer, aborted=True)
        assert not places.take(peer)
        await places.wait(peer)
        places.give_back(peer)
        assert places.take(peer)

    asyncio.run(run())


def test_refusals_are_counted_and_logged_at_a_limited_rate(caplog):
    from prometheus_client import CollectorRegistry
    from sluice_client.gateway.fairness import Refusals

    registry, now = CollectorRegistry(), [0.0]
    refusals = Refusals(registry, lambda: now[0])
    for _ in range(1000):
        refusals.add("memory", "192.0.2.1", "too many bytes")
    refusals.add("calls", "192.0.2.2", "too many calls")
    now[0] = 11
    refusals.add("memory", "192.0.2.3", "too many bytes")
    assert registry.get_sample_value("sluice_gateway_refused_total", {"reason": "memory"}) == 1001
    assert [each.getMessage() for each in caplog.records] == [
        "refused 192.0.2.1 (memory): too many bytes",
        "refused 192.0.2.2 (calls): too many calls",
        "refused 192.0.2.3 (memory): too many bytes; 999 more since the last line",
    ]
