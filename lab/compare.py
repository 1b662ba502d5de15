"""Two checkouts behind the agents that each ships: CPU of the control plane for each decision.

Each has its own .venv, made by ``make install``; they run by turns, so that whatever else the
machine does comes to both. A commit in place of a folder is checked out and installed first. Ends
with 1 where the second needs more than 1/0.95 of the first's CPU for a kind of load.

    python -m lab.compare BASE [HEAD] [ROUNDS] [--decisions N] [--kinds same,nine]
    python -m lab.compare BASE [HEAD] [ROUNDS] --fleet CLUSTERS [--seconds N]

With ``--fleet`` that many clusters of 500 nodes report once, as shipped agents do, and the loads
are those of ``lab.benchmarks decisions``: single calls, batches, and batches over all clusters.
Without it the kinds are: one size (same), nine sizes (nine), with large pods (large), until two
clusters of 54 and 58 nodes are full (full), and in 250 nodes of which no two are alike, with large
pods (unlike).
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from lab.benchmarks.bench_decisions import LOADS, STORED_LOADS, Cost, Load, driven
from lab.benchmarks.members import federation, report_all
from lab.fleet import FleetPlan, dumped
from lab.programs import own_folder, parser
from lab.verdicts import Verdicts, at_least

ROOT: Final = Path(__file__).resolve().parents[1]
INNER: Final = Path(__file__).with_name("compared_plane.py")
KINDS: Final = ("same", "nine", "large", "full", "unlike")
CLUSTERS: Final = {
    "m1": FleetPlan(nodes=54, seed=1),
    "m2": FleetPlan(nodes=58, seed=2),
    "m3": FleetPlan(nodes=250, seed=3, is_unlike=True),
}
# A decision over more clusters takes long, and a call ends after two minutes.
MAX_CLUSTERS_OF_LARGE_BATCHES: Final = 100
# Decisions of a core's time: the second of the first.
MIN_RATIO: Final = 0.95

FIGURES = Verdicts("compare")

Run = Mapping[str, Mapping[str, Any]]


def checkout(named: str, folder: Path) -> Path:
    """The folder of that name if it is an installed checkout; else a clone of that commit."""
    path = Path(named).resolve()
    if (path / ".venv/bin/python").exists():
        return path
    if path.is_dir():
        raise SystemExit(f"{path} has no .venv: run make install there")
    clone = folder / f"checkout-{named.replace('/', '-')}"
    for command in (
        ["git", "clone", "--quiet", "--no-checkout", str(ROOT), str(clone)],
        ["git", "-C", str(clone), "checkout", "--quiet", "--detach", commit_of(named)],
        ["make", "-C", str(clone), "install"],
    ):
        subprocess.run(command, check=True, stdout=sys.stderr)
    return clone


def commit_of(named: str) -> str:
    """The full name of a commit, as a clone may lack the branch."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--verify", f"{named}^{{commit}}"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{named} is neither a folder nor a commit")
    return done.stdout.strip()


def measured(tree: Path, dumps: Path, decisions: int, kinds: Sequence[str]) -> Run:
    """What the inner program prints in that checkout."""
    # -P: the folder of the program, which is this checkout's, must not hide modules of the other.
    command = [str(tree / ".venv/bin/python"), "-P", str(INNER), str(dumps)]
    done = subprocess.run(
        [*command, str(decisions), ",".join(kinds)],
        cwd=tree,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"the measurement failed in {tree}")
    run: Run = json.loads(done.stdout.splitlines()[-1])
    return run


def measured_fleet(tree: Path, clusters: int, seconds: float) -> Run:
    """Measure the loads of ``bench_decisions`` on a control plane of a checkout."""
    run: dict[str, Mapping[str, Any]] = {}
    with own_folder("compare-fleet") as own, federation(own, 1, clusters, checkout=tree) as fleet:
        planes, postgres, credentials = fleet
        asyncio.run(report_all(planes, credentials))
        for load in loads_of(clusters):
            began = Cost.now(planes.all[0].pid, postgres)
            figures = driven(planes.endpoints, planes.token, load, seconds)
            decisions = figures["decisions"]
            cost = Cost.now(planes.all[0].pid, postgres).each_since(began, decisions)
            outcomes = {"SCHEDULED": round(decisions)}
            run[load.name] = {**figures, "cpu_millis": 1000 * cost.plane, "outcomes": outcomes}
    return run


def loads_of(clusters: int) -> Sequence[Load]:
    return LOADS if clusters <= MAX_CLUSTERS_OF_LARGE_BATCHES else STORED_LOADS


def show(kinds: Sequence[str], before: Sequence[Run], after: Sequence[Run]) -> None:
    """The least CPU of all rounds for each kind, of both, and the ratio."""
    FIGURES.section("CPU of the control plane for each decision")
    for kind in kinds:
        old, new = (min(runs, key=lambda run: cpu_of(run, kind)) for runs in (before, after))
        FIGURES.row(f"{kind}, first", cpu_of(old, kind), "ms", detail=detail_of(old[kind]))
        FIGURES.row(f"{kind}, second", cpu_of(new, kind), "ms", detail=detail_of(new[kind]))
        ratio = cpu_of(old, kind) / cpu_of(new, kind)
        FIGURES.row(f"{kind}, first / second", ratio, "x", goal=at_least(MIN_RATIO))


def cpu_of(run: Run, kind: str) -> float:
    return float(run[kind]["cpu_millis"])


def detail_of(figures: Mapping[str, Any]) -> str:
    outcomes = ", ".join(
        f"{count} {name.removeprefix('OUTCOME_')}" for name, count in figures["outcomes"].items()
    )
    rate, p50, p99 = (figures[name] for name in ("per_second", "p50_millis", "p99_millis"))
    return f"{rate:.0f}/s, p50 {p50:.0f} ms, p99 {p99:.0f} ms; {outcomes}"


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser("compare", __doc__)
    options.add_argument("base", help="a commit, or a folder with a .venv")
    options.add_argument("head", nargs="?", default=str(ROOT), help="by default this checkout")
    options.add_argument("rounds", nargs="?", type=int, default=2)
    options.add_argument("--decisions", type=int, default=200, help="of each kind")
    options.add_argument("--kinds", default=",".join(KINDS))
    options.add_argument("--fleet", type=int, default=0, help="so many clusters that report once")
    options.add_argument("--seconds", type=float, default=10.0, help="of each load of a fleet")
    given = options.parse_args(arguments)
    kinds = given.kinds.split(",")
    if unknown := set(kinds) - set(KINDS):
        options.error(f"kinds of load are {', '.join(KINDS)}, not {', '.join(sorted(unknown))}")
    with own_folder("compare") as folder:
        trees = [checkout(tree, folder) for tree in (given.base, given.head)]
        for cluster, plan in CLUSTERS.items():
            (folder / f"{cluster}.json").write_bytes(dumped(plan))
        runs: tuple[list[Run], list[Run]] = ([], [])
        for _ in range(given.rounds):
            for tree, own_runs in zip(trees, runs, strict=True):
                if given.fleet:
                    own_runs.append(measured_fleet(tree, given.fleet, given.seconds))
                else:
                    own_runs.append(measured(tree, folder, given.decisions, kinds))
        show(list(runs[0][0]), *runs)
    return int(FIGURES.missed > 0)


if __name__ == "__main__":
    sys.exit(main())
