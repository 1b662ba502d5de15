"""Migrations are linted: what locks others out is found, and excused by name or not at all."""

from __future__ import annotations

from tools.lint_migrations import EXCUSED, LIMITS, findings, scripts


def test_an_index_that_blocks_writers_is_found_and_a_column_is_not() -> None:
    blocking = findings(f"{LIMITS}CREATE INDEX by_name ON bindings (name);")
    rules = [finding["rule_name"] for finding in blocking]
    assert rules == ["require-concurrent-index-creation"]
    assert findings(f"{LIMITS}ALTER TABLE bindings ADD COLUMN note text;") == []


def test_an_index_beside_writers_is_built_outside_of_a_transaction() -> None:
    building = "CREATE INDEX CONCURRENTLY IF NOT EXISTS by_name ON bindings (name);\n"
    assert findings(f"{LIMITS}{building}")
    assert findings(f"{LIMITS}COMMIT;\n{building}BEGIN;\n") == []


def test_every_migration_is_written_as_sql_and_excuses_are_of_some() -> None:
    written = dict(scripts())
    empty = {revision for revision, sql in written.items() if len(sql) == len(LIMITS)}
    # It stands for the schema of a commit.
    assert empty == {"0019"}
    assert {revision for revision, _ in EXCUSED} <= written.keys()
    assert all(EXCUSED.values())
