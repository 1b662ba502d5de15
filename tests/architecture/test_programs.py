"""Programs in lab/ that no test runs can still be imported, and lab/ imports no test.

Must not run the programs: ``make`` does.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LAB = ROOT / "lab"


def test_every_program_can_be_imported() -> None:
    programs = {path.relative_to(ROOT) for path in LAB.rglob("__main__.py")}
    assert Path("lab/replays/__main__.py") in programs
    for program in sorted(programs):
        importlib.import_module(".".join(program.with_suffix("").parts))


def test_lab_imports_no_test() -> None:
    """Tests use the fleets and servers of lab/; lab/ must not depend on them in turn."""
    importers = {
        str(path.relative_to(ROOT))
        for path in LAB.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom | ast.Import)
        for module in imported(node)
        if module.split(".")[0] == "tests"
    }
    assert importers == set()


def imported(node: ast.ImportFrom | ast.Import) -> list[str]:
    """Return the modules that a statement names."""
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    return [alias.name for alias in node.names]
