"""Values to plain builtins and back, whatever the hints of their arrays are at run time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pytest
from typing_extensions import TypeAliasType

from federation.scheduler.serialization import from_plain, to_plain

Item = TypeVar("Item", bound=np.generic)
# numpy's own NDArray is one or the other, by its version.
ByClass: TypeAlias = np.ndarray[tuple[Any, ...], np.dtype[Item]]
ByStatement = TypeAliasType("ByStatement", ByClass[Item], type_params=(Item,))
OneInt: TypeAlias = ByClass[np.int8]
OneFloat = TypeAliasType("OneFloat", ByStatement[np.float64])


@dataclass(frozen=True)
class OfClasses:
    plain_c: OneInt
    by_name: dict[str, ByClass[np.int64]]
    real_c: ByClass[np.float64]


@dataclass(frozen=True)
class OfStatements:
    plain_c: ByStatement[np.int8]
    by_name: dict[str, ByStatement[np.int64]]
    real_c: OneFloat


@pytest.mark.parametrize("kind", [OfClasses, OfStatements])
def test_arrays_come_back_with_their_kind_of_number(kind: type[Any]) -> None:
    value = kind(
        plain_c=np.array([1, 2], np.int8),
        by_name={"spread": np.array([3], np.int64)},
        real_c=np.array([0.5], np.float64),
    )
    again = from_plain(kind, to_plain(value))
    assert (again.plain_c.dtype, again.plain_c.tolist()) == (np.int8, [1, 2])
    assert (again.by_name["spread"].dtype, again.by_name["spread"].tolist()) == (np.int64, [3])
    assert (again.real_c.dtype, again.real_c.tolist()) == (np.float64, [0.5])


@pytest.mark.parametrize("plain", [1, {"by_name": 1}, {"by_name": [2]}, "by_name"])
def test_what_has_no_names_is_refused_and_no_fault(plain: object) -> None:
    """As a damaged trace has it; `make fuzz` found one."""
    with pytest.raises(TypeError, match="where names and values were expected"):
        from_plain(OfClasses, plain)
