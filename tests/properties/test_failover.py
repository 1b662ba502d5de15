"""Failover in a fleet with virtual time, whatever falls silent, comes back, or is frozen."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from federation.failover.breaker import Breaker, BreakerLimits, ClusterOrigin, judged
from federation.failover.evictions import Ending, Progress, ending_of, taken_back
from federation.failover.moves import eviction_tasks, is_ordered_away, leaves_at, moves_of
from federation.failover.rate import MINUTE, MoveAllowance, cost_of
from federation.failover.silence import MAX_DEAF_SECONDS, Silences
from federation.model.cluster import UNREACHABLE_KEY, Cluster, Taint, TaintEffect
from federation.model.placement import (
    Binding,
    OnClusterLoss,
    OnClusterReturn,
    Placement,
    ReplicaScheduling,
    SchedulingType,
)
from federation.model.workload import TargetCluster, Toleration, TolerationOperator

STALE_SECONDS, LOST_SECONDS, EVICTION_SECONDS = 3.0, 20.0, 30.0
LIMITS = BreakerLimits(clusters=3, percent=30.0)
NAMES = tuple(f"c{number}" for number in range(8))
ROOM = 40
PERCENT_A_MINUTE = 50
DIVIDED = ReplicaScheduling(type=SchedulingType.DIVIDED)
DUPLICATED = ReplicaScheduling(type=SchedulingType.DUPLICATED)
# Added by the model, in whole seconds and tenths.
ERROR = 1e-6


class Failover(RuleBasedStateMachine):
    """The same steps as the service takes, over a fleet whose truth is known.

    Where a binding is on paper is ``Binding.clusters``; ``pods`` is what really runs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.clusters = {
            name: Cluster(name=name, region=f"r{number % 2}") for number, name in enumerate(NAMES)
        }
        self.speaking = dict.fromkeys(NAMES, True)
        self.heard_at = dict.fromkeys(NAMES, self.now)
        # The last time at which nobody listened.
        self.deaf_at = self.now
        self.bindings: dict[str, Binding] = {}
        self.pods: Counter[tuple[str, str]] = Counter()
        self.breaker = Breaker()
        self.moved: list[tuple[float, float]] = []
        self.out_of_time: set[str] = set()
        self.without_nodes: set[str] = set()
        # Where bindings were in the beginning, and what they had to leave for people's taints.
        self.began: dict[str, tuple[TargetCluster, ...]] = {}
        self.emptied: set[tuple[str, str]] = set()
        self._begin()

    def _begin(self) -> None:
        """A control plane starts, or takes over."""
        self.silences = Silences.begun(self.now)
        self.allowance = MoveAllowance(at=self.now)
        self.heard_since_start: set[str] = set()
        self.deaf_at = self.now

    @initialize(sizes=st.lists(st.integers(1, 12), min_size=1, max_size=10), data=st.data())
    def deploy(self, sizes: list[int], data: st.DataObject) -> None:
        for number, replicas in enumerate(sizes):
            name = f"b{number}"
            scheduling = data.draw(st.sampled_from([DIVIDED, DUPLICATED]))
            max_size = 1 if scheduling is DIVIDED else 3
            places = st.lists(st.sampled_from(NAMES), min_size=1, max_size=max_size, unique=True)
            where = sorted(data.draw(places))
            seconds = data.draw(st.sampled_from([None, 0, 5]))
            tolerations = (
                (
                    Toleration(
                        key=UNREACHABLE_KEY,
                        operator=TolerationOperator.EXISTS,
                        toleration_seconds=seconds,
                    ),
                )
                if data.draw(st.booleans())
                else ()
            )
            self.bindings[name] = Binding(
                name=name,
                replicas=replicas,
                priority=data.draw(st.integers(0, 2)),
                clusters=tuple(TargetCluster(name=cluster, replicas=replicas) for cluster in where),
                placement=Placement(tolerations=tolerations, replica_scheduling=scheduling),
                on_cluster_loss=data.draw(st.sampled_from(OnClusterLoss)),
                on_cluster_return=data.draw(st.sampled_from(OnClusterReturn)),
            )
            self.pods.update({(name, cluster): replicas for cluster in where})
            self.began[name] = self.bindings[name].clusters

    @rule(names=st.sets(st.sampled_from(NAMES), min_size=1, max_size=len(NAMES)))
    def fall_silent(self, names: set[str]) -> None:
        self.speaking.update(dict.fromkeys(names, False))

    @rule(names=st.sets(st.sampled_from(NAMES), min_size=1, max_size=len(NAMES)))
    def come_back(self, names: set[str]) -> None:
        self.speaking.update(dict.fromkeys(names, True))

    @rule(name=st.sampled_from(NAMES), is_tainted=st.booleans())
    def taint(self, name: str, is_tainted: bool) -> None:
        cluster = self.clusters[name]
        ours = tuple(taint for taint in cluster.taints if taint.key == UNREACHABLE_KEY)
        theirs = Taint(key="empty", effect=TaintEffect.NO_EXECUTE, time_added=self.now)
        self.clusters[name] = replace(cluster, taints=(*ours, theirs) if is_tainted else ours)

    @rule(names=st.sets(st.sampled_from(NAMES)))
    def have_no_nodes(self, names: set[str]) -> None:
        """New pods find no node in these clusters from now on; what runs there runs on."""
        self.without_nodes = names

    @rule(name=st.sampled_from(NAMES), seconds=st.integers(1, 90))
    def lose_where_no_other_has_nodes(self, name: str, seconds: int) -> None:
        """Pods in a lost cluster run on, and nothing replaces them."""
        self.have_no_nodes(set(NAMES) - {name})
        self.fall_silent({name})
        self.pass_time(seconds)
        self.come_back({name})
        self.pass_time(5)

    @rule()
    def freeze(self) -> None:
        self.breaker = self.breaker.frozen("admin", self.now, "because")

    @rule()
    def resume(self) -> None:
        if self.breaker.freeze is not None:
            self.breaker = self.breaker.resumed(self.silences.silent.keys())

    @rule(seconds=st.floats(MAX_DEAF_SECONDS + 1, 1000))
    def sleep(self, seconds: float) -> None:
        """The machine is suspended: what it did not hear nobody heard."""
        self.now += seconds
        self.deaf_at = self.now
        self._step(could_hear=True)

    @rule(seconds=st.integers(int(MAX_DEAF_SECONDS) + 2, 60))
    def lose_database(self, seconds: int) -> None:
        cut_off_at = self.now
        for _ in range(seconds):
            self.now += 1
            self._step(could_hear=False, could_hear_at=cut_off_at)
        self.deaf_at = self.now

    @rule()
    def restart(self) -> None:
        """Nothing is kept but what is in the database."""
        self._begin()

    @rule()
    def be_well_for_long(self) -> None:
        """When all clusters speak and nobody is kept from anything, no eviction is left, and what
        is Duplicated is where it was, but where people wanted it gone.
        """
        self.come_back(set(NAMES))
        self.have_no_nodes(set())
        self.resume()
        for name in NAMES:
            self.taint(name, is_tainted=False)
        self.pass_time(int(EVICTION_SECONDS + MINUTE))
        for key, binding in self.bindings.items():
            assert not binding.eviction_tasks
            if is_duplicated(binding):
                names = {target.name for target in self.began[key]}
                gone = {name for name in names if (key, name) in self.emptied}
                assert {target.name for target in binding.clusters} == names - gone

    @rule(seconds=st.integers(1, 90))
    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1
            self._step(could_hear=True)

    def _step(self, *, could_hear: bool, could_hear_at: float | None = None) -> None:
        """One look and one piece of work, and what the members do meanwhile."""
        for name in NAMES:
            if self.speaking[name] and could_hear:
                self.heard_at[name] = self.now
                self.heard_since_start.add(name)
        stale = [n for n in NAMES if self.now - self.heard_at[n] > STALE_SECONDS]
        if not could_hear:
            stale = [name for name in stale if name in self.silences.silent]
        self.silences = self.silences.looked(
            self.now,
            stale,
            stale_seconds=STALE_SECONDS,
            could_hear_at=self.now if could_hear_at is None else could_hear_at,
        )
        if not could_hear:
            # Nothing can be written either.
            return
        heard = {n for n in NAMES if n not in stale and n in self.heard_since_start}
        self.breaker = judged(
            self.breaker,
            self.silences,
            {name: ClusterOrigin(region=cluster.region) for name, cluster in self.clusters.items()},
            heard=heard,
            lost=[n for n, cluster in self.clusters.items() if cluster.lost_since is not None],
            limits=LIMITS,
        )
        self.allowance = self.allowance.later(self.now)
        if self.breaker.freeze is None:
            self._lose()
        self._find_again(heard)
        self._run_pods()
        self._end_evictions(heard)
        if self.breaker.freeze is None:
            self._move(stale)

    def _lose(self) -> None:
        for name in self.silences.lost(LOST_SECONDS):
            if self.clusters[name].lost_since is None:
                # Somebody listened all the time, and nobody heard it.
                silent_since = max(self.heard_at[name], self.deaf_at)
                assert self.now - silent_since >= LOST_SECONDS - ERROR
                taint = Taint(
                    key=UNREACHABLE_KEY, effect=TaintEffect.NO_EXECUTE, time_added=self.now
                )
                cluster = self.clusters[name]
                self.clusters[name] = replace(cluster, taints=(*cluster.taints, taint))

    def _find_again(self, heard: set[str]) -> None:
        for name in heard:
            assert self.now - self.heard_at[name] <= STALE_SECONDS
            cluster = self.clusters[name]
            taints = tuple(taint for taint in cluster.taints if taint.key != UNREACHABLE_KEY)
            self.clusters[name] = replace(cluster, taints=taints)

    def _run_pods(self) -> None:
        """Members that can be reached run what they are given, and end what they have to."""
        for name in NAMES:
            if not self.speaking[name]:
                continue
            for key, binding in self.bindings.items():
                desired = sum(target.replicas for target in binding.clusters if target.name == name)
                desired += sum(
                    task.replicas for task in binding.eviction_tasks if task.from_cluster == name
                )
                if name in self.without_nodes:
                    desired = min(desired, self.pods[key, name])
                self.pods[key, name] = desired

    def _end_evictions(self, heard: set[str]) -> None:
        for key, binding in self.bindings.items():
            for task in binding.eviction_tasks:
                name = task.from_cluster
                replicas = {target.name: target.replicas for target in task.clusters_before}
                progress = Progress(
                    outstanding=sum(
                        max(0, target.replicas - self.pods[key, target.name])
                        for target in binding.clusters
                    ),
                    started=sum(
                        max(0, self.pods[key, target.name] - replicas.get(target.name, 0))
                        for target in binding.clusters
                    ),
                )
                ending = ending_of(
                    task,
                    binding,
                    progress,
                    self.now,
                    is_known=True,
                    is_silent=name not in heard,
                    is_back=name in heard and leaves_at(binding, self.clusters[name]) > self.now,
                    is_ordered=is_ordered_away(binding, self.clusters[name], self.now),
                    max_seconds=EVICTION_SECONDS,
                )
                if ending is Ending.TAKEN_BACK:
                    cost = cost_of(task.replicas, self._rate())
                    allowance = self.allowance.taken(cost)
                    if self.breaker.freeze is None and allowance is not None:
                        self.allowance = allowance
                        self.moved.append((self.now, cost))
                        self.bindings[key] = taken_back(binding, task)
                        break
                elif ending is not None:
                    if ending is Ending.DEADLINE:
                        assert is_ordered_away(binding, self.clusters[name], self.now)
                        self.out_of_time.add(key)
                    if is_duplicated(binding):
                        # Only what people's taints say is for good.
                        assert self.clusters[name].taints
                        self.emptied.add((key, name))
                    left_tasks = tuple(e for e in self.bindings[key].eviction_tasks if e != task)
                    self.bindings[key] = replace(self.bindings[key], eviction_tasks=left_tasks)

    def _move(self, stale: list[str]) -> None:
        for move in moves_of(self.bindings.values(), self.clusters):
            if move.due_at > self.now:
                continue
            key, binding = move.binding.name, move.binding
            leaves = {
                target.name: "taint"
                for target in binding.clusters
                if leaves_at(binding, self.clusters[target.name]) <= self.now
            }
            placed = self._placed(binding, leaves, stale)
            if placed is None:
                continue
            cost = cost_of(move.replicas(self.clusters, self.now), self._rate())
            allowance = self.allowance.taken(cost)
            if allowance is None:
                return
            assert self.breaker.freeze is None
            self.allowance = allowance
            self.moved.append((self.now, cost))
            tasks = eviction_tasks(binding, leaves, placed, self.now)
            self.bindings[key] = replace(binding, clusters=placed, eviction_tasks=tasks)

    def _placed(
        self, binding: Binding, leaves: dict[str, str], stale: list[str]
    ) -> tuple[TargetCluster, ...] | None:
        """Return clusters where it fits as a whole, with all that is promised; None: none."""
        staying = [target for target in binding.clusters if target.name not in leaves]
        if is_duplicated(binding):
            return tuple(staying) or None
        lacking = binding.replicas - sum(target.replicas for target in staying)
        evicted = {task.from_cluster for task in binding.eviction_tasks}
        for name in NAMES:
            is_open = not self.clusters[name].taints and name not in stale
            if is_open and name not in evicted and lacking <= ROOM - self._promised(name):
                own = sum(target.replicas for target in staying if target.name == name)
                elsewhere = [target for target in staying if target.name != name]
                return (*elsewhere, TargetCluster(name=name, replicas=lacking + own))
        return None

    def _promised(self, name: str) -> int:
        return sum(
            target.replicas
            for binding in self.bindings.values()
            for target in binding.clusters
            if target.name == name
        )

    def _rate(self) -> float:
        fleet = sum(binding.replicas for binding in self.bindings.values())
        return fleet * PERCENT_A_MINUTE / 100

    @invariant()
    def no_minute_sees_more_moved_than_the_rate(self) -> None:
        for at, _ in self.moved:
            within = sum(cost for then, cost in self.moved if at <= then < at + MINUTE)
            assert within <= MINUTE + ERROR

    @invariant()
    def nothing_is_lost_on_the_way(self) -> None:
        for key, binding in self.bindings.items():
            now = {target.name: target.replicas for target in binding.clusters}
            if not is_duplicated(binding):
                assert sum(now.values()) == binding.replicas
                continue
            assert set(now.values()) == {binding.replicas}
            evicted = {task.from_cluster for task in binding.eviction_tasks}
            for target in self.began[key]:
                assert target.name in now.keys() | evicted or (key, target.name) in self.emptied

    @invariant()
    def as_many_run_as_before(self) -> None:
        """But where people wanted it gone, and a replacement did not come up in time."""
        for key, binding in self.bindings.items():
            running = sum(self.pods[key, name] for name in NAMES)
            assert running >= binding.replicas or key in self.out_of_time

    @invariant()
    def who_waits_for_clusters_is_never_moved_by_loss(self) -> None:
        for binding in self.bindings.values():
            if binding.on_cluster_loss is OnClusterLoss.WAIT:
                assert all(UNREACHABLE_KEY not in task.message for task in binding.eviction_tasks)


def is_duplicated(binding: Binding) -> bool:
    return binding.placement.replica_scheduling == DUPLICATED


def test_time_alone_takes_nothing_away() -> None:
    """The model's own steps, along a way that is rarely drawn: nothing replaces what runs."""
    model = Failover()
    clusters = (TargetCluster(name="c0", replicas=3),)
    placement = Placement(replica_scheduling=DIVIDED)
    model.bindings["b0"] = Binding(name="b0", replicas=3, clusters=clusters, placement=placement)
    model.pods["b0", "c0"], model.began["b0"] = 3, clusters
    model.have_no_nodes(set(NAMES) - {"c0"})
    model.pass_time(3)
    model.fall_silent({"c0"})
    model.pass_time(int(LOST_SECONDS + EVICTION_SECONDS + MINUTE))
    assert [task.from_cluster for task in model.bindings["b0"].eviction_tasks] == ["c0"]
    model.come_back({"c0"})
    model.pass_time(int(MINUTE))
    assert model.bindings["b0"].clusters == clusters
    assert model.pods["b0", "c0"] == 3


TestFailover = Failover.TestCase
TestFailover.settings = settings(max_examples=30, stateful_step_count=20)
