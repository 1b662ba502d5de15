"""Rows that older commits wrote are read with every field, none of which has its default."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from federation.failover.breaker import Breaker
from federation.history.kept_reports import OpenPromise, unpacked_picture
from federation.history.packed_inputs import InputReader, KeptInputs
from federation.model.cluster import CapacityReport, Cluster
from federation.model.grades import DEFAULT_MODEL, ResourceModel
from federation.model.node_plans import NodePlan
from federation.model.placement import Binding, binding_key
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.waiting import Nomination
from federation.plans.plan import Plan, PlanStep
from federation.scheduler.plugins.profile import DEFAULT_PROFILES
from federation.scheduler.state import BindingContext
from federation.scheduler.trace import Trace
from federation.services.agent_values import AgentFacts
from federation.services.journal import (
    BindingChanged,
    ClusterChanged,
    ReportAdvanced,
    StoredReservations,
)
from federation.services.packed_traces import unpacked_preview, unpacked_trace
from federation.services.values import ClusterPromise, ReportEvidence
from federation.store.journal import change_of
from federation.store.reports import ReportReader
from federation.store.reservations import reservations_of
from tests.rows.filled_values import filled
from tests.rows.row_structs import ROWS

FIXTURE = Path(__file__).parents[2] / "rows" / "rows_of_before.json"
OF_COMMITS: Mapping[str, Any] = json.loads(FIXTURE.read_text(encoding="utf-8"))
OLDEST = OF_COMMITS["fe7cb724"]["documents"]
WHOLE_BINDING = filled(Binding, "binding")
# Fields that are no part of the spec, or that the commit did not have.
SPEC = replace(
    WHOLE_BINDING,
    namespace="",
    uid="",
    generation=1,
    resource_version=0,
    clusters=(),
    fresh=False,
    last_scheduled_time=None,
    observed_affinity="",
)
WHOLE_CLUSTER = filled(Cluster, "cluster")
CLUSTER_SPEC = replace(
    WHOLE_CLUSTER, uid="", generation=1, resource_version=0, api_enablements=None, ready=True
)


def test_specs_of_bindings_are_read() -> None:
    stored = {**OLDEST["binding.spec"], "name": WHOLE_BINDING.name}
    assert ROWS["BindingRow"].read(stored) == replace(
        SPEC, is_unsettled=False, clusters_are_stated=False
    )
    stored = {**OF_COMMITS["6f0e0cd6"]["documents"]["binding.spec"], "name": WHOLE_BINDING.name}
    assert ROWS["BindingRow"].read(stored) == SPEC
    assert ROWS["TargetRow"].read_all(OLDEST["binding.clusters"]) == WHOLE_BINDING.clusters


def test_specs_of_clusters_are_read() -> None:
    stored = {**OLDEST["cluster.spec"], "name": WHOLE_CLUSTER.name}
    assert ROWS["KeptClusterRow"].read(stored) == CLUSTER_SPEC


@pytest.mark.parametrize("commit", OF_COMMITS)
def test_specs_with_nothing_stated_are_read(commit: str) -> None:
    documents = OF_COMMITS[commit]["documents"]
    stored = {**documents["empty binding.spec"], "name": "web"}
    assert ROWS["BindingRow"].read(stored) == Binding(name="web")
    if "empty cluster.spec" in documents:
        stored = {**documents["empty cluster.spec"], "name": "a"}
        assert ROWS["KeptClusterRow"].read(stored) == Cluster(name="a")


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        ("FactsRow", AgentFacts),
        ("NodePlanRow", NodePlan),
        ("NominationRow", Nomination),
        ("BreakerRow", Breaker),
        ("PlanRow", Plan),
        ("PlanStepRow", PlanStep),
    ],
)
def test_documents_are_read(row: str, kind: Any) -> None:
    rows = ROWS[row]
    assert rows.read(OLDEST[kind.__name__]) == filled(kind)
    if f"empty {kind.__name__}" in OLDEST:
        assert rows.read(OLDEST[f"empty {kind.__name__}"]) == kind()


def packed(name: str, commit: str = "fe7cb724") -> bytes:
    return b64decode(OF_COMMITS[commit]["packed"][name])


def test_changes_of_the_journal_are_read() -> None:
    for kind, model in (
        ("binding", BindingChanged),
        ("cluster", ClusterChanged),
        ("report", ReportAdvanced),
    ):
        change = replace(filled(model), nonce=7)
        assert change_of(kind, packed(model.__name__), 7) == change


def test_reservations_are_read() -> None:
    stored = filled(StoredReservations)
    row = SimpleNamespace(
        namespace=stored.namespace,
        name=stored.name,
        uid=stored.uid,
        lease_expires_at=None,
        body=packed("reservations"),
    )
    (read,) = reservations_of([cast(Any, row)])
    key = binding_key(stored.namespace, stored.name)
    # That commit knew of one growth.
    reservations = tuple(one._replace(binding=key, earlier=()) for one in stored.reservations)
    assert read == replace(stored, reservations=reservations, lease_expires_at=None)


def test_reports_are_read() -> None:
    assert ReportReader().read(json.dumps(OLDEST["report"])) == filled(CapacityReport)


@pytest.mark.parametrize("commit", OF_COMMITS)
def test_kept_reports_are_read(commit: str) -> None:
    picture = unpacked_picture(packed("picture", commit))
    assert picture.model == filled(ResourceModel)
    assert picture.follows_claims
    assert picture.promised == (OpenPromise(filled(Outstanding), "d1"),)
    assert picture.report == replace(
        filled(CapacityReport),
        snapshot_time=0.0,
        picture_age_seconds=0.0,
        pools=None,
        echoes=(),
        grade_counts={},
    )


@pytest.mark.parametrize("commit", OF_COMMITS)
def test_inputs_of_decisions_are_read(commit: str) -> None:
    own = msgspec.msgpack.decode(packed("kept inputs", commit), type=KeptInputs)
    bodies = {
        bytes.fromhex(name): b64decode(body)
        for name, body in OF_COMMITS["fe7cb724"]["bodies"].items()
    }
    inputs = InputReader(DEFAULT_PROFILES).unpacked(own, bodies)
    assert inputs.binding == binding_at(commit)
    assert inputs.surroundings == replace(
        filled(BindingContext), triggers=(), is_settled=commit != "fe7cb724"
    )
    (cluster,) = inputs.fleet.clusters
    # Neither the model nor numbers of versions are kept.
    assert cluster == replace(WHOLE_CLUSTER, model=DEFAULT_MODEL, generation=1, resource_version=0)
    assert own.refused == {"a": "no room"}


def binding_at(commit: str) -> Binding:
    """Return the binding without fields that the commit did not have."""
    if commit != "fe7cb724":
        return WHOLE_BINDING
    return replace(
        WHOLE_BINDING, is_unsettled=False, clusters_are_stated=False, observed_affinity=""
    )


@pytest.mark.parametrize("commit", OF_COMMITS)
def test_previews_are_read(commit: str) -> None:
    binding, verdict, wait = unpacked_preview(packed("preview", commit))
    assert binding == binding_at(commit)
    assert not wait
    check_verdict(verdict.decision.trace, verdict.evidence, verdict.promises)
    assert verdict.decision.clusters == WHOLE_BINDING.clusters
    assert isinstance(verdict.inputs, KeptInputs)


def test_traces_are_read() -> None:
    check_verdict(*unpacked_trace(packed("trace")))


def check_verdict(trace: Trace, evidence: ReportEvidence, promises: Any) -> None:
    assert trace.warnings == ("a warning",)
    assert evidence == ReportEvidence(sequences=(3,), age_seconds=(0.5,))
    assert promises == (ClusterPromise("a", PromiseCertificate.STRICT, 1, 3, "a note"),)
