"""Rules for every handwritten file: caps on size, and a reason for whatever silences a tool.

A file has at most 500 lines, a function at most 60. The reason stands in the same comment:
``# noqa: S311 - jitter, no secret``, or ``# type: ignore[override]  # the stub knows no writers``.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE_LINES = 500
FUNCTION_LINES = 60
PLACES = ("federation", "estimator", "migrations", "tests", "lab", "tools")
GENERATED = (Path("federation/v1"), Path("estimator/karmada"))
SUPPRESSION = re.compile(
    r"#\s*(?:"
    r"(?:(?:ruff|flake8):\s*)?noqa(?::\s*[A-Z]+[0-9]+(?:[,\s]+[A-Z]+[0-9]+)*)?"
    r"|type:\s*ignore(?:\[[^]]*\])?"
    r"|pragma:\s*no\s+\w+"
    r")",
    re.IGNORECASE,
)


def handwritten(root: Path) -> Iterator[Path]:
    for place in PLACES:
        for path in sorted((root / place).rglob("*.py")):
            relative = path.relative_to(root)
            if not any(relative.is_relative_to(generated) for generated in GENERATED):
                yield relative


def sizes(path: Path, source: str) -> Iterator[str]:
    lines = source.count("\n")
    if lines > FILE_LINES:
        yield f"{path}: {lines} lines, at most {FILE_LINES}"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                where = f"{path}:{node.lineno}: {node.name}"
                yield f"{where} has {length} lines, at most {FUNCTION_LINES}"


def suppressions(path: Path, source: str) -> Iterator[str]:
    if SUPPRESSION.search(source) is None:
        return  # Telling comments from text takes its time, and few files need it.
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and lacks_reason(token.string):
            yield f"{path}:{token.start[0]}: {token.string} gives no reason"


def lacks_reason(comment: str) -> bool:
    reason, suppressions = SUPPRESSION.subn("", comment)
    return suppressions > 0 and not re.search(r"[#-] +\w", reason)


def main() -> int:
    """Print what is wrong with any handwritten file; 1 where something is, else 0."""
    findings = [
        finding
        for path in handwritten(ROOT)
        for source in [(ROOT / path).read_text(encoding="utf-8")]
        for rule in (sizes, suppressions)
        for finding in rule(path, source)
    ]
    print("\n".join(findings))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
