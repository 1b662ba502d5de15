"""Mutants of a small source: which there are, what they do to living functions, and their tests."""

from __future__ import annotations

import gc
import sys
import threading
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from lab.mutation import records
from lab.mutation.mutants import LineTracer, Mutant, NotPatched, find_mutants, patch, shuffled
from lab.mutation.records import (
    KILLED,
    SURVIVED,
    UNTESTED,
    CoverageMap,
    Job,
    Results,
    TestLines,
    Verdict,
    choose_tests,
    compiling,
    mutants_to_try,
)

SOURCE = '''"""A module."""
from typing import Protocol

LIMIT = 7 + 1

class Port(Protocol):
    def ask(self, number: int) -> bool:
        return number > 3

class Store:
    def __init__(self, size: int = 2) -> None:
        """1 + 1"""
        self.size = size

    def has_space(self, count: int) -> bool:
        if not count:
            raise ValueError(f"{count + 1}")
        return count <= self.size and min(count, 5) < LIMIT

def adder(step: int):
    def add(number: int) -> int:
        number += step
        return number
    return add
'''


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "product").mkdir()
    (tmp_path / "product" / "store.py").write_text(SOURCE, encoding="utf-8")
    return tmp_path


def job(root: Path) -> Job:
    return Job(
        root=str(root),
        folder=str(root),
        commit="",
        packages=("product",),
        count=100,
        seed=1,
        same_as="",
        results="",
        server_url="",
        template="",
    )


def loaded(root: Path) -> ModuleType:
    path = root / "product" / "store.py"
    spec = spec_from_file_location("store_of_mutants", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def mutant_of(root: Path, original: str) -> Mutant:
    (mutant,) = [
        mutant for mutant in find_mutants(root, ["product"]) if mutant.original == original
    ]
    return mutant


def test_faults_lie_in_functions_alone(root: Path) -> None:
    changes = {
        (mutant.function, mutant.operator, mutant.original, mutant.replacement)
        for mutant in find_mutants(root, ["product"])
    }
    condition = "count <= self.size and min(count, 5) < LIMIT"
    in_store, in_adder = "Store.has_space", "adder.<locals>.add"
    assert changes == {
        ("Store.__init__", "statement removed", "self.size = size", "pass"),
        (in_store, "unary", "not count", "(count)"),
        (in_store, "return value", f"return {condition}", f"return not ({condition})"),
        (in_store, "and or", condition, f"({condition.replace('and', 'or')})"),
        (in_store, "comparison", "count <= self.size", "(count < self.size)"),
        (in_store, "comparison", "min(count, 5) < LIMIT", "(min(count, 5) <= LIMIT)"),
        (in_store, "opposite function", "min", "max"),
        (in_store, "constant", "5", "(6)"),
        (in_adder, "arithmetic", "number += step", "number -= step"),
        (in_adder, "statement removed", "number += step", "pass"),
        (in_adder, "return value", "return number", "return None"),
        ("adder", "return value", "return add", "return None"),
    }


def test_a_seed_chooses_the_same_mutants_also_where_lines_have_moved(root: Path) -> None:
    mutants = find_mutants(root, ["product"])
    assert shuffled(mutants, 1) == shuffled(mutants, 1) != shuffled(mutants, 2)
    path = root / "product" / "store.py"
    path.write_text(f"# A line more.\n{SOURCE.replace('return add', 'return  add')}", "utf-8")
    moved = {mutant.identity for mutant in find_mutants(root, ["product"])}
    assert [mutant.original for mutant in mutants if mutant.identity not in moved] == ["return add"]


def test_faults_that_need_a_new_function_are_left_out(root: Path) -> None:
    mutants = find_mutants(root, ["product"])
    assert [*compiling(mutants, root)] == mutants
    # Without its only `super` a method takes no `__class__` from outside any more.
    child = (
        "class Child(list):\n    def clear(self):\n        super().clear()\n        self.clear()\n"
    )
    (root / "product" / "store.py").write_text(child, encoding="utf-8")
    remaining = compiling(find_mutants(root, ["product"]), root)
    assert [mutant.original for mutant in remaining] == ["self.clear()"]


@pytest.mark.parametrize("original", ["count <= self.size", "return number"])
def test_living_functions_get_the_fault(root: Path, original: str) -> None:
    module = loaded(root)
    store, add = module.Store(), module.adder(3)
    assert (store.has_space(2), add(4)) == (True, 7)
    mutant = mutant_of(root, original)
    path = root / mutant.path
    # As programs do when they have started.
    gc.freeze()
    patch(mutant.apply(path.read_bytes()), str(path), mutant.function, mutant.line)
    expected = (False, 7) if original == "count <= self.size" else (True, None)
    assert (store.has_space(2), add(4)) == expected


def test_code_that_nobody_has_is_not_patched(root: Path) -> None:
    mutant = mutant_of(root, "self.size = size")
    with pytest.raises(NotPatched):
        patch(SOURCE.encode(), str(root / "elsewhere.py"), mutant.function, mutant.line)


def test_lines_are_recorded_for_each_test(root: Path) -> None:
    module = loaded(root)
    path = str(root / "product" / "store.py")
    tracer = LineTracer([path])
    tracing = sys.gettrace(), threading.gettrace()
    tracer.start()
    try:
        module.Store().has_space(1)
        first = tracer.take()
        module.adder(1)(1)
        second = tracer.take()
    finally:
        sys.settrace(tracing[0])
        threading.settrace(tracing[1])  # type: ignore[arg-type]  # None ends it
    assert (first, second) == ({path: {13, 16, 18}}, {path: {21, 22, 23, 24}})


def test_a_map_is_read_again_without_a_file_that_did_not_end(root: Path) -> None:
    path = str(root / "product" / "store.py")
    coverage = CoverageMap(root / "map.jsonl", str(root))
    coverage.set_imported({path: {24}})
    coverage.add_test("tests/test_a.py::a", "passed", 0.5, {path: {13, 16}})
    coverage.add_test("tests/test_a.py::b", "failed", 0.5, {path: {13, 16}})
    coverage.end_file("tests/test_a.py")
    coverage.add_test("tests/test_b.py::c", "passed", 0.5, {path: {18}})
    again = CoverageMap(root / "map.jsonl", str(root))
    again.read()
    assert [test.name for test in again.tests] == ["tests/test_a.py::a"]
    assert (again.files, again.failed) == ({"tests/test_a.py"}, ["tests/test_a.py::b"])
    assert again.tests[0].runs("product/store.py", [16])
    assert not again.tests[0].runs("product/store.py", [14, 15])
    placed, sites = mutants_to_try(job(root), again)
    assert sites == len([*placed]) == len(find_mutants(root, ["product"])) - 1, "24 ran at import"


def test_fast_files_come_first_and_no_file_takes_all_places(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MAX_TESTS", 3)
    mutant = mutant_of(root, "self.size = size")
    lines = {mutant.path: 1 << mutant.line}
    slow = [TestLines(name=f"a.py::{n}", seconds=0.3, lines=lines) for n in range(4)]
    fast = [TestLines(name=f"b.py::{n}", seconds=0.1, lines=lines) for n in range(2)]
    apart = TestLines(name="c.py::0", seconds=0.1, lines={mutant.path: 1 << 3})
    chosen, covering = choose_tests(mutant, [*slow, *fast, apart])
    assert [test.name for test in chosen] == ["b.py::0", "b.py::1", "a.py::0"]
    assert covering == 6
    assert choose_tests(mutant, [apart]) == ([], 0)


def test_results_are_read_as_they_were_written(root: Path) -> None:
    mutants = find_mutants(root, ["product"])[:3]
    statuses = (KILLED, SURVIVED, UNTESTED)
    results = Results(
        commit="c",
        seed=1,
        verdicts=[
            Verdict(mutant=mutant, status=status)
            for mutant, status in zip(mutants, statuses, strict=True)
        ],
    )
    results.write(root / "results.json")
    assert Results.read(root / "results.json") == results
    assert results.share_killed == pytest.approx(1 / 3)
    same = replace(job(root), same_as=str(root / "results.json"))
    placed, _ = mutants_to_try(same, CoverageMap(root / "map.jsonl", str(root)))
    assert [*placed] == [(mutant, mutant) for mutant in mutants]
