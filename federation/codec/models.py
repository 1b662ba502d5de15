"""Resource models and grade counts, from messages and back.

Must not judge a model: ``federation.model.grades`` holds its rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from federation.codec.violations import Violations
from federation.model.grades import (
    DEFAULT_MODEL,
    Grade,
    GradeRange,
    ResourceModel,
    validate_model,
)
from federation.model.quantity import QuantityError, parse_quantity
from federation.model.resources import MAX_AMOUNT, amount_of, format_amount
from federation.v1 import resource_pb2

_UNBOUNDED: Final = str(MAX_AMOUNT)


def read_model(
    messages: Iterable[resource_pb2.ResourceModel], path: str, found: Violations
) -> ResourceModel:
    """The model, its rules checked; without grades the default model."""
    readable = True
    grades = []
    for position, message in enumerate(messages):
        bounds = []
        for place, each in enumerate(message.ranges):
            here = f"{path}[{position}].ranges[{place}]"
            least = _bound(each.name, each.min, f"{here}.min", found)
            most = _bound(each.name, each.max, f"{here}.max", found)
            readable = readable and least is not None and most is not None
            bounds.append(GradeRange(name=each.name, min=least or 0, max=most or 0))
        grades.append(Grade(grade=message.grade, ranges=tuple(bounds)))
    if not grades:
        return DEFAULT_MODEL
    model = ResourceModel(grades=tuple(grades))
    if readable:
        found.extend(validate_model(model, field=path))
    return model


def model_to_messages(model: ResourceModel) -> list[resource_pb2.ResourceModel]:
    return [
        resource_pb2.ResourceModel(
            grade=grade.grade,
            ranges=[
                resource_pb2.ResourceModelRange(
                    name=each.name,
                    min=format_amount(each.name, each.min),
                    max=_UNBOUNDED
                    if each.max == MAX_AMOUNT
                    else format_amount(each.name, each.max),
                )
                for each in grade.ranges
            ],
        )
        for grade in model.grades
    ]


def read_grade_counts(
    messages: Iterable[resource_pb2.AllocatableModeling], path: str, found: Violations
) -> dict[int, int]:
    """Node counts by grade. Grades that the model lacks are kept: estimates pass over them."""
    counts: dict[int, int] = {}
    for position, message in enumerate(messages):
        if message.grade in counts:
            found.add(f"{path}[{position}].grade", f"grade {message.grade} is there already")
        counts[message.grade] = message.count
    return counts


def grade_count_messages(counts: Mapping[int, int]) -> list[resource_pb2.AllocatableModeling]:
    return [
        resource_pb2.AllocatableModeling(grade=grade, count=counts[grade])
        for grade in sorted(counts)
    ]


def _bound(name: str, text: str, path: str, found: Violations) -> int | None:
    """A grade's bound in base units; MaxInt64 stands for "none", also of what counts in millis."""
    try:
        if parse_quantity(text).whole() == MAX_AMOUNT:
            return MAX_AMOUNT
        return amount_of(name, text)
    except QuantityError as error:
        found.add(path, str(error) if text else "is required")
        return None
