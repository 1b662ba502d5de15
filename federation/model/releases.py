"""How far two programs of fedsched are apart, by their versions.

Pure. Must not know which program has which.
"""

from __future__ import annotations

import re
from typing import Final

# Programs that far apart do not talk to each other.
TOO_FAR: Final = 2
_RELEASE: Final = re.compile(r"(\d{1,9})\.(\d{1,9})(?:\..*)?", re.ASCII | re.DOTALL)


def releases_apart(one: str, other: str) -> int:
    """How many minor releases; other major ones are too far. 0 where a version is none of ours."""
    first, second = _RELEASE.fullmatch(one), _RELEASE.fullmatch(other)
    if first is None or second is None:
        return 0
    if int(first[1]) != int(second[1]):
        return TOO_FAR
    return abs(int(first[2]) - int(second[2]))
