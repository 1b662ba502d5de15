"""Control planes, agents and PostgreSQL killed again and again: no promise may be broken.

``--bridge``: a bridge, its control plane and Karmada's API server instead: the end is as if nothing
had been. Exits with 1 when one was, or an answer was lost, or a caller was stuck.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from lab.chaos.bridged import BridgePlan, disturb
from lab.chaos.havoc import Plan, Result, wreak
from lab.chaos.losses import lose
from lab.chaos.planes import durable_postgres
from lab.ending import clean_up_when_ended

MOST_SHOWN = 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--planes", type=int, default=3)
    parser.add_argument("--callers", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--losses", action="store_true", help="clusters that are lost instead")
    parser.add_argument("--bridge", action="store_true", help="a bridge to Karmada instead")
    parser.add_argument("--bindings", type=int, default=500, help="with --bridge")
    parser.add_argument("--kills", type=int, default=12, help="with --bridge")
    given = parser.parse_args()
    bridged = BridgePlan(bindings=given.bindings, kills=given.kills, seed=given.seed)
    plan = Plan(seconds=given.seconds, planes=given.planes, callers=given.callers, seed=given.seed)
    with tempfile.TemporaryDirectory(prefix="fedsched-chaos-", dir="/var/tmp") as folder:
        if given.bridge:
            with durable_postgres(Path(folder)) as postgres:
                result = disturb(Path(folder), postgres.url, bridged)
        else:
            result = (lose if given.losses else wreak)(Path(folder), plan)
    show(result)
    return 1 if result.violations else 0


def show(result: Result) -> None:
    for name, value in result.counts.items():
        print(f"{name:24} {value}")
    print(f"{'violations':24} {len(result.violations)}")
    for each in result.violations[:MOST_SHOWN]:
        print(f"  {each}")


if __name__ == "__main__":
    clean_up_when_ended()
    sys.exit(main())
