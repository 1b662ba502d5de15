"""Lint the SQL of the migrations by squawk: what may block others, or breaks who runs meanwhile.

Each finding is fixed or excused below, with the reason; an excuse that is not needed any more is
a finding too. Must not need a database.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory

ROOT: Final = Path(__file__).resolve().parent.parent
SQUAWK: Final = Path(sys.executable).parent / "squawk"
# The oldest that is supported, and what migrations/env.py sets for every session.
OLDEST: Final = "15"
# What alembic writes around statements that must not run within a transaction.
ALONE: Final = ("COMMIT;\n", "BEGIN;\n")
LIMITS: Final = "SET lock_timeout = '5s';\nSET statement_timeout = '300s';\n"

STOPPED: Final = "no control plane runs meanwhile, and the table was emptied just before"
PARTITIONED: Final = "a table in partitions takes its name in this one transaction"
# By revision and rule.
EXCUSED: Final[Mapping[tuple[str, str], str]] = {
    ("1000", "prefer-identity"): "before PostgreSQL 17 tables in partitions have no identity",
    ("0030", "adding-required-field"): STOPPED,
    ("0030", "ban-drop-column"): STOPPED,
    ("0030", "constraint-missing-not-valid"): STOPPED,
    **{
        ("0036", rule): PARTITIONED
        for rule in (
            *("ban-alter-identity", "ban-drop-constraint", "ban-drop-default", "ban-drop-table"),
            *("require-concurrent-index-deletion", "renaming-object", "renaming-table"),
        )
    },
}


def scripts() -> Iterator[tuple[str, str]]:
    """Each revision with its SQL, as it runs on an empty database."""
    for script in ScriptDirectory(str(ROOT / "migrations")).walk_revisions():
        written = io.StringIO()
        options = {"as_sql": True, "output_buffer": written, "literal_binds": True}
        context = MigrationContext.configure(dialect_name="postgresql", opts=options)
        with Operations.context(context):
            script.module.upgrade()
        yield script.revision, LIMITS + written.getvalue()


def findings(sql: str, name: str = "migration") -> list[dict[str, Any]]:
    """Return the findings of squawk in a script."""
    is_alone = ALONE[0] in sql
    for bracket in ALONE:
        sql = sql.replace(bracket, "")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{name}.sql"
        file.write_text(sql, encoding="utf-8")
        transaction = () if is_alone else ("--assume-in-transaction",)
        options = ("--pg-version", OLDEST, *transaction, "--reporter", "json")
        answer = subprocess.run(
            [str(SQUAWK), *options, str(file)], capture_output=True, text=True, check=False
        )
    violations: list[dict[str, Any]] = json.loads(answer.stdout or "[]")
    return violations


def main() -> int:
    met: set[tuple[str, str]] = set()
    wrong: list[str] = []
    for revision, sql in scripts():
        for finding in findings(sql, revision):
            rule = finding["rule_name"]
            met.add((revision, rule))
            if (revision, rule) not in EXCUSED:
                wrong.append(f"{revision}: {rule}: {finding['message']}")
    wrong += [f"{revision}: {rule} is excused in vain" for revision, rule in EXCUSED.keys() - met]
    print("\n".join(sorted(wrong)))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
