"""Everything that is checked without running the product, one line each.

``--quick`` leaves out what takes more than a second: for the moment before a commit.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    name: str
    command: Sequence[str]
    quick: bool = False


def checks() -> list[Check]:
    def program(name: str) -> str:
        return str(BIN / name)

    def module(name: str) -> list[str]:
        return [sys.executable, "-m", name]

    return [
        Check(name="formatted", command=[program("ruff"), "format", "--check", "."], quick=True),
        Check(name="lint", command=[program("ruff"), "check", "."], quick=True),
        Check(name="sizes, reasons", command=module("tools.check_sources"), quick=True),
        Check(name="words", command=module("tools.check_words"), quick=True),
        Check(name="locks", command=[*module("tools.locks"), "check"], quick=True),
        Check(name="migrations", command=module("tools.lint_migrations")),
        Check(name="types", command=[program("mypy")]),
        Check(name="import floors", command=[program("lint-imports")]),
        Check(name="stubs fresh", command=[*module("tools.protos"), "verify"]),
        Check(name="reference fresh", command=[*module("tools.reference"), "--check"]),
        Check(name="proto lint", command=[*module("tools.protos"), "lint"]),
    ]


def run(check: Check) -> bool:
    started = time.monotonic()
    result = subprocess.run(
        check.command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    good = result.returncode == 0
    print(
        f"{'ok  ' if good else 'FAIL'}  {check.name:<15} {time.monotonic() - started:5.1f} s",
        flush=True,
    )
    if not good:
        print(result.stdout, flush=True)
    return good


def main(*, quick: bool) -> int:
    # All of them, also after one fails: who repairs wants the whole list.
    results = [run(check) for check in checks() if check.quick or not quick]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(quick="--quick" in sys.argv[1:]))
