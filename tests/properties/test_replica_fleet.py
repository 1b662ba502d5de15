"""A fleet known by news answers as the fleet itself, whatever happened between two questions."""

from __future__ import annotations

import pickle
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from federation.codec.estimates import estimates_to_message
from federation.model.cluster import Cluster
from federation.model.errors import InvalidRequest
from federation.model.estimate import EstimateOptions, Source
from federation.model.reservations import Share
from federation.model.workload import NodeClaim, ReplicaRequirements, Toleration, TolerationOperator
from federation.rpc.estimating_worker import Question, answered, split
from federation.services.estimates import replica_fleet
from federation.services.estimates.availability import answer, counted
from federation.services.estimates.replica_fleet import FleetDeltas, ReplicaFleet
from federation.services.fleet.known_estimates import KnownEstimates
from federation.services.journal import BindingChanged, ClusterShares
from lab.fleet import FleetPlan, report_of
from lab.services import fleet_of, make_report

STEPS, CLUSTERS, NOW = 120, 14, 50.0
PLAN = FleetPlan(nodes=60, distinct=3)
SHAPES = (
    ReplicaRequirements(request={"cpu": 10, "memory": 1 << 25}),
    ReplicaRequirements(request={"cpu": 4000}),
    ReplicaRequirements(
        request={"cpu": 300},
        node_claim=NodeClaim(tolerations=(Toleration(operator=TolerationOperator.EXISTS),)),
    ),
    ReplicaRequirements(request={"cpu": 1}, node_claim=NodeClaim(node_selector={"zone": "a"})),
)


class World:
    """A fleet in which things happen, and a copy that gets changes from time to time."""

    def __init__(self, seed: int) -> None:
        self.choices = Random(seed)
        self.owner = fleet_of()
        self.news = FleetDeltas(self.owner)
        self.told, self.known = ReplicaFleet(), KnownEstimates()
        self.number = 1

    def something_happens(self) -> None:
        name = f"c{self.choices.randrange(CLUSTERS)}"
        self.number += 1
        kind = self.choices.choice(["report", "report", "plain", "promise", "promise", "leave"])
        if not self.owner.has(name):
            self.owner.put_cluster(Cluster(name=name, resource_version=self.number))
        elif kind == "leave":
            self.owner.remove(name)
        elif kind == "promise":
            replicas = self.choices.randrange(4)
            shares = (Share(requirements=self.choices.choice(SHAPES[:2]), replicas=replicas),)
            shares_now = ClusterShares(
                version=self.owner.ledger(name).version + 1, shares=shares if replicas else ()
            )
            binding = f"b{self.choices.randrange(3)}"
            self.owner.apply(
                BindingChanged(
                    namespace="n", name=binding, decision="d", clusters={name: shares_now}
                )
            )
        elif kind == "plain":
            self.owner.put_report(name, make_report(self.number, cpu_millis=9000), 1.0)
        else:
            report = report_of(self.choices.randrange(3), self.number, PLAN)
            nodes = replace(report.nodes, total=report.nodes.total + self.choices.randrange(2))
            self.owner.put_report(name, replace(report, nodes=nodes), float(self.number))

    def tell(self, limit: int = 3) -> None:
        while len(self.news):
            self.told.apply(pickle.loads(pickle.dumps(self.news.take(limit))))  # noqa: S301 - our own

    def both_answer(self, **arguments: Any) -> None:
        snapshot, options = self.owner.snapshot, arguments.pop("options", EstimateOptions())
        clusters = arguments.pop("clusters", None)
        answered_here = answer(snapshot, self.owner.known_estimates, SHAPES, clusters, options, NOW)
        question = Question(
            shapes=SHAPES,
            clusters=clusters,
            options=options,
            now=NOW,
            include_cluster_names=True,
            include_upper_bounds=True,
        )
        counts, body = split(answered(self.told, self.known, question))
        expected = estimates_to_message(
            answered_here, include_cluster_names=True, include_upper_bounds=True
        )
        assert body == expected.SerializeToString()
        assert (counts == counted(answered_here)).all()


@pytest.mark.parametrize(("seed", "most_moved"), [(1, 64), (2, 64), (3, 64), (4, 1)])
def test_both_answer_the_same(seed: int, most_moved: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where many come and leave at once, and to who is new and told everything once."""
    monkeypatch.setattr(replica_fleet, "MAX_MOVED", most_moved)
    world = World(seed)
    for step in range(STEPS):
        for _ in range(world.choices.randrange(1, 6)):
            world.something_happens()
        if step % 40 == 39:
            world.news.begin_anew()
            world.told, world.known = ReplicaFleet(), KnownEstimates()
        world.tell(world.choices.choice([1, 3, 100]))
        assert not len(world.news)
        names = world.owner.snapshot.names
        highest = world.choices.choice([Source.POOLS, Source.MODELS])
        world.both_answer(options=EstimateOptions(highest=highest))
        if names:
            world.both_answer(clusters=world.choices.sample(names, min(3, len(names))))
    with pytest.raises(InvalidRequest):
        world.both_answer(clusters=["nowhere"])


def test_what_is_as_it_was_is_not_told_again() -> None:
    world = World(9)
    world.owner.put_cluster(Cluster(name="c0", resource_version=1))
    world.owner.put_report("c0", report_of(1, 2, PLAN), 1.0)
    (first,) = world.news.take(9).clusters
    assert None not in (first.pools, first.outstanding)
    world.owner.put_report("c0", report_of(1, 3, PLAN), 2.0)
    (again,) = world.news.take(9).clusters
    assert again.state.report is not None
    assert again.state.report.sequence == 3
    assert (again.pools, again.outstanding) == (None, None)
