"""Ten thousand decisions made under load, and all of them made again.

Exits with 1 where one is not equal.
"""

from __future__ import annotations

import sys

from lab.programs import clean_up_when_ended, own_folder, parser
from lab.replays.storm import Storm, replay_storm
from lab.verdicts import Verdicts


def main() -> int:
    options = parser("replays", __doc__)
    options.add_argument("--decisions", type=int, default=10_000)
    options.add_argument("--planes", type=int, default=2)
    options.add_argument("--asked", type=int, default=500, help="of control planes, one by one")
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    storm = Storm(
        decisions=given.decisions, planes=given.planes, asked=given.asked, seed=given.seed
    )
    figures = Verdicts("replays")
    figures.section(f"{given.decisions:,} decisions of a storm, made again")
    with own_folder("replays") as folder:
        return replay_storm(folder, storm).show(figures)


if __name__ == "__main__":
    clean_up_when_ended()
    sys.exit(main())
