"""The row structs of all stored values, found in the modules whose names end with ``_rows``.

Must not list them: a new module is found by its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from federation.history.rows import Rows

ROOT = Path(__file__).parents[2]
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted((ROOT / "federation").rglob("*_rows.py"))
    # Traces hold arrays, which are compared and encoded otherwise.
    if path.stem != "trace_rows"
]
ROWS: Mapping[str, Rows[Any, Any]] = {
    rows.row.__name__: rows
    for module in (*MODULES, "federation.services.packed_traces")
    for rows in vars(import_module(module)).values()
    if isinstance(rows, Rows) and not rows.row.__module__.endswith("trace_rows")
}
