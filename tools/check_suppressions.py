"""Whatever silences a tool says why, in the same comment: ``# noqa: S311 - jitter, no secret``.

mypy takes nothing but a further comment: ``# type: ignore[override]  # the stub knows no writers``.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tools.check_sizes import judged

SUPPRESSION = re.compile(
    r"#\s*(?:"
    r"(?:(?:ruff|flake8):\s*)?noqa(?::\s*[A-Z]+[0-9]+(?:[,\s]+[A-Z]+[0-9]+)*)?"
    r"|type:\s*ignore(?:\[[^]]*\])?"
    r"|pragma:\s*no\s+\w+"
    r")",
    re.IGNORECASE,
)


def violations(path: Path, source: str) -> Iterator[str]:
    if SUPPRESSION.search(source) is None:
        return  # Telling comments from text takes its time, and few files need it.
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and lacks_reason(token.string):
            yield f"{path}:{token.start[0]}: {token.string} gives no reason"


def lacks_reason(comment: str) -> bool:
    reason, suppressions = SUPPRESSION.subn("", comment)
    return suppressions > 0 and not re.search(r"[#-] +\w", reason)


if __name__ == "__main__":
    sys.exit(judged(violations))
