"""Small faults that can be put into a source file, and into functions that live.

Must not import anything anew: objects that exist keep their identity. Only code inside functions is
changed. Docstrings, annotations, decorators, defaults, protocols, f-strings, `raise` and `assert`
stay: a fault there changes a message, or fails at import. The lines that a test runs are found by
Python's own tracing.
"""

from __future__ import annotations

import ast
import gc
import random
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from inspect import CO_NEWLOCALS
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
OPPOSITE_FUNCTIONS = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "minimum": "maximum",
    "maximum": "minimum",
    "floor": "ceil",
    "ceil": "floor",
}
LOGGERS = ("log.", "logger.", "logging.", "_log.")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
REMOVED_STATEMENTS = (ast.Expr, ast.Assign, ast.Delete, ast.Continue, ast.Break)
JUDGEMENTS = (ast.Compare, ast.BoolOp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One fault. `begin` and `end` are offsets in bytes; `lines` are the lines that must be run
    by a test that can see it: those of the changed expression, then those of its statement.
    """

    path: str
    function: str
    operator: str
    line: int
    column: int
    begin: int
    end: int
    original: str
    replacement: str
    source_line: str
    lines: tuple[int, int, int, int]
    # Its number among those that are equal but for their lines.
    ordinal: int = 0

    def apply(self, source: bytes) -> bytes:
        """Return the source of the file with the fault in it."""
        return source[: self.begin] + self.replacement.encode() + source[self.end :]

    @property
    def identity(self) -> tuple[str | int, ...]:
        """Values that stay when lines above it are added or removed."""
        return (
            self.path,
            self.function,
            self.operator,
            self.original,
            self.replacement,
            self.source_line,
            self.ordinal,
        )


class _Finder(ast.NodeVisitor):
    """Collects the mutants of one file."""

    def __init__(self, path: str, source: bytes) -> None:
        self.mutants: list[Mutant] = []
        self._path = path
        self._source = source
        self._texts = source.decode().split("\n")
        lengths = [len(line) + 1 for line in source.split(b"\n")]
        self._starts = [sum(lengths[:index]) for index in range(len(lengths))]
        self._names: list[str] = []
        self._functions = 0
        self._statement: ast.stmt | None = None

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            self._enter(node)
        elif not self._functions:
            self.generic_visit(node)
        elif isinstance(node, ast.JoinedStr | ast.Raise | ast.Assert | ast.Import | ast.ImportFrom):
            return
        elif isinstance(node, ast.stmt):
            enclosing, self._statement = self._statement, node
            self._mutate_statement(node)
            self._visit_children(node)
            self._statement = enclosing
        else:
            self._mutate(node)
            self._visit_children(node)

    def _enter(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if isinstance(node, ast.ClassDef) and any("Protocol" in ast.unparse(b) for b in node.bases):
            return
        is_function = isinstance(node, FUNCTIONS)
        self._names.append(f"{node.name}.<locals>" if is_function else node.name)
        self._functions += is_function
        for statement in node.body:
            if is_function or isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
                self.visit(statement)
        self._functions -= is_function
        self._names.pop()

    def _visit_children(self, node: ast.AST) -> None:
        for name, value in ast.iter_fields(node):
            if name in {"annotation", "returns"}:
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    self.visit(child)

    def _mutate_statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.AugAssign) and type(node.op) in ARITHMETIC:
            self._add(node, "arithmetic", swapped(node, "op", ARITHMETIC[type(node.op)]()))
            self._add(node, "statement removed", "pass")
        elif isinstance(node, ast.Return) and node.value is not None:
            if isinstance(node.value, JUDGEMENTS):
                self._add(node, "return value", f"return not ({ast.unparse(node.value)})")
            elif not isinstance(node.value, ast.Constant):
                self._add(node, "return value", "return None")
        elif isinstance(node, REMOVED_STATEMENTS) and is_removable(node):
            self._add(node, "statement removed", "pass")
        elif isinstance(node, ast.If | ast.While):
            self._negate(node.test)

    def _mutate(self, node: ast.AST) -> None:
        if isinstance(node, ast.Compare):
            for index, operator in enumerate(node.ops):
                operators = [*node.ops]
                operators[index] = COMPARISONS[type(operator)]()
                self._add(node, "comparison", f"({swapped(node, 'ops', operators)})")
        elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
            if not any(is_text(side) for side in (node.left, node.right)):
                text = swapped(node, "op", ARITHMETIC[type(node.op)]())
                self._add(node, "arithmetic", f"({text})")
        elif isinstance(node, ast.BoolOp):
            opposite = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            self._add(node, "and or", f"({swapped(node, 'op', opposite)})")
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
            self._add(node, "unary", f"({ast.unparse(node.operand)})")
        elif isinstance(node, ast.Constant):
            self._mutate_constant(node)
        elif isinstance(node, ast.Call):
            self._mutate_call(node)
        elif isinstance(node, ast.IfExp):
            self._negate(node.test)
        elif isinstance(node, ast.comprehension):
            for condition in node.ifs:
                self._negate(condition)

    def _mutate_constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add(node, "constant", str(not node.value))
        elif isinstance(node.value, int):
            step = 1 if node.col_offset % 2 else -1
            self._add(node, "constant", f"({node.value + step})")

    def _mutate_call(self, node: ast.Call) -> None:
        function = node.func
        name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
        if name in OPPOSITE_FUNCTIONS:
            text = ast.unparse(function)
            opposite = text[: len(text) - len(name)] + OPPOSITE_FUNCTIONS[name]
            self._add(function, "opposite function", opposite)

    def _negate(self, test: ast.expr) -> None:
        """A condition that is no comparison: those have mutants of their own."""
        if not isinstance(test, (*JUDGEMENTS, ast.UnaryOp, ast.NamedExpr, ast.Constant)):
            self._add(test, "condition", f"(not ({ast.unparse(test)}))")

    def _add(self, node: ast.expr | ast.stmt, operator: str, replacement: str) -> None:
        begin = self._starts[node.lineno - 1] + node.col_offset
        end = self._starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        original = self._source[begin:end].decode()
        if isinstance(node, ast.stmt):
            # The body of a compound statement stays.
            statement: ast.expr | ast.stmt = node
        else:
            statement = self._statement or node
        last = statement.end_lineno or 0
        if isinstance(statement, ast.If | ast.While | ast.For | ast.AsyncFor | ast.With):
            last = node.end_lineno or 0
        self.mutants.append(
            Mutant(
                path=self._path,
                function=".".join(self._names).removesuffix(".<locals>"),
                operator=operator,
                line=node.lineno,
                column=node.col_offset,
                begin=begin,
                end=end,
                original=original,
                replacement=replacement,
                source_line=self._texts[node.lineno - 1].strip(),
                lines=(node.lineno, node.end_lineno or 0, statement.lineno, last),
            )
        )


def swapped(node: ast.AST, field: str, value: object) -> str:
    """Return the text of a node with another value in one of its fields."""
    fields = {**dict(ast.iter_fields(node)), field: value}
    return ast.unparse(type(node)(**fields))


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )


def is_removable(node: ast.stmt) -> bool:
    """Return whether a function still compiles, and means less, without a statement."""
    if isinstance(node, ast.Expr):
        is_call = isinstance(node.value, ast.Call | ast.Await | ast.Yield | ast.YieldFrom)
        return is_call and not ast.unparse(node).startswith(LOGGERS)
    if isinstance(node, ast.Assign):
        return all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets)
    return True


def find_mutants(root: Path, packages: Iterable[str]) -> list[Mutant]:
    """Return all mutants of the packages, in the order of files and lines."""
    mutants: list[Mutant] = []
    counts: Counter[tuple[str | int, ...]] = Counter()
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            source = path.read_bytes()
            finder = _Finder(str(path.relative_to(root)), source)
            finder.visit(ast.parse(source))
            for mutant in sorted(finder.mutants, key=lambda each: (each.begin, each.replacement)):
                mutants.append(replace(mutant, ordinal=counts[mutant.identity]))
                counts[mutant.identity] += 1
    return mutants


def shuffled(mutants: Sequence[Mutant], seed: int) -> list[Mutant]:
    """Return them in an order of the seed's."""
    in_order = [*mutants]
    random.Random(seed).shuffle(in_order)
    return in_order


Lines = dict[str, set[int]]
# Calls of one function in one test that are looked at: later ones run the same lines.
MAX_CALLS = 300


class _Code:
    """Lines of one function: all that it has, and those that were not run yet."""

    __slots__ = ("all_lines", "calls", "path", "remaining")

    def __init__(self, code: CodeType, path: str) -> None:
        lines = {line for _, _, line in code.co_lines() if line is not None}
        self.path = path
        self.calls = 0
        self.all_lines = frozenset(lines - {code.co_firstlineno})
        self.remaining = set(self.all_lines)

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            self.remaining.discard(frame.f_lineno)
            if not self.remaining:
                return None
        return self.trace


class LineTracer:
    """Records lines of some files, by their absolute paths, between `start` and `stop`."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = frozenset(paths)
        self._codes: dict[CodeType, _Code | None] = {}
        self._run: set[_Code] = set()

    def start(self) -> None:
        threading.settrace(self._called)
        sys.settrace(self._called)

    def stop(self) -> None:
        sys.settrace(None)
        threading.settrace(None)

    def take(self) -> Lines:
        """Return the lines that were run since the last time."""
        lines: Lines = {}
        for code in [*self._run]:
            lines.setdefault(code.path, set()).update(code.all_lines - code.remaining)
            code.remaining = set(code.all_lines)
            code.calls = 0
        self._run.clear()
        return lines

    def _called(self, frame: FrameType, _event: str, _: Any) -> Any:
        code = frame.f_code
        try:
            traced = self._codes[code]
        except KeyError:
            traced = self._codes[code] = self._begun(code)
        if traced is None or not traced.remaining or traced.calls > MAX_CALLS:
            return None
        traced.calls += 1
        self._run.add(traced)
        return traced.trace

    def _begun(self, code: CodeType) -> _Code | None:
        # Modules and the bodies of classes run when they are imported.
        if code.co_filename not in self._paths or not code.co_flags & CO_NEWLOCALS:
            return None
        return _Code(code, code.co_filename)


Place = tuple[str, int]


class NotPatched(Exception):
    """No function of this process has the code that is to be replaced."""


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of all functions that a code object contains, itself included."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_in(constant)


def functions_of(source: bytes, path: str) -> dict[Place, CodeType]:
    """Return the code of each function in a source, by qualified name and first line."""
    module = compile(source, path, "exec", dont_inherit=True)
    return {(code.co_qualname, code.co_firstlineno): code for code in codes_in(module)}


def outermost(function: str) -> str:
    """Return the qualified name of the function that contains all others of a dotted name."""
    return function.partition(".<locals>")[0]


def patch(source: bytes, path: str, function: str, line: int) -> None:
    """Give functions of this process the code that they have in another source of their file.

    `line` is the line of the fault: of functions with one name the nearest one above is meant.
    Raises NotPatched.
    """
    name = outermost(function)
    codes = functions_of(source, path)
    begins = [first for qualname, first in codes if qualname == name and first <= line]
    if not begins:
        raise NotPatched(f"{path}: no function {name} above line {line}")
    inside = {
        (code.co_qualname, code.co_firstlineno): code for code in codes_in(codes[name, max(begins)])
    }
    patched = 0
    # Programs freeze what they have imported, and frozen objects are not listed.
    gc.unfreeze()
    for living in gc.get_objects():
        if not isinstance(living, FunctionType) or living.__code__.co_filename != path:
            continue
        code = inside.get((living.__code__.co_qualname, living.__code__.co_firstlineno))
        if code is None:
            continue
        if len(code.co_freevars) != len(living.__code__.co_freevars):
            raise NotPatched(f"{path}: {name} takes other variables of its surroundings")
        living.__code__ = code
        patched += 1
    if not patched:
        raise NotPatched(f"{path}: no function {name} is alive")
