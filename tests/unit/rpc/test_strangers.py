from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from federation.model.errors import DeadlineMissed, LimitExceeded, Unauthenticated
from federation.rpc import strangers as module
from federation.rpc.strangers import CallLimits, Strangers, address_of

HERE, THERE = "ipv4:10.0.0.1:4711", "ipv4:10.0.0.2:4711"
MANY = CallLimits(calls=100, reads=100, mistakes=100, mistakes_per_second=100.0)
FEW = CallLimits(calls=2, reads=1, mistakes=2, mistakes_per_second=1.0)


class Watch:
    """A clock that stands still unless it is put forward."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def strangers(
    watch: Watch, *, in_all: CallLimits = MANY, per_address: CallLimits = FEW
) -> Strangers:
    return Strangers(in_all=in_all, per_address=per_address, pause_seconds=0.0, clock=watch)


async def err(bounds: Strangers, peer: str = HERE) -> None:
    with pytest.raises(Unauthenticated):
        async with bounds.call(peer):
            raise Unauthenticated


@pytest.mark.parametrize(
    ("in_all", "per_address", "other"), [(MANY, FEW, HERE), (FEW, MANY, THERE)]
)
async def test_so_many_calls_at_once_and_no_more(
    in_all: CallLimits, per_address: CallLimits, other: str
) -> None:
    bounds = strangers(Watch(), in_all=in_all, per_address=per_address)
    async with AsyncExitStack() as stack:
        for peer in (HERE, other):
            await stack.enter_async_context(bounds.call(peer))
        with pytest.raises(LimitExceeded, match="at once"):
            await stack.enter_async_context(bounds.call(HERE))
    async with bounds.call(HERE):
        pass


async def test_one_address_does_not_use_up_the_calls_of_another() -> None:
    bounds = strangers(Watch())
    async with bounds.call(HERE), bounds.call(HERE), bounds.call(THERE):
        pass


async def test_who_errs_too_often_is_refused_unheard_until_time_has_passed() -> None:
    watch = Watch()
    bounds = strangers(watch)
    for _ in range(FEW.mistakes):
        await err(bounds)
    with pytest.raises(LimitExceeded, match=r"wrong credentials from 10\.0\.0\.1"):
        async with bounds.call(HERE):
            pytest.fail("nothing is to be done for it")
    await err(bounds, THERE)
    watch.now += 1.0
    await err(bounds)
    with pytest.raises(LimitExceeded):
        async with bounds.call(HERE):
            pytest.fail("nothing is to be done for it")


async def test_those_who_wait_for_their_turn_are_not_heard_once_others_erred() -> None:
    few = CallLimits(calls=100, reads=1, mistakes=3, mistakes_per_second=1.0)
    bounds, one_at_once = strangers(Watch(), per_address=few), asyncio.Semaphore(1)
    heard = []

    async def one(number: int) -> None:
        async with bounds.call(HERE, one_at_once):
            heard.append(number)
            await asyncio.sleep(0)
            raise Unauthenticated

    ended = await asyncio.gather(*map(one, range(10)), return_exceptions=True)
    assert heard == [0, 1, 2]
    assert [type(each) for each in ended] == [Unauthenticated] * 3 + [LimitExceeded] * 7


async def err_often(bounds: Strangers, times: int) -> None:
    for _ in range(times):
        await err(bounds)


async def test_those_who_erred_too_often_do_not_go_on_together() -> None:
    pauses, ended = iter((0.05, 0.0)), []
    bounds = Strangers(
        in_all=MANY,
        per_address=MANY,
        pause_seconds=0.001,
        clock=Watch(),
        jitter=lambda _: next(pauses),
    )
    await err_often(bounds, MANY.mistakes)

    async def one(name: str) -> None:
        with pytest.raises(LimitExceeded):
            async with bounds.call(HERE):
                pytest.fail("nothing is to be done for it")
        ended.append(name)

    await asyncio.gather(one("first"), one("second"))
    assert ended == ["second", "first"]


async def test_who_does_not_err_may_call_as_often_as_he_likes() -> None:
    bounds = strangers(Watch())
    for _ in range(10 * FEW.mistakes):
        async with bounds.call(HERE):
            pass


async def test_too_big_a_request_counts_as_many_mistakes() -> None:
    watch = Watch()
    bounds = strangers(watch)
    with pytest.raises(LimitExceeded, match="too big"):
        async with bounds.call(HERE):
            raise LimitExceeded("too big")
    watch.now += module.TOO_MUCH - FEW.mistakes
    with pytest.raises(LimitExceeded, match="wrong"):
        async with bounds.call(HERE):
            pytest.fail("nothing is to be done for it")
    watch.now += 1.0
    async with bounds.call(HERE):
        pass


async def test_requests_arrive_few_at_once_and_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READ_SECONDS", 0.01)
    bounds = strangers(Watch())
    async with bounds.call(HERE) as slow:
        with pytest.raises(DeadlineMissed):
            async with slow.reading():
                await asyncio.Event().wait()
    with pytest.raises(LimitExceeded):
        async with bounds.call(HERE):
            pytest.fail("one so slow is not heard again at once")


async def test_addresses_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ADDRESSES", 2)
    bounds = strangers(Watch())
    for number in range(5):
        async with bounds.call(f"ipv4:10.0.0.{number}:1"):
            pass
    assert list(bounds._allowances) == ["10.0.0.3", "10.0.0.4"]


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:127.0.0.1:53412", "127.0.0.1"),
        ("ipv6:%5B::1%5D:53412", "::/64"),
        ("ipv6:[2001:db8:1:2:3:4:5:6]:1", "2001:db8:1:2::/64"),
        ("ipv6:%5Bfe80::1%25eth0%5D:1", "fe80::/64"),
        ("ipv6:%5B::ffff:10.0.0.1%5D:1", "10.0.0.1"),
        ("unix:", "unix:"),
    ],
)
def test_an_address_is_that_of_a_network_customer(peer: str, address: str) -> None:
    assert address_of(peer) == address
