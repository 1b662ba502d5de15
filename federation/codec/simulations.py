"""Simulations: clusters, bindings and options from messages, decisions to messages.

Must not decide anything, nor know whether a server or a file asks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from google.protobuf.message import Message

from federation.codec import ranges
from federation.codec.descriptors import inner_message
from federation.codec.estimates import read_estimate_options
from federation.codec.given_fleets import check_available, read_bindings, read_clusters
from federation.codec.strict import refuse_nul
from federation.codec.violations import Violations
from federation.codec.virtual_time import EventsRequest, events_from_message
from federation.model.cluster import ClusterState
from federation.model.placement import Binding, TieBreak
from federation.simulation.capacity import SimulationOptions
from federation.v1 import simulation_pb2

MAX_CLUSTERS: Final = 10_000
MAX_BINDINGS: Final = 1_000
MAX_PAIRS: Final = 1_000_000

# Of virtual time: a cluster becomes stale, and then lost.
ROUNDS_AN_EVENT: Final = 2

# Looked up, however many there are: these cost as much as they are, not so much for each cluster.
LOOKED_UP: Final = frozenset({"cluster_names", "exclude", "cluster_tolerations", "tolerations"})

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationRequest:
    """What a simulation is asked for; bindings have the paths their violations are told under."""

    states: tuple[ClusterState, ...]
    bindings: tuple[tuple[str, Binding], ...]
    options: SimulationOptions
    include_traces: bool
    virtual_time: EventsRequest | None = None


def simulation_from_message(
    request: simulation_pb2.SimulateRequest, now: float
) -> SimulationRequest:
    """The whole request; raises InvalidRequest with every broken rule."""
    found = Violations()
    refuse_nul(request, "", found)
    states = read_clusters(_placed("clusters", request.clusters), now, found)
    options = request.options
    ties = ranges.optional_word(options.tie_break, TieBreak, "options.tieBreak", found)
    bindings = read_bindings(_placed("bindings", request.bindings), ties, found)
    names = [state.cluster.name for state in states]
    stated = dict(options.available_replicas)
    check_available(stated, names, "options.availableReplicas", found)
    estimate = read_estimate_options(options, "options.", found)
    virtual_time = None
    if request.HasField("virtual_time"):
        given = request.virtual_time
        virtual_time = events_from_message(given, "virtualTime", names, bindings, found)
    found.check()
    return SimulationRequest(
        states=tuple(states),
        bindings=tuple(
            (f"bindings[{position}]", binding) for position, binding in enumerate(bindings)
        ),
        options=SimulationOptions(
            estimate=estimate, reserve=options.reserve, available_replicas=stated
        ),
        include_traces=options.include_traces,
        virtual_time=virtual_time,
    )


def check_price(request: simulation_pb2.SimulateRequest, most_steps: int) -> None:
    """Raises InvalidRequest when the simulation would take more steps than one may.

    A step is one part of one binding (an expression, a value, a weight, a resource) looked at for
    one cluster, or one taint or grade of a cluster looked at for one binding. What waits is looked
    at again after each event of virtual time, and after what that leads to.
    """
    found = Violations()
    _check_size(request, found)
    found.check()
    clusters = len(request.clusters)
    once = sum(
        len(each.spec.taints)
        + len(each.spec.resource_models)
        + len(each.status.resource_summary.allocatable_modelings)
        for each in request.clusters
    )
    steps, rounds = 0, 1 + ROUNDS_AN_EVENT * len(request.virtual_time.events)
    for position, binding in enumerate(request.bindings):
        parts, looked_up = _parts_of(binding.spec)
        steps += rounds * (clusters * parts + once + looked_up)
        if steps > most_steps:
            more = f"takes more than {most_steps} steps, which is all that one simulation may take"
            found.add(
                f"bindings[{position}]",
                f"with {parts} parts on {clusters} clusters with {once} taints and grades, and what"
                f" is before it, {more}",
            )
            break
    found.check()


def _parts_of(message: Message) -> tuple[int, int]:
    """How many parts a message has, and how many more that are looked up."""
    parts, looked_up = 1, 0
    for field, value in message.ListFields():
        inner = inner_message(field)
        if field.name in LOOKED_UP:
            looked_up += len(value)
        elif inner is not None:
            for each in value if field.is_repeated else (value,):
                more, found = _parts_of(each)
                parts, looked_up = parts + more, looked_up + found
        elif field.is_repeated:
            parts += len(value)
    return parts, looked_up


def _check_size(request: simulation_pb2.SimulateRequest, found: Violations) -> None:
    clusters, bindings = len(request.clusters), len(request.bindings)
    if clusters > MAX_CLUSTERS:
        found.add("clusters", f"must be at most {MAX_CLUSTERS}, not {clusters}")
    if bindings > MAX_BINDINGS:
        found.add("bindings", f"must be at most {MAX_BINDINGS}, not {bindings}")
    if clusters * bindings > MAX_PAIRS:
        pairs = f"{bindings} bindings on {clusters} clusters are {clusters * bindings} pairs"
        found.add("bindings", f"{pairs}, and one simulation decides {MAX_PAIRS}")


def _placed(field: str, messages: Iterable[T]) -> Iterable[tuple[str, T]]:
    return ((f"{field}[{position}]", message) for position, message in enumerate(messages))
