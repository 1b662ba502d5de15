"""Graded resource models: ranges of free resources, lower end included, into which nodes fall.

Pure. Must not turn grades into replicas: ``federation.capacity.summary_estimates`` does.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final

from federation.model.errors import Violation
from federation.model.resources import (
    CPU,
    EPHEMERAL_STORAGE,
    MAX_AMOUNT,
    MEMORY,
    STORAGE,
    format_amount,
)

MODELLED_RESOURCES: Final = (CPU, MEMORY, STORAGE, EPHEMERAL_STORAGE)

# The position of a node below all grades: one of its resources is over-committed.
UNGRADED: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class GradeRange:
    """A range ``min <= amount < max`` in base units; MAX_AMOUNT means no upper bound."""

    name: str
    min: int
    max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """One grade: a number and a range for every resource of the model."""

    grade: int
    ranges: tuple[GradeRange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceModel:
    """Grades in ascending order. Without grades there is no model, and no node is graded."""

    grades: tuple[Grade, ...] = ()

    @property
    def resources(self) -> tuple[str, ...]:
        """Return the resources that every grade bounds, in the order of the first grade."""
        return tuple(bounds.name for bounds in self.grades[0].ranges) if self.grades else ()


def _default_model() -> ResourceModel:
    cpu_millis = [1000 * cores for cores in (0, 1, 2, 4, 8, 16, 32, 64, 128)]
    memory_bytes = [gibibytes << 30 for gibibytes in (0, 4, 16, 32, 64, 128, 256, 512, 1024)]
    cpu_bounds = list(pairwise([*cpu_millis, MAX_AMOUNT]))
    memory_bounds = list(pairwise([*memory_bytes, MAX_AMOUNT]))
    return ResourceModel(
        grades=tuple(
            Grade(
                grade=number,
                ranges=(
                    GradeRange(name=CPU, min=cpu[0], max=cpu[1]),
                    GradeRange(name=MEMORY, min=memory[0], max=memory[1]),
                ),
            )
            for number, (cpu, memory) in enumerate(zip(cpu_bounds, memory_bounds, strict=True))
        )
    )


DEFAULT_MODEL: Final = _default_model()


def validate_model(model: ResourceModel, *, field: str = "resourceModels") -> list[Violation]:
    """Return every broken rule of a model, with paths such as ``resourceModels[2].ranges[1].max``.

    A model without grades is valid: it switches modelling off.
    """
    violations = [*_distinct_grades(model, field), *_same_resources(model, field)]
    for position, grade in enumerate(model.grades):
        is_last = position == len(model.grades) - 1
        for place, bounds in enumerate(grade.ranges):
            path = f"{field}[{position}].ranges[{place}]"
            violations += _range_violations(bounds, path, first=position == 0, last=is_last)
    for position, (lower, upper) in enumerate(pairwise(model.grades), start=1):
        violations += _gaps(lower, upper, f"{field}[{position}]")
    return violations


def _distinct_grades(model: ResourceModel, field: str) -> list[Violation]:
    violations = []
    seen: set[int] = set()
    for position, grade in enumerate(model.grades):
        path = f"{field}[{position}].grade"
        if grade.grade < 0:
            violations.append(Violation(field=path, rule="a grade is at least 0"))
        if grade.grade in seen:
            rule = f"grade {grade.grade} is there already: grades must be distinct"
            violations.append(Violation(field=path, rule=rule))
        elif seen and grade.grade < max(seen):
            violations.append(Violation(field=path, rule="list the grades in ascending order"))
        seen.add(grade.grade)
    return violations


def _same_resources(model: ResourceModel, field: str) -> list[Violation]:
    violations = []
    expected = set(model.resources)
    for position, grade in enumerate(model.grades):
        path = f"{field}[{position}].ranges"
        counts = Counter(bounds.name for bounds in grade.ranges)
        if not counts:
            violations.append(Violation(field=path, rule="a grade needs at least one resource"))
        for name, count in counts.items():
            if count > 1:
                violations.append(
                    Violation(field=path, rule=f"{name} is there {count} times: give it one range")
                )
        if counts and set(counts) != expected:
            violations.append(
                Violation(
                    field=path,
                    rule="every grade must have the resources of the first: "
                    + ", ".join(sorted(expected)),
                )
            )
    return violations


def _range_violations(bounds: GradeRange, path: str, *, first: bool, last: bool) -> list[Violation]:
    violations = []
    if bounds.name not in MODELLED_RESOURCES:
        rule = f"{bounds.name!r} cannot be modelled: use one of {', '.join(MODELLED_RESOURCES)}"
        violations.append(Violation(field=f"{path}.name", rule=rule))
    if first and bounds.min != 0:
        rule = f"the first grade starts at 0, not {format_amount(bounds.name, bounds.min)}"
        violations.append(Violation(field=f"{path}.min", rule=rule))
    if bounds.max <= bounds.min:
        violations.append(Violation(field=f"{path}.max", rule="max must be greater than min"))
    if last and bounds.max != MAX_AMOUNT:
        rule = f"the last grade has no upper bound: write {MAX_AMOUNT}"
        violations.append(Violation(field=f"{path}.max", rule=rule))
    return violations


def _gaps(lower: Grade, upper: Grade, path: str) -> list[Violation]:
    """Return the violations of resources where ``upper`` does not start at the end of ``lower``."""
    ends = {bounds.name: bounds.max for bounds in lower.ranges}
    return [
        Violation(
            field=f"{path}.ranges[{place}].min",
            rule="must start where the grade before ends, at "
            + format_amount(bounds.name, ends[bounds.name]),
        )
        for place, bounds in enumerate(upper.ranges)
        if bounds.name in ends and bounds.min != ends[bounds.name]
    ]


@lru_cache(maxsize=1024)
def minimums(model: ResourceModel) -> dict[str, tuple[int, ...]]:
    """Return the lower ends of the grades, ascending, by resource name."""
    return {
        name: tuple(
            next(bounds.min for bounds in grade.ranges if bounds.name == name)
            for grade in model.grades
        )
        for name in model.resources
    }


@lru_cache(maxsize=1024)
def model_hash(model: ResourceModel) -> str:
    """Return a name of the model by its content: the same in every process and release."""
    spelled = ";".join(
        f"{grade.grade}:" + ",".join(f"{r.name}={r.min}..{r.max}" for r in _by_resource(grade))
        for grade in model.grades
    )
    return hashlib.sha256(spelled.encode()).hexdigest()[:16]


def _by_resource(grade: Grade) -> list[GradeRange]:
    """Return the ranges by resource name: their order in a grade has no meaning."""
    return sorted(grade.ranges, key=lambda bounds: bounds.name)
