"""The whole schema as declared: ``metadata`` has the tables of all files.

Must not create anything: the migrations do.
"""

from __future__ import annotations

from federation.store import (
    access_tables,
    decision_tables,
    journal_tables,
    kept_report_tables,
    plan_tables,
    replica_tables,
    tables,
)

FILES = (
    tables,
    access_tables,
    decision_tables,
    journal_tables,
    plan_tables,
    replica_tables,
    kept_report_tables,
)
metadata = tables.metadata
