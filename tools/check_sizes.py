"""The caps on size: a file has at most 500 lines, a function at most 60.

Must not count generated code.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE_LINES = 500
FUNCTION_LINES = 60
PLACES = ("federation", "estimator", "migrations", "tests", "lab", "tools")
GENERATED = (Path("federation/v1"), Path("estimator/karmada"))


def handwritten(root: Path) -> Iterator[Path]:
    for place in PLACES:
        for path in sorted((root / place).rglob("*.py")):
            relative = path.relative_to(root)
            if not any(relative.is_relative_to(generated) for generated in GENERATED):
                yield relative


def violations(path: Path, source: str) -> Iterator[str]:
    lines = source.count("\n")
    if lines > FILE_LINES:
        yield f"{path}: {lines} lines, at most {FILE_LINES}"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                where = f"{path}:{node.lineno}: {node.name}"
                yield f"{where} has {length} lines, at most {FUNCTION_LINES}"


def judged(violations: Callable[[Path, str], Iterator[str]]) -> int:
    """Print what is wrong with any handwritten file; 1 where something is, else 0."""
    findings = [
        violation
        for path in handwritten(ROOT)
        for violation in violations(path, (ROOT / path).read_text(encoding="utf-8"))
    ]
    print("\n".join(findings))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(judged(violations))
