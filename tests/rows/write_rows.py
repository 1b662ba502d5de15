"""Print documents as the release of the interpreter's path writes them, as JSON.

`rows_of_before.json` holds the output of commits, printed with their code first on the path.
"""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from dataclasses import replace
from typing import Any

import msgspec

from federation.failover.breaker import Breaker
from federation.history.kept_reports import OpenPromise, packed_picture
from federation.history.packed_inputs import INPUTS
from federation.model.cluster import CapacityReport, Cluster
from federation.model.grades import ResourceModel
from federation.model.node_plans import NodePlan
from federation.model.placement import Binding
from federation.model.reasons import stored_reason
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.waiting import Nomination
from federation.plans.plan import Plan, PlanStep
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.decision_inputs import DecisionInputs
from federation.scheduler.fleet import Fleet
from federation.scheduler.plugins.profile import DEFAULT_PROFILES
from federation.scheduler.state import BindingContext
from federation.scheduler.trace import unread_trace
from federation.services.agent_values import AgentFacts
from federation.services.journal import (
    BindingChanged,
    ClusterChanged,
    ReportAdvanced,
    StoredReservations,
)
from federation.services.packed_traces import packed_preview, packed_traces
from federation.services.values import ClusterPromise, ReportEvidence, Verdict
from federation.store.bindings import binding_spec
from federation.store.clusters import cluster_spec
from federation.store.journal import packed_change
from federation.store.reports import packed_report
from federation.store.reservations import packed_reservations
from tests.rows.filled_values import filled

# Documents that the commit wrote without a function of their own.
ENCODED_AS_THEY_WERE = (AgentFacts, Plan, PlanStep, NodePlan, Nomination, Breaker)


def documents() -> dict[str, Any]:
    """Return JSON documents as they are, and other bodies in base 64."""
    binding = filled(Binding, "binding")
    cluster = filled(Cluster, "cluster")
    rows: dict[str, Any] = {kind.__name__: filled(kind) for kind in ENCODED_AS_THEY_WERE}
    rows["binding.spec"] = binding_spec(binding)
    rows["binding.clusters"] = binding.clusters
    rows["cluster.spec"] = cluster_spec(cluster)
    rows["empty binding.spec"] = binding_spec(Binding(name="web"))
    rows["empty cluster.spec"] = cluster_spec(Cluster(name="a"))
    rows |= {f"empty {kind.__name__}": kind() for kind in (AgentFacts, NodePlan, Breaker)}
    rows["report"] = msgspec.Raw(packed_report(filled(CapacityReport)).encode())
    plain: dict[str, Any] = json.loads(msgspec.json.encode(rows))
    packed = {
        kind.__name__: packed_change(filled(kind))[1]
        for kind in (BindingChanged, ClusterChanged, ReportAdvanced)
    }
    packed["reservations"] = packed_reservations(filled(StoredReservations))
    # The commit could not write grade counts there.
    report = replace(filled(CapacityReport), grade_counts={})
    model = filled(ResourceModel)
    promised = [OpenPromise(filled(Outstanding), "d1")]
    packed["picture"] = packed_picture(report, None, model, promised, follows_claims=True)[1]
    inputs, shared = INPUTS.packed(
        DecisionInputs(
            binding=binding,
            fleet=Fleet.of([cluster]),
            profile=next(iter(DEFAULT_PROFILES.by_name.values())),
            surroundings=filled(BindingContext),
        ),
        {"a": stored_reason("no room")},
    )
    packed["kept inputs"] = msgspec.msgpack.encode(inputs)
    verdict = Verdict(
        decision=Decision(
            outcome=Outcome.PARTIAL,
            clusters=binding.clusters,
            remainder=3,
            reason=stored_reason("too few"),
            trace=unread_trace("a warning"),
        ),
        evidence=ReportEvidence(sequences=(3,), age_seconds=(0.5,)),
        promises=(ClusterPromise("a", PromiseCertificate.STRICT, 1, 3, "a note"),),
        inputs=inputs,
    )
    packed["preview"] = packed_preview(binding, verdict, wait=False).body
    packed["trace"] = packed_traces([verdict])[0].body
    bodies = {name.hex(): body for part in shared for name, body in part.bodies.items()}
    return {
        "documents": plain,
        "packed": {name: b64encode(body).decode() for name, body in packed.items()},
        "bodies": {name: b64encode(body).decode() for name, body in bodies.items()},
    }


if __name__ == "__main__":
    json.dump(documents(), sys.stdout, indent=1)
