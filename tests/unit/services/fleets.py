"""Fleets in memory that no store stands behind. Must not check anything."""

from __future__ import annotations

from federation.model.cluster import CapacityReport, Cluster
from federation.services.fleet.registry import FleetOwner
from federation.store.engine import create_engine
from federation.store.postgres import PostgresStore


def fleet_of(**reports: CapacityReport) -> FleetOwner:
    """Clusters with reports, of a store that is never asked."""
    owner = FleetOwner(PostgresStore(create_engine("postgresql://unused")))
    for name, report in reports.items():
        owner.put_cluster(Cluster(name=name))
        owner.put_report(name, report, 1.0)
    return owner
