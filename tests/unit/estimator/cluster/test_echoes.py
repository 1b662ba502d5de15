"""Pods counted for promises, event by event."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hypothesis import given
from hypothesis import strategies as st

from estimator.cluster.cache import ClusterCache
from estimator.cluster.echoes import EchoCount, state_of
from estimator.nodes import Node, Pod, PodState
from federation.model.echoes import (
    Interest,
    InterestUpdate,
    Owner,
    PodOrigin,
    PodSighting,
    SoughtShape,
)
from federation.model.resources import CPU, MEMORY
from federation.model.shapes import Echo, ReservationKey, request_shape
from lab.echoes import echoes_of

SMALL, LARGE, ODD = {CPU: 100}, {CPU: 200, MEMORY: 1 << 30}, {CPU: 137}
WEB = Owner("apps/v1", "Deployment", "shop", "web")
JOB = Owner("batch/v1", "Job", "shop", "backup-7")
CRON_JOB = Owner("batch/v1", "CronJob", "shop", "backup")


class World:
    """A cache and what is counted of it."""

    def __init__(self) -> None:
        self.cache = ClusterCache(on_change=self.follow)
        self.echoes = EchoCount(self.cache.pod)
        self.cache.put_node(Node(name="a"))

    def follow(self, before: Pod | None, after: Pod | None) -> None:
        self.echoes.follow(before, after)

    def tell(self, *interests: Interest, version: int = 1, whole: bool = False) -> None:
        for _ in self.echoes.tell(
            InterestUpdate(version=version, whole=whole, interests=interests)
        ):
            pass

    def counts(self) -> dict[str, tuple[int, int, int]]:
        return {
            each.binding: (each.bound, each.unbound, each.finished) for each in self.echoes.take()
        }


def pod(
    uid: str,
    state: PodState = PodState.BOUND,
    owners: tuple[Owner, ...] = (WEB,),
    request: dict[str, int] = SMALL,
    **labels: str,
) -> Pod:
    marks = {f"fedsched.io/{name}": value for name, value in labels.items()}
    is_placed = state in (PodState.BOUND, PodState.DONE, PodState.SUCCEEDED)
    return Pod(
        uid=uid,
        namespace="shop",
        name=uid,
        node="a" if is_placed else "",
        state=state,
        request=request,
        origin=PodOrigin.of(marks, owners),
    )


def interest(
    binding: str,
    owner: Owner | None = WEB,
    uid: str = "",
    shapes: Iterable[tuple[str, dict[str, int], str]] = (("", SMALL, "d1"),),
) -> Interest:
    return Interest(
        binding=binding,
        uid=uid,
        owner=owner,
        shapes=tuple(
            SoughtShape(component=component, shape=request_shape(request), decisions=(decision,))
            for component, request, decision in shapes
        ),
    )


def test_an_update_is_answered_only_when_all_of_it_is_counted() -> None:
    world = World()
    world.tell(interest("shop/web"), version=4, whole=True)
    world.cache.replace_pods([pod(f"p{number}") for number in range(5)])
    steps = world.echoes.tell(
        InterestUpdate(version=9, whole=True, interests=(interest("shop/other"),))
    )
    next(steps)
    assert world.echoes.version == 0
    world.cache.remove_pod("p1")
    world.cache.put_pod(pod("p9"))
    for _ in steps:
        pass
    assert world.echoes.version == 9
    assert world.counts() == {"shop/other": (5, 0, 0)}


owners = st.sampled_from([(), (WEB,), (JOB, CRON_JOB), (CRON_JOB,)])
labels = st.dictionaries(
    st.sampled_from(["binding", "component", "decision"]), st.sampled_from(["", "u1", "u2", "d1"])
)
pods = st.builds(
    lambda uid, state, owners, request, labels: pod(uid, state, owners, request, **labels),
    st.sampled_from("pqrst"),
    st.sampled_from(PodState),
    owners,
    st.sampled_from([SMALL, LARGE, ODD]),
    labels,
)
interests = st.builds(
    interest,
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from([None, WEB, JOB, CRON_JOB]),
    st.sampled_from(["", "u1", "u2"]),
    st.lists(
        st.tuples(
            st.sampled_from(["", "u1", "u2"]),
            st.sampled_from([SMALL, LARGE]),
            st.sampled_from(["d1", "d2"]),
        ),
        max_size=3,
    ),
)
updates = st.builds(
    InterestUpdate,
    version=st.integers(1, 9),
    whole=st.booleans(),
    interests=st.lists(interests, max_size=3, unique_by=lambda each: each.binding).map(tuple),
    removed=st.sets(st.sampled_from(["a", "b", "c"])).map(tuple),
)
events = st.one_of(pods, st.sampled_from("pqrst"), updates, st.just("take"))


@given(st.lists(events, max_size=40), st.data())
def test_counted_by_events_equals_counted_from_scratch(
    history: list[object], data: st.DataObject
) -> None:
    world = World()
    known: dict[str, Pod] = {}
    sought: dict[str, Interest] = {}
    unfinished: Iterator[None] = iter(())
    for event in history:
        for _ in zip(unfinished, range(data.draw(st.integers(0, 3))), strict=False):
            pass
        match event:
            case Pod():
                known[event.uid] = event
                world.cache.put_pod(event)
            case "take":
                world.echoes.take()
            case str():
                known.pop(event, None)
                world.cache.remove_pod(event)
            case InterestUpdate():
                # Updates are told one after the other, while pods go on changing.
                for _ in unfinished:
                    pass
                if event.whole:
                    sought.clear()
                else:
                    sought = {
                        name: each for name, each in sought.items() if name not in event.removed
                    }
                sought |= {each.binding: each for each in event.interests}
                unfinished = world.echoes.tell(event)
    for _ in unfinished:
        pass
    states = [(each, state_of(each)) for each in known.values()]
    sightings = [
        PodSighting(state=state, request=each.request, origin=each.origin)
        for each, state in states
        if state is not None
    ]
    assert by_key(world.echoes.take()) == by_key(echoes_of(sought.values(), sightings))
    for each, state in states:
        key = world.echoes.key_of(each)
        if key is not None:
            assert each in world.echoes.pods_of(key)
            sighting = PodSighting(state=state, request=each.request, origin=each.origin)
            assert world.echoes.key_for(sighting) == key


def by_key(echoes: Iterable[Echo]) -> dict[ReservationKey, Echo]:
    return {each.key: each for each in echoes}
