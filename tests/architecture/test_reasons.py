"""Code compares codes of reasons, never their sentences."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = [
    path
    for package in ("federation", "estimator", "lab")
    for path in sorted((ROOT / package).rglob("*.py"))
    if not path.stem.endswith(("_pb2", "_pb2_grpc"))
]
# Sentences of other programs, and texts of ours that come back without their codes.
READERS_OF_TEXTS = {
    "federation/bridge/writes.py": "an API server's refusal",
    "estimator/agent/enrolment.py": "a certificate",
    "federation/cli/apply.py": "a mark in an edited document",
    "federation/cli/connection.py": "gRPC's message",
    "federation/cli/history.py": "triggers travel as texts",
    "federation/cli/waiting.py": "what a binding is short of travels as text",
    "federation/client/channels.py": "gRPC's message",
    "federation/codec/hidden_names.py": "reasons are stored as texts",
    "federation/embedded_postgres/server.py": "PostgreSQL's log",
    "federation/history/bodies.py": "msgspec's messages",
    "federation/runtime/log_errors.py": "lines of logs",
    "lab/benchmarks/__main__.py": "a line of Python",
    "lab/benchmarks/bench_bridge.py": "a metric",
    "lab/benchmarks/bench_queue.py": "a metric",
    "lab/benchmarks/measuring.py": "a line of a log",
    "lab/chaos/glances.py": "plans say in texts why a binding stays",
    "lab/chaos/preempting.py": "decisions are stored with texts",
    "lab/drills/servers.py": "a mark in a page",
    "lab/karmadas.py": "a line of a log",
}
WORDS = re.compile(r"[a-z'\]}] [a-z(\[{]", re.IGNORECASE)
SEPARATORS = ("; ", ": ")
METHODS = frozenset({"startswith", "endswith", "find", "rfind", "index", "rindex", "count"})
METHODS |= {"removeprefix", "removesuffix", "split", "rsplit", "partition", "rpartition"}
PATTERNS = frozenset({"compile", "match", "fullmatch", "search", "findall", "finditer"})
PATTERNS |= {"split", "sub"}


def is_sentence(text: str) -> bool:
    return WORDS.search(text) is not None or text in SEPARATORS


def text_in(node: ast.expr) -> str:
    """Return the text of a constant or an f-string, with a hole for each value."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(text_in(part) or "{}" for part in parts)
        case ast.BinOp(left=first, op=ast.Add(), right=second):
            return text_in(first) + text_in(second)
        case _:
            return ""


@cache
def trees() -> Mapping[str, ast.Module]:
    """Return all modules by their names with dots."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): ast.parse(path.read_bytes())
        for path in SOURCES
    }


@cache
def sentences_of(module: str) -> frozenset[str]:
    """Return the constants of a module that are sentences, or have one among their items."""
    names = set()
    for node in trees()[module].body if module in trees() else ():
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                pass
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pass
            case _:
                continue
        items = value.elts if isinstance(value, ast.Tuple | ast.List | ast.Set) else [value]
        if any(is_sentence(text_in(item)) for item in items):
            names.add(name)
    return frozenset(names)


def sentences_seen_by(module: str) -> frozenset[str]:
    """Return the names in a module that stand for sentences, its own and imported ones."""
    imported = {
        alias.asname or alias.name
        for node in ast.walk(trees()[module])
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
        if alias.name in sentences_of(node.module)
    }
    return sentences_of(module) | imported


def says_something(node: ast.expr, names: AbstractSet[str]) -> bool:
    """Whether an operand is a sentence, a constant that is one, or has one among its items."""
    match node:
        case ast.Name(id=name):
            return name in names
        case ast.Attribute(value=ast.Name(), attr=name):
            return name in names
        case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
            return any(says_something(item, names) for item in items)
        case ast.Call(func=ast.Name(id="str"), args=[argument]):
            return says_something(argument, names)
        case _:
            return is_sentence(text_in(node))


def comparisons(tree: ast.AST, names: AbstractSet[str]) -> Iterator[int]:
    """Yield the lines that compare, search or take apart a sentence."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=first, comparators=operands):
                if any(says_something(operand, names) for operand in (first, *operands)):
                    yield node.lineno
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=method), args=arguments):
                if method in PATTERNS and is_sentence(text_in(arguments[0])):
                    yield node.lineno
            case ast.Call(func=ast.Attribute(attr=method), args=arguments):
                if method in METHODS and any(
                    says_something(argument, names) for argument in arguments
                ):
                    yield node.lineno
            case ast.MatchValue(value=value):
                if says_something(value, names):
                    yield node.lineno
            case _:
                pass


def test_no_code_compares_sentences() -> None:
    assert len(trees()) > 500
    assert sum(len(sentences_of(module)) for module in trees()) > 50
    hits = {
        f"{module.replace('.', '/')}.py": lines
        for module, tree in trees().items()
        if (lines := list(comparisons(tree, sentences_seen_by(module))))
    }
    assert {path: lines for path, lines in hits.items() if path not in READERS_OF_TEXTS} == {}
    assert READERS_OF_TEXTS.keys() - hits.keys() == set(), "these need no exception any more"


@pytest.mark.parametrize(
    "source",
    [
        'if decision.reason == "no cluster passes the filters": pass',
        'if "room is kept" in str(reason): pass',
        "if NOTHING_LEFT in decision.reason: pass",
        "if why.startswith((LATE, NOTHING_LEFT)): pass",
        "if str(why) != refusals.NOTHING_LEFT: pass",
        'text.removeprefix("short of memory")',
        'clauses = reason.split("; ")',
        'code, _, why = message.partition(": ")',
        'if text.startswith(f"{first}; {name} is gone"): pass',
        r're.compile(r"\d+ (?:replica is|replicas are) (?:available|missing)")',
        r're.search(rf"preempted by {key}", text)',
        'match reason:\n    case "the cluster is gone":\n        pass',
    ],
)
def test_each_way_to_compare_a_sentence_is_found(source: str) -> None:
    assert list(comparisons(ast.parse(source), {"NOTHING_LEFT"})) == [
        1 if not source.startswith("match") else 2
    ]


@pytest.mark.parametrize(
    "source",
    [
        'if name == "default-scheduler": pass',
        "if clause.code is ReasonCode.CLUSTER_GONE: pass",
        'raise NotFound(f"There is no binding {key}.")',
        'words = text.split(" ")',
        'if scheme == "Bearer": pass',
    ],
)
def test_other_comparisons_are_not(source: str) -> None:
    assert list(comparisons(ast.parse(source), frozenset())) == []
