"""One name for one thing: public classes and type aliases, and the words of the glossary."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = [
    path
    for package in ("federation", "estimator", "tools")
    for path in sorted((ROOT / package).rglob("*.py"))
    if not path.stem.endswith(("_pb2", "_pb2_grpc"))
]
WORDS = [
    cell.strip()
    for line in (ROOT / "docs" / "glossary.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| word ")
    for cell in line.split("|")[1].split(",")
]
CODE = re.compile(r"`([^`]+)`|\b([A-Z][a-z]+[A-Z]\w+)")


def names_of(tree: ast.Module) -> Iterator[str]:
    """The public classes and type aliases of a file."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            name = node.name
        elif isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias":
            name = ast.unparse(node.target)
        else:
            continue
        if not name.startswith("_"):
            yield name


def test_no_name_stands_for_two_things() -> None:
    files = defaultdict(list)
    for path in SOURCES:
        for name in names_of(ast.parse(path.read_text())):
            files[name].append(str(path.relative_to(ROOT)))
    assert len(files) > 500
    assert {name: where for name, where in files.items() if len(where) > 1} == {}


def test_no_word_of_the_glossary_is_explained_twice() -> None:
    assert [word for word, count in Counter(WORDS).items() if count > 1] == []


def test_code_in_the_glossary_exists() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    code = {quoted or camel for quoted, camel in CODE.findall(glossary)}
    assert {"hash", "MostAllocated", "FillFirst"} <= code
    source = "\n".join(path.read_text() for path in SOURCES)
    assert [name for name in code if name not in source] == []
