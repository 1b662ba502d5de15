"""Ten thousand decisions made under load, and all of them made again.

Exits with 1 where one is not equal.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from lab.chaos.__main__ import show
from lab.ending import clean_up_when_ended
from lab.replays.storm import Storm, replay_storm


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.replays", description=__doc__)
    parser.add_argument("--decisions", type=int, default=10_000)
    parser.add_argument("--planes", type=int, default=2)
    parser.add_argument("--asked", type=int, default=500, help="of control planes, one by one")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    storm = Storm(
        decisions=given.decisions, planes=given.planes, asked=given.asked, seed=given.seed
    )
    with tempfile.TemporaryDirectory(prefix="fedsched-replays-", dir="/var/tmp") as folder:
        result = replay_storm(Path(folder), storm)
    show(result)
    return 1 if result.violations else 0


if __name__ == "__main__":
    clean_up_when_ended()
    sys.exit(main())
