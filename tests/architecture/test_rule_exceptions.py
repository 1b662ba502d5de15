"""Values that are checked outside the rules of the protos: each module that does so says why.

Must not excuse a servicer or a use case: what a request may hold is a rule of its proto.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("agents", "codec", "operations", "rpc", "services")
# The modules of checks of single values.
CHECKS = ("federation.codec.ranges", "federation.codec.texts")
# They read what passed, or what no rule refuses.
READERS = frozenset({"choice", "optional_choice", "optional_seconds", "revision", "seconds"})
EXCEPTIONS = {
    "agents/messages.py": "sizes in bytes, and answers that depend on the question",
    "codec/bindings.py": "names that clusters have in another form, and items by the name in them",
    "codec/clusters.py": "names that bindings have in another form, and annotations in all",
    "codec/echoes.py": "a reader that ends at sixteen faults of a hundred thousand items",
    "codec/given_fleets.py": "documents without a proto of their own",
    "codec/namespace_quotas.py": "quantities",
    "codec/packable.py": "fields that refer to one another by position",
    "codec/placements.py": "items that differ by the name in them",
    "codec/requirements.py": "items that differ by the name in them",
    "codec/scopes.py": "rules of roles, in files as in requests",
    "codec/selectors.py": "expressions whose operators depend on what they select",
    "codec/simulations.py": "documents that a simulation reads as a whole",
    "codec/virtual_time.py": "documents that a simulation reads as a whole",
    "codec/workloads.py": "templates, whose schema is Kubernetes' own",
    "operations/clusters.py": "sizes in bytes",
    "rpc/bindings.py": "sizes in bytes",
}


def checks_of(path: Path) -> set[str]:
    """Return the checks of single values that a module calls."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported, modules = set[str](), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in CHECKS:
            imported |= {alias.name for alias in node.names if alias.name.islower()}
        if isinstance(node, ast.ImportFrom) and node.module == "federation.codec":
            modules |= {alias.name for alias in node.names} & {"ranges", "texts"}
    called = {
        node.func.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in modules
    }
    return (called | imported) - READERS


def test_checks_outside_the_protos_are_listed_with_their_reasons() -> None:
    modules = {
        path.relative_to(ROOT / "federation").as_posix()
        for folder in FOLDERS
        for path in (ROOT / "federation" / folder).rglob("*.py")
        if checks_of(path)
    }
    assert modules == EXCEPTIONS.keys()
