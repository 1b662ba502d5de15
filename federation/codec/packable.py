"""What decisions pack into, for simulations elsewhere: pools and outstanding promises, both ways.

Must not pack anything.
"""

from __future__ import annotations

from itertools import repeat
from typing import Final, NamedTuple

from federation.codec import ranges, texts
from federation.codec.pools import pools_to_message, read_pools
from federation.codec.requirements import read_requirements, requirements_to_message
from federation.codec.violations import Violations
from federation.model.cluster import ReportedPools
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.v1 import agents_pb2, resource_pb2

# Fields that a report's pools have under the same names.
_ARRAYS: Final = (
    "label_keys",
    "resources",
    "cell_pools",
    "counts",
    "minimums",
    "spreads",
    "surpluses",
    "open_cells",
    "allocatables",
    "kubernetes_minor",
)


class Packable(NamedTuple):
    """The pools of a report, and what is outstanding there in the order in which it is packed.

    ``stuck`` is how much of each of those finds no room there, where that is known. Without pools
    promises are deducted from totals.
    """

    pools: ReportedPools | None
    promised: tuple[Outstanding, ...]
    stuck: tuple[int, ...] = ()


def packable_to_message(packable: Packable) -> resource_pb2.PackableCapacity:
    pools = packable.pools
    reported = agents_pb2.NodePools() if pools is None else pools_to_message(pools)
    return resource_pb2.PackableCapacity(
        **{name: getattr(reported, name) for name in _ARRAYS},
        pools=[
            resource_pb2.PackablePool(taints=each.taints, labels=each.labels)
            for each in reported.pools
        ],
        promises=[
            resource_pb2.OutstandingPromise(
                binding=each.binding,
                component=each.component,
                requirements=requirements_to_message(each.requirements),
                replicas=each.in_cells,
                without_pods=each.in_summary,
                credited=each.credited,
                certificate=each.certificate,
                stuck=stuck,
            )
            for each, stuck in zip(packable.promised, packable.stuck or repeat(0), strict=False)
        ],
    )


def read_packable(message: resource_pb2.PackableCapacity, path: str, found: Violations) -> Packable:
    """What is returned means nothing when anything was found."""
    reported = agents_pb2.NodePools(
        **{name: getattr(message, name) for name in _ARRAYS},
        pools=[
            agents_pb2.NodePool(taints=each.taints, labels=each.labels) for each in message.pools
        ],
    )
    promised = tuple(
        _promise(each, f"{path}.promises[{position}]", found)
        for position, each in enumerate(message.promises)
    )
    # Pools have cpu, memory and pods at least.
    pools = read_pools(reported, path, found) if message.resources else None
    return Packable(pools=pools, promised=promised)


def _promise(message: resource_pb2.OutstandingPromise, path: str, found: Violations) -> Outstanding:
    replicas = ranges.replicas(message.replicas, f"{path}.replicas", found)
    return Outstanding(
        binding=ranges.required(message.binding, f"{path}.binding", found),
        requirements=read_requirements(message.requirements, f"{path}.requirements", found),
        in_cells=replicas,
        component=texts.word(message.component, f"{path}.component", found),
        certificate=ranges.word(
            message.certificate,
            PromiseCertificate,
            f"{path}.certificate",
            found,
            default=PromiseCertificate.CAREFUL,
        ),
        in_summary=ranges.whole(
            message.without_pods, f"{path}.withoutPods", found, least=0, most=max(replicas, 0)
        ),
        credited=ranges.whole(
            message.credited, f"{path}.credited", found, least=0, most=max(replicas, 0)
        ),
    )
