"""Within a transaction nothing is awaited but the database: its locks are everybody's."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2] / "federation"
SOURCES = sorted([*ROOT.glob("services/**/*.py"), *ROOT.glob("store/*.py"), ROOT / "app.py"])
BEGINS = frozenset({"transaction", "begin"})
# What is decided under locks is CPU alone, bounded, in threads that nothing else keeps busy.
UNDER_LOCKS = "UNDER_LOCKS"
# What ``Amending`` hands on in place of the transaction that is in it.
HOLDS_ONE = "locked"
MODULES_OF_STATEMENTS = frozenset(
    {"bindings", "clusters", "credentials", "decisions", "duties", "journal", "presences"}
    | {"preemptions", "reports", "requests", "reservations", "waiting"}
)
OFF_THE_LOOP = frozenset({"to_thread", "run_in_executor", "run"})


def transactions(tree: ast.AST) -> Iterator[ast.AsyncWith]:
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncWith) and any(map(begins, node.items)):
            yield node


def begins(item: ast.withitem) -> bool:
    """``async with store.transaction() as tx`` and the like; what only begins one is no matter."""
    call = item.context_expr
    if not isinstance(call, ast.Call) or item.optional_vars is None:
        return False
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
    return name.lstrip("_") in BEGINS


def is_given(call: ast.AST, names: frozenset[str]) -> bool:
    """Whether one of these names is what is called or what it is called with."""
    return any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(call))


def awaited_beside_the_database(source: Path) -> Iterator[str]:
    tree = ast.parse(source.read_text(encoding="utf-8"))
    for block in transactions(tree):
        names = {ast.unparse(item.optional_vars) for item in block.items if item.optional_vars}
        allowed = frozenset(names | {UNDER_LOCKS, HOLDS_ONE})
        for statement in block.body:
            for node in ast.walk(statement):
                if isinstance(node, ast.Await) and not is_given(node.value, allowed):
                    yield f"{source.relative_to(ROOT)}:{node.lineno} awaits {ast.unparse(node)}"


def test_a_transaction_awaits_the_database_alone() -> None:
    assert SOURCES
    assert [each for source in SOURCES for each in awaited_beside_the_database(source)] == []


def test_statements_wait_for_no_thread() -> None:
    for name in sorted(MODULES_OF_STATEMENTS):
        tree = ast.parse((ROOT / "store" / f"{name}.py").read_text(encoding="utf-8"))
        called = {
            node.func.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        }
        assert not called & OFF_THE_LOOP, name
