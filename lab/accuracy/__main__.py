"""How true estimates from pools are, and what promises made on them are worth, held to goals.

Exits with 1 when a goal is missed. ``--full`` tries a million pairs of cluster and shape.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np

from lab.accuracy import reservations
from lab.accuracy.goals import (
    BUDGETS,
    CUSTOMARY,
    RANDOM,
    Answers,
    Method,
    Results,
    answers,
    errors,
    judge,
    rival,
    simple,
    tighter,
    upper,
)
from lab.packed_clusters import (
    FILLS,
    MIXES,
    ClusterPlan,
    PackingStrategy,
    customary_shapes,
    random_shapes,
)
from lab.programs import parser
from lab.verdicts import Verdicts

SIZES = (20, 200, 2000, 5000)
PROCESSES = 2
METHODS: Mapping[str, Method] = {
    **{name: rival(name) for name in ("summary", "documented", "boundary", "simulated")},
    **{f"{budget} cells, LB": simple(budget) for budget in BUDGETS},
    **{f"{budget} cells, LB+": tighter(budget) for budget in BUDGETS},
    **{f"{budget} cells, UB": upper(budget) for budget in BUDGETS},
}
HEADER = f"{'':24}  median     mean       p95      bias    above  says 0"


def filling_clusters(rounds: int) -> list[ClusterPlan]:
    """Every mix, both packings and every size, ``rounds`` times with other seeds."""
    return [
        ClusterPlan(mix=mix, nodes=nodes, packing=packing, seed=seed)
        for seed in range(rounds)
        for nodes in SIZES
        for mix in MIXES
        for packing in PackingStrategy
    ]


def ranked_fleet(sizes: Iterable[int], seed: int) -> list[ClusterPlan]:
    """Clusters of the given sizes, each with a mix, a packing and a fill of its own."""
    random = np.random.default_rng(seed)
    packings = list(PackingStrategy)
    return [
        ClusterPlan(
            mix=MIXES[int(random.integers(len(MIXES)))],
            nodes=nodes,
            packing=packings[int(random.integers(2))],
            seed=seed + place,
            fills=(float(random.uniform(0.3, 0.95)),),
        )
        for place, nodes in enumerate(sizes)
    ]


def measured(arguments: argparse.Namespace) -> Results:
    """All answers, from several processes."""
    shapes = [*customary_shapes(), *random_shapes(arguments.shapes, seed=300)]
    sizes = np.exp(np.random.default_rng(1).uniform(np.log(20), np.log(2000), 50)).astype(int)
    groups = [
        filling_clusters(arguments.rounds),
        ranked_fleet(sizes.tolist(), seed=1000),
        ranked_fleet([300] * 50, seed=2000),
    ]
    # Longest first, so that no process is left alone with one at the end.
    plans = sorted((plan for group in groups for plan in group), key=lambda plan: -plan.nodes)
    with ProcessPoolExecutor(PROCESSES) as pool:
        found = dict(
            zip(map(id, plans), pool.map(partial(answers, shapes=shapes), plans), strict=True)
        )
    clusters, mixed, equal = (
        [each for plan in group for each in found[id(plan)]] for group in groups
    )
    return Results(clusters=clusters, mixed_fleet=mixed, equal_fleet=equal)


def print_table(title: str, results: Sequence[Answers], methods: Iterable[str]) -> None:
    for name, shapes in (("customary shapes", CUSTOMARY), ("random shapes", RANDOM)):
        print(f"\n{title}, {name}\n{HEADER}")
        for method in methods:
            print(f"{method:24} {errors(results, METHODS[method], shapes)}")


def print_tables(results: Results) -> None:
    for nodes in SIZES:
        print_table(f"{nodes} nodes", results.of_size(nodes), METHODS)
    for fill in FILLS:
        filled = [each for each in results.large if each.fill == fill]
        print_table(
            f"{fill:.0%} full, 2000 nodes and more",
            filled,
            ["summary", "documented", "simulated", "64 cells, LB+", "256 cells, LB+"],
        )


def main() -> int:
    options = parser("accuracy", __doc__)
    options.add_argument("--full", action="store_true", help="a million pairs of cluster and shape")
    arguments = options.parse_args()
    arguments.rounds, arguments.shapes, pairs = (4, 850, 10**6) if arguments.full else (1, 300, 0)
    seeds, replicas = (6, 10**5) if arguments.full else (2, 2 * 10**4)
    started = time.monotonic()
    results = measured(arguments)
    print_tables(results)
    with ProcessPoolExecutor(PROCESSES) as pool:
        promised = reservations.outcomes(pool, seeds)
    reservations.print_outcomes(promised)
    figures = Verdicts("accuracy")
    figures.section(f"goals, after {time.monotonic() - started:.0f} s")
    judge(figures, results, min_pairs=pairs or 10**5 // 2)
    reservations.judge(figures, promised, min_replicas=replicas)
    return int(figures.missed > 0)


if __name__ == "__main__":
    sys.exit(main())
