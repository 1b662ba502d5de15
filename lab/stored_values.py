"""Values of every kind that the store packs, for tests and fuzzing."""

from __future__ import annotations

from dataclasses import replace

from federation.model.echoes import Owner
from federation.model.placement import Binding
from federation.model.reservations import PromiseCertificate, Reservation, Share
from federation.model.workload import ReplicaRequirements
from federation.services.journal import (
    BindingChanged,
    ClusterChanged,
    ClusterShares,
    ReportAdvanced,
    StoredReservations,
)
from federation.services.values import ClusterPromise, ReportEvidence, Verdict
from lab.decisions import make_decision
from lab.services import make_report

SMALL = ReplicaRequirements(request={"cpu": 250})
OWNER = Owner("apps/v1", "Deployment", "shop", "web")
DECIDED = BindingChanged(
    namespace="shop",
    name="web",
    owner=OWNER,
    decision="d1",
    clusters={"a": ClusterShares(version=7, shares=(Share(SMALL, 2),), adopted={"": 1})},
)
DELETED = ClusterChanged(cluster="a", deleted=True, emptied=4)
ADVANCED = ReportAdvanced(cluster="a", version=8, epoch=2, sequence=3)
HELD = StoredReservations(
    namespace="shop",
    name="web",
    owner=OWNER,
    reservations=(Reservation("shop/web", "a", SMALL, 2, ("d1",), finished=1),),
)
REPORT = replace(make_report(3), echoes=())
VERDICT = Verdict(
    decision=make_decision(("a", 4)),
    evidence=ReportEvidence(sequences=(3, 0), age_seconds=(0.5, 0.0)),
    promises=(ClusterPromise("a", PromiseCertificate.STRICT, 1, 3, note="a little"),),
)
PLAIN = VERDICT.decision.to_plain()
BINDING = Binding(name="web", namespace="shop", replicas=4)
