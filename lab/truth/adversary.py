"""An adversary for strict promises: who places pods and chooses their order so that one is left.

It looks for places, each with room when its pod comes, after which no node takes some promised
pod. What it finds is proof that no sound rule had promised all of that; that it finds nothing is
no proof of anything. Must not know how promises are made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from federation.model.cluster import Cluster
from federation.scheduler.fleet import Fleet
from lab.truth.odds import Moment, moment_of
from lab.truth.plans import Answered, Found, Plan, asked_of, shares_of
from lab.truth.streams import CPU, MEMORY, ROWS, Int64Array, Wanted
from lab.truth.virtual import VirtualMember, VirtualStudy

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]

CPU_ROW, MEMORY_ROW = ROWS.index(CPU), ROWS.index(MEMORY)
# By how many nodes more or less are blocked by cpu than both supplies suggest.
SHIFTS = (0, -3, 3)
# Rates of cpu, memory and pods at which all that blocks nodes is compared with all that is needed.
RATES = (
    *((1.0, 1.0, 1.0), (1.0, 0.5, 1.0), (0.5, 1.0, 1.0), (1.0, 0.25, 1.0), (0.25, 1.0, 1.0)),
    *((1.0, 1.0, 0.25), (1.0, 1.0, 0.0625)),
)


class Placing(NamedTuple):
    """So many pods of a kind on the node at a place."""

    kind: int
    node: int
    pods: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stranding:
    """An order in which all these find room, and then a pod of the kind ``left`` finds none."""

    kinds: tuple[Wanted, ...]
    placed: tuple[Placing, ...]
    left: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Coming:
    """The pods on their way, by kind (axis g): what one takes, where it may be, how many."""

    kinds: tuple[Wanted, ...]
    asked_rg: Int64Array
    takes_gn: BoolArray
    count_g: Int64Array

    @classmethod
    def of(cls, moment: Moment) -> _Coming:
        kinds: dict[tuple[object, ...], Wanted] = {}
        counts: dict[tuple[object, ...], int] = {}
        for wanted, replicas in moment.coming:
            labels = tuple(sorted(wanted.labels.items()))
            key = (*asked_of(wanted).tolist(), labels, wanted.tolerated)
            kinds.setdefault(key, wanted)
            counts[key] = counts.get(key, 0) + replicas
        every = tuple(kinds.values())
        takes_gn = [[kind.takes(node) for node in moment.nodes] for kind in every]
        return cls(
            kinds=every,
            asked_rg=np.array([asked_of(kind) for kind in every]).T,
            takes_gn=np.array(takes_gn, dtype=np.bool_),
            count_g=np.array(list(counts.values()), dtype=np.int64),
        )


def stranding(moment: Moment, random: np.random.Generator) -> Stranding | None:
    """How one of the pods on their way is left without a node; None where nothing was found."""
    if not moment.coming:
        return None
    coming = _Coming.of(moment)
    size_g = (coming.asked_rg / coming.asked_rg.max(axis=1, keepdims=True)).sum(axis=0)
    for victim in np.argsort(-size_g, kind="stable").tolist():
        placed = _against(coming, moment.free_rn, victim, random)
        if placed is not None:
            return Stranding(kinds=coming.kinds, placed=placed, left=victim)
    return None


def stands(moment: Moment, found: Stranding) -> bool:
    """Whether all that is placed has room in its turn, is no more than was on its way, and leaves
    a pod that no node takes: one pod after the other.
    """
    coming = _Coming.of(moment)
    free, left_g = moment.free_rn.copy(), coming.count_g.copy()
    for kind, node, pods in found.placed:
        for _ in range(pods):
            free[:, node] -= coming.asked_rg[:, kind]
            left_g[kind] -= 1
            if (free[:, node] < 0).any() or not coming.takes_gn[kind, node]:
                return False
    fits_n = (free >= coming.asked_rg[:, found.left][:, np.newaxis]).all(axis=0)
    nowhere = not (fits_n & coming.takes_gn[found.left]).any()
    return nowhere and left_g.min() >= 0 and left_g[found.left] > 0


def room_against(wanted: Wanted, moment: Moment, random: np.random.Generator) -> int:
    """The most replicas that can be promised beside what is coming without a stranding that is
    found.
    """
    free_rn = moment.free_rn[:, [wanted.takes(node) for node in moment.nodes]]
    fits = (np.maximum(free_rn, 0) // asked_of(wanted)[:, np.newaxis]).min(axis=0)
    high = min(wanted.replicas, int(fits.sum())) + 1
    low = 0
    middle = high - 1
    while low < high - 1:
        if stranding(moment.with_more(wanted, middle), random) is None:
            low = middle
        else:
            high = middle
        middle = (low + high) // 2
    return low


def _against(
    coming: _Coming, free_rn: Int64Array, victim: int, random: np.random.Generator
) -> tuple[Placing, ...] | None:
    """Where the others go, so that no node takes the last pod of the victim's kind."""
    victim_r1 = coming.asked_rg[:, [victim]]
    is_open_n = (free_rn >= victim_r1).all(axis=0) & coming.takes_gn[victim]
    if not is_open_n.any():
        return ()
    left_g = coming.count_g.copy()
    left_g[victim] -= 1
    (there_g,) = np.nonzero((left_g > 0) & coming.takes_gn[:, is_open_n].any(axis=1))
    (open_n,) = np.nonzero(is_open_n)
    blocking = _Blocking(
        free_rn=free_rn[:, open_n],
        victim_r=victim_r1[:, 0],
        asked_rg=coming.asked_rg[:, there_g],
        takes_gn=coming.takes_gn[np.ix_(there_g, open_n)],
        count_g=left_g[there_g],
    )
    taken_gn = blocking.found(random)
    if taken_gn is None:
        return None
    return tuple(
        Placing(int(there_g[g]), int(open_n[n]), int(taken_gn[g, n]))
        for g, n in zip(*np.nonzero(taken_gn), strict=True)
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Blocking:
    """Nodes (axis n) that take the victim, and pods of kinds (axis g) to be put in its way.

    A node is blocked once less of some resource is left there than the victim asks for.
    """

    free_rn: Int64Array
    victim_r: Int64Array
    asked_rg: Int64Array
    takes_gn: BoolArray
    count_g: Int64Array

    def found(self, random: np.random.Generator) -> Int64Array | None:
        """Pods by kind and node that block all nodes."""
        if not len(self.count_g) or self._is_out_of_reach():
            return None
        plans = list(self._plans(random))
        by_cpu_tn = np.array([by_cpu_n for by_cpu_n, _, _ in plans])
        turns_tn = np.array([turn_n for _, turn_n, _ in plans])
        kinds_tmg = np.array([kinds_mg for _, _, kinds_mg in plans])
        return _Tries(self, len(plans)).run(by_cpu_tn, turns_tn, kinds_tmg)

    @property
    def need_rn(self) -> Int64Array:
        """What is to be taken of each resource until a node is blocked by it."""
        return self.free_rn - self.victim_r[:, np.newaxis] + 1

    def _is_out_of_reach(self) -> bool:
        """Whether, at some rates, all pods together are not worth all that is needed."""
        victim_r1 = self.victim_r[:, np.newaxis]
        for rates in RATES:
            rate_r1 = np.array(rates)[:, np.newaxis] / victim_r1
            needed = (rate_r1 * self.need_rn).min(axis=0).sum()
            if needed > (self.count_g * (rate_r1 * self.asked_rg).max(axis=0)).sum():
                return True
        return False

    def _plans(
        self, random: np.random.Generator
    ) -> Iterator[tuple[BoolArray, npt.NDArray[np.intp], list[list[int]]]]:
        """Which nodes to block by cpu, in which order, and by which kinds: those for the nodes
        blocked by memory, then those for the others.

        Kinds that ask for much cpu block by that, the others by memory, wherever one draws the
        line; so many nodes are blocked by each that both suffice alike.
        """
        need_rn, amount_rg = self.need_rn, self.count_g * self.asked_rg
        steep_g = self.asked_rg[CPU_ROW] / self.asked_rg[MEMORY_ROW]
        kinds = np.argsort(-steep_g, kind="stable").tolist()
        nodes = np.argsort(need_rn[CPU_ROW] / need_rn[MEMORY_ROW], kind="stable")
        spent_rn = np.pad(np.cumsum(need_rn[:, nodes], axis=1), ((0, 0), (1, 0)))
        for line in range(len(kinds) + 1):
            for_cpu, for_memory = kinds[:line], kinds[line:]
            spare_cpu = amount_rg[CPU_ROW, for_cpu].sum() - spent_rn[CPU_ROW]
            rest_memory = spent_rn[MEMORY_ROW, -1] - spent_rn[MEMORY_ROW]
            spare_memory = amount_rg[MEMORY_ROW, for_memory].sum() - rest_memory
            spare = np.minimum(
                spare_cpu / self.victim_r[CPU_ROW], spare_memory / self.victim_r[MEMORY_ROW]
            )
            cpu_first = sorted(for_cpu, key=lambda g: -self.asked_rg[CPU_ROW, g])
            cpu_first += sorted(for_memory, key=lambda g: -steep_g[g])
            memory_first = sorted(for_memory, key=lambda g: -self.asked_rg[MEMORY_ROW, g])
            memory_first += sorted(for_cpu, key=lambda g: steep_g[g])
            for shift in SHIFTS:
                by_cpu_n = np.zeros(len(nodes), dtype=np.bool_)
                by_cpu_n[nodes[: max(int(spare.argmax()) + shift, 0)]] = True
                row_n = np.where(by_cpu_n, CPU_ROW, MEMORY_ROW)
                need_n = need_rn[row_n, np.arange(len(nodes))] / self.victim_r[row_n]
                for turn_n in (
                    np.argsort(-need_n),
                    np.argsort(need_n),
                    random.permutation(len(nodes)),
                ):
                    yield by_cpu_n, turn_n, [memory_first, cpu_first]


class _Tries:
    """Many tries at once (axis t): nodes are blocked by turns, each by as few pods as may be."""

    def __init__(self, blocking: _Blocking, tries: int) -> None:
        self._blocking = blocking
        self._t = np.arange(tries)
        self._left_tg = np.tile(blocking.count_g, (tries, 1))
        self._taken_tgn = np.zeros((tries, *blocking.takes_gn.shape), dtype=np.int64)

    def run(
        self, by_cpu_tn: BoolArray, turns_tn: npt.NDArray[np.intp], kinds_tmg: npt.NDArray[np.intp]
    ) -> Int64Array | None:
        """The pods of the first try that blocks all nodes."""
        is_open_t = np.ones(len(self._t), dtype=np.bool_)
        for turn in range(turns_tn.shape[1]):
            node_t = turns_tn[:, turn]
            by_cpu_t = by_cpu_tn[self._t, node_t]
            is_open_t = is_open_t & self._block(
                node_t, by_cpu_t, kinds_tmg[self._t, by_cpu_t.astype(int)]
            )
            if not is_open_t.any():
                return None
        found: Int64Array = self._taken_tgn[int(is_open_t.argmax())]
        return found

    def _block(
        self,
        node_t: npt.NDArray[np.intp],
        by_cpu_t: BoolArray,
        kinds_tg: npt.NDArray[np.intp],
    ) -> BoolArray:
        """Block one node in each try; whether that was done.

        The largest pods first, and no more than is needed; then the smallest one that is enough;
        then whatever has room.
        """
        victim_r, asked_rg = self._blocking.victim_r, self._blocking.asked_rg
        free_rt: Int64Array = self._blocking.free_rn[:, node_t]
        row_t = np.where(by_cpu_t, CPU_ROW, MEMORY_ROW)
        for kind_t in kinds_tg.T:
            need_t = free_rt[row_t, self._t] - victim_r[row_t] + 1
            most_t = np.maximum(need_t, 0) // asked_rg[row_t, kind_t]
            free_rt = self._put(free_rt, node_t, kind_t, most_t)
        for kind_t in kinds_tg.T[::-1]:
            is_enough_t = _blocked(free_rt - asked_rg[:, kind_t], victim_r)
            free_rt = self._put(free_rt, node_t, kind_t, is_enough_t.astype(np.int64))
        for kind_t in kinds_tg.T:
            free_rt = self._put(free_rt, node_t, kind_t, self._blocking.count_g[kind_t])
        return _blocked(free_rt, victim_r)

    def _put(
        self,
        free_rt: Int64Array,
        node_t: npt.NDArray[np.intp],
        kind_t: npt.NDArray[np.intp],
        most_t: Int64Array,
    ) -> Int64Array:
        """What is free once up to so many pods are there, of a kind and on a node of each try;
        none where it is blocked already.
        """
        asked_rt = self._blocking.asked_rg[:, kind_t]
        fits_t: Int64Array = np.asarray((free_rt // asked_rt).min(axis=0))
        pods_t = np.minimum(np.minimum(most_t, fits_t), self._left_tg[self._t, kind_t])
        is_open_t = ~_blocked(free_rt, self._blocking.victim_r)
        pods_t = pods_t * (is_open_t & self._blocking.takes_gn[kind_t, node_t])
        self._left_tg[self._t, kind_t] -= pods_t
        self._taken_tgn[self._t, kind_t, node_t] += pods_t
        return free_rt - asked_rt * pods_t


def _blocked(free_rt: Int64Array, victim_r: Int64Array) -> BoolArray:
    """Where less of some resource is free than the victim asks for."""
    blocked_t: BoolArray = np.asarray((free_rt < victim_r[:, np.newaxis]).any(axis=0))
    return blocked_t


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenged:
    """What strict promised in a study, and of how many refused bindings the adversary left a pod
    without a node, however they were divided.
    """

    found: Found
    broken: int


class Unbroken:
    """Promises whatever the adversary cannot break: no less than any sound rule may promise of the
    same workload at the same time.
    """

    def __init__(self, names: Sequence[str], seed: int) -> None:
        self._fleet = Fleet.of(Cluster(name=name) for name in names)
        self._random = np.random.default_rng(seed)
        self._moments: dict[str, Moment] = {}

    def reported(self, members: Mapping[str, VirtualMember], answered: Sequence[Answered]) -> None:
        self._moments = {name: moment_of(member, answered) for name, member in members.items()}

    def decide(self, wanted: Wanted, *, looks_again: bool) -> Mapping[str, int] | None:
        del looks_again
        room = [
            room_against(wanted, self._moments[name], self._random) for name in self._fleet.names
        ]
        shares = shares_of(wanted.binding(None), self._fleet, room)
        for name, replicas in shares.items():
            self._moments[name] = self._moments[name].with_more(wanted, replicas)
        return shares or None


def challenged(plan: Plan) -> Challenged:
    """Strict's own refusals, put before the adversary."""
    random = np.random.default_rng(plan.seed)
    broken: list[Wanted] = []

    def look(wanted: Wanted) -> None:
        room = 0
        for member in study.members.values():
            room += room_against(wanted, moment_of(member, study.answered), random)
        if room < wanted.replicas:
            broken.append(wanted)

    study = VirtualStudy(plan, on_refused=look)
    return Challenged(found=study.run(), broken=len(broken))


def found_unbroken(plan: Plan) -> Found:
    """The same stream, where everything is promised that the adversary cannot break."""
    names = [f"member{number}" for number in range(1, len(plan.nodes) + 1)]
    return VirtualStudy(plan, Unbroken(names, plan.seed)).run()
