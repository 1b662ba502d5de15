"""Resource models: the default one, every rule a custom one can break, and node grading."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from federation.model.errors import Violation
from federation.model.grade_counts import count_grades, grade_of_nodes
from federation.model.grades import (
    DEFAULT_MODEL,
    Grade,
    GradeRange,
    ResourceModel,
    minimums,
    model_hash,
    validate_model,
)
from federation.model.resources import MAX_AMOUNT

GIB = 1 << 30


def grade(number: int, **bounds: tuple[int, int]) -> Grade:
    return Grade(
        grade=number,
        ranges=tuple(
            GradeRange(name=name.replace("_", "-"), min=low, max=high)
            for name, (low, high) in bounds.items()
        ),
    )


def told(*grades: Grade) -> list[tuple[str, str]]:
    return [(each.field, each.rule) for each in validate_model(ResourceModel(grades=grades))]


GOOD = (grade(0, cpu=(0, 1000)), grade(1, cpu=(1000, MAX_AMOUNT)))


def test_the_default_model_has_nine_grades() -> None:
    bounds = minimums(DEFAULT_MODEL)
    assert [amount // 1000 for amount in bounds["cpu"]] == [0, 1, 2, 4, 8, 16, 32, 64, 128]
    assert [amount // GIB for amount in bounds["memory"]] == [
        0, 4, 16, 32, 64, 128, 256, 512, 1024,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "model",
    [
        DEFAULT_MODEL,
        ResourceModel(),
        ResourceModel(grades=GOOD),
        ResourceModel(
            grades=(
                grade(0, cpu=(0, 1), ephemeral_storage=(0, GIB)),
                grade(5, ephemeral_storage=(GIB, MAX_AMOUNT), cpu=(1, MAX_AMOUNT)),
            )
        ),
    ],
)
def test_valid_models(model: ResourceModel) -> None:
    assert validate_model(model) == []


CANNOT_MODEL = "use one of cpu, memory, storage, ephemeral-storage"
GPU = Grade(grade=0, ranges=(GradeRange(name="nvidia.com/gpu", min=0, max=MAX_AMOUNT),))


@pytest.mark.parametrize(
    ("grades", "field", "rule"),
    [
        (
            (grade(0, cpu=(0, 1)), grade(1, cpu=(1, 2)), grade(0, cpu=(2, MAX_AMOUNT))),
            "[2].grade",
            "grade 0 is there already: grades must be distinct",
        ),
        ((replace(GOOD[0], grade=2), GOOD[1]), "[1].grade", "list the grades in ascending order"),
        ((replace(GOOD[0], grade=-1), GOOD[1]), "[0].grade", "a grade is at least 0"),
        (
            (GOOD[0], grade(1, memory=(0, MAX_AMOUNT))),
            "[1].ranges",
            "every grade must have the resources of the first: cpu",
        ),
        (
            (replace(GOOD[0], ranges=GOOD[0].ranges * 2), GOOD[1]),
            "[0].ranges",
            "cpu is there 2 times: give it one range",
        ),
        ((Grade(grade=0, ranges=()),), "[0].ranges", "a grade needs at least one resource"),
        ((GPU,), "[0].ranges[0].name", f"'nvidia.com/gpu' cannot be modelled: {CANNOT_MODEL}"),
        (
            (grade(0, cpu=(0, 0)), grade(1, cpu=(0, MAX_AMOUNT))),
            "[0].ranges[0].max",
            "max must be greater than min",
        ),
        (
            (grade(0, cpu=(500, MAX_AMOUNT)),),
            "[0].ranges[0].min",
            "the first grade starts at 0, not 500m",
        ),
        (
            (GOOD[0], grade(1, cpu=(1000, 2000))),
            "[1].ranges[0].max",
            "the last grade has no upper bound: write 9223372036854775807",
        ),
        (
            (GOOD[0], grade(1, cpu=(1500, MAX_AMOUNT))),
            "[1].ranges[0].min",
            "must start where the grade before ends, at 1",
        ),
    ],
)
def test_a_broken_rule_is_told_with_its_path(
    grades: tuple[Grade, ...], field: str, rule: str
) -> None:
    found = told(*grades)
    assert (f"resourceModels{field}", rule) in found
    assert len(found) == 1 or "distinct" in rule


def test_every_violation_is_told_at_once() -> None:
    fields = [field for field, _ in told(grade(0, cpu=(1, 1)), grade(0, cpu=(2, 3)))]
    assert fields == [
        "resourceModels[1].grade",
        "resourceModels[0].ranges[0].min",
        "resourceModels[0].ranges[0].max",
        "resourceModels[1].ranges[0].max",
        "resourceModels[1].ranges[0].min",
    ]


def test_the_path_starts_where_the_caller_says() -> None:
    violations = validate_model(ResourceModel(grades=GOOD[1:]), field="spec.resourceModels")
    assert violations == [
        Violation(
            field="spec.resourceModels[0].ranges[0].min",
            rule="the first grade starts at 0, not 1",
        )
    ]


def test_ranges_hold_their_lower_end_and_the_lowest_grade_counts() -> None:
    free_rn = np.array([[1000, 999, 4000, 10**9, -1], [4 * GIB, 64 * GIB, 16 * GIB - 1, 0, 1]])
    assert grade_of_nodes(DEFAULT_MODEL, free_rn).tolist() == [1, 0, 1, 0, -1]


def test_counts_are_by_grade_number_and_leave_overdrawn_nodes_out() -> None:
    model = ResourceModel(grades=(GOOD[0], replace(GOOD[1], grade=7)))
    assert count_grades(model, np.array([[0, 999, 1000, -1]])) == {0: 2, 7: 1}


def test_no_nodes_are_zeros_and_not_nothing() -> None:
    assert count_grades(ResourceModel(grades=GOOD), np.zeros((1, 0), dtype=np.int64)) == {
        0: 0,
        1: 0,
    }


def test_the_hash_follows_what_the_model_says() -> None:
    both = grade(0, cpu=(0, MAX_AMOUNT), memory=(0, MAX_AMOUNT))
    swapped = grade(0, memory=(0, MAX_AMOUNT), cpu=(0, MAX_AMOUNT))
    assert model_hash(ResourceModel(grades=(both,))) == model_hash(ResourceModel(grades=(swapped,)))
    assert model_hash(ResourceModel(grades=GOOD)) != model_hash(DEFAULT_MODEL)


def test_the_hash_of_the_default_model_never_changes() -> None:
    assert model_hash(DEFAULT_MODEL) == "d2ef17f35146c0eb"
