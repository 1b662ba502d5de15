"""Control planes, agents and PostgreSQL killed again and again: no promise may be broken.

``--bridge``: a bridge, its control plane and Karmada's API server instead: the end is as if nothing
had been. Exits with 1 when one was, or an answer was lost, or a caller was stuck.
"""

from __future__ import annotations

import sys

from lab.chaos.bridged import BridgePlan, disturb
from lab.chaos.havoc import Plan, wreak
from lab.chaos.losses import lose
from lab.planes import durable_postgres
from lab.programs import clean_up_when_ended, own_folder, parser
from lab.verdicts import Verdicts


def main() -> int:
    options = parser("chaos", __doc__)
    options.add_argument("--seconds", type=float, default=120.0)
    options.add_argument("--planes", type=int, default=3)
    options.add_argument("--callers", type=int, default=8)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--losses", action="store_true", help="clusters that are lost instead")
    options.add_argument("--bridge", action="store_true", help="a bridge to Karmada instead")
    options.add_argument("--bindings", type=int, default=500, help="with --bridge")
    options.add_argument("--kills", type=int, default=12, help="with --bridge")
    given = options.parse_args()
    bridged = BridgePlan(bindings=given.bindings, kills=given.kills, seed=given.seed)
    plan = Plan(seconds=given.seconds, planes=given.planes, callers=given.callers, seed=given.seed)
    figures = Verdicts("chaos")
    with own_folder("chaos") as folder:
        if given.bridge:
            figures.section(f"a bridge and what it needs, killed {given.kills} times")
            with durable_postgres(folder) as postgres:
                return disturb(folder, postgres.url, bridged).show(figures)
        what = "clusters lost" if given.losses else "control planes, agents and PostgreSQL killed"
        figures.section(f"{what}, {given.planes} control planes")
        return (lose if given.losses else wreak)(folder, plan).show(figures)


if __name__ == "__main__":
    clean_up_when_ended()
    sys.exit(main())
