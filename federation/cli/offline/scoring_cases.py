"""Lines of scoring cases: nodes and a pod with the strategy to score them by, or a configuration.

Must not read files: ``federation.cli.inputs`` does. Keys that are not named here are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from estimator.binpack.balanced_allocation import BalancedAllocation
from estimator.binpack.fit_strategies import STRATEGIES
from estimator.binpack.node_scores import (
    NodeLoad,
    NodeScore,
    NodeWithPods,
    score_loads,
    score_nodes,
)
from estimator.binpack.profile import ScoringProfile, WeightedPlugin
from estimator.binpack.requests import replica_request
from estimator.binpack.strategy import PluginStrategy, ResourceWeight, ShapePoint
from estimator.binpack.volcano import VolcanoBinpack
from estimator.scoring_config.documents import InvalidConfiguration
from estimator.scoring_config.kubescheduler import read_kube_scheduler
from estimator.scoring_config.reader import ScoringConfiguration, read_scoring_configuration
from estimator.scoring_config.shape_rules import shape_faults, shape_of, weight_faults, weights_of
from estimator.scoring_config.volcano import read_volcano
from federation.cli.inputs import Case, objects_at
from federation.codec.pods import list_at, object_at, quantities_at
from federation.codec.violations import Violations
from federation.model.errors import InvalidRequest
from federation.model.pod_request import ContainerRequest, PodResources
from federation.model.resources import CPU, EPHEMERAL_STORAGE, MAX_AMOUNT, MEMORY, PODS

Row = dict[str, Any]

_TOTALS = {"milli_cpu": CPU, "memory": MEMORY, "ephemeral_storage": EPHEMERAL_STORAGE, "pods": PODS}


def answer_case(case: Case) -> Row:
    """One line; its format is told by its keys."""
    if "doc" in case:
        return _checked_document(_text(case, "doc"))
    scores: Callable[[Case], Sequence[NodeScore]] = _fit_objects
    if "conf" in case:
        scores = _volcano
    elif "pod_container_requests" in case:
        scores = _fit_raw
    rows = [
        {
            "name": scored.name,
            "score": scored.score,
            "balanced": scored.balanced,
            "insufficient": list(scored.insufficient),
        }
        for scored in scores(case)
    ]
    return {"nodes": rows}


def checked_configuration(text: str) -> Row:
    """Errors of a scoring configuration, or its strategies and warnings."""
    try:
        configuration = read_scoring_configuration(text)
    except InvalidConfiguration as error:
        return _refused(error)
    return _valid(configuration)


def _checked_document(text: str) -> Row:
    """The same for a KubeSchedulerConfiguration, which is all that kube-scheduler itself takes."""
    try:
        profiles = read_kube_scheduler(text)
    except InvalidConfiguration as error:
        return _refused(error)
    return _valid(ScoringConfiguration(strategies=profiles))


def _valid(configuration: ScoringConfiguration) -> Row:
    return {
        "valid": True,
        "stage": "ok",
        "errors": [],
        "warnings": list(configuration.warnings),
        "strategies": [strategy.name for strategy in configuration.strategies],
    }


def _refused(error: InvalidConfiguration) -> Row:
    errors = [
        {"type": fault.type.value, "field": fault.field, "message": fault.rule}
        for fault in error.faults
    ]
    return {"valid": False, "stage": error.stage.value, "errors": errors}


def _fit_objects(case: Case) -> Sequence[NodeScore]:
    violations = Violations()
    profile = _profile(case, _balanced_resources(case, violations), violations)
    pod = _incoming_pod(case, violations)
    nodes = list(_nodes(case, violations))
    violations.check()
    return score_nodes(profile, pod, nodes)


def _fit_raw(case: Case) -> Sequence[NodeScore]:
    violations = Violations()
    profile = _profile(case, None, violations)
    requests = quantities_at(
        case.get("pod_container_requests"), "pod_container_requests", violations
    )
    load = NodeLoad(
        allocatable=_totals(case, "allocatable", violations),
        requested=_totals(case, "requested", violations),
        nonzero_requested={
            CPU: _amount(case.get("nonzero_milli_cpu"), "nonzero_milli_cpu", violations),
            MEMORY: _amount(case.get("nonzero_memory"), "nonzero_memory", violations),
        },
    )
    violations.check()
    request = replica_request(PodResources(containers=(ContainerRequest(requests=requests),)))
    return score_loads(profile, request, [""], [load])


def _volcano(case: Case) -> Sequence[NodeScore]:
    try:
        binpack = read_volcano(_text(case, "conf")).binpack
    except InvalidConfiguration as error:
        raise InvalidRequest(violation.under("conf") for violation in error.violations) from error
    violations = Violations()
    pod = _incoming_pod(case, violations)
    nodes = list(_nodes(case, violations))
    violations.check()
    # A plugin that is not registered orders no nodes: they are all alike.
    return score_nodes(binpack or VolcanoBinpack(weight=0, weights=()), pod, nodes)


def _profile(case: Case, balanced: Sequence[str] | None, violations: Violations) -> ScoringProfile:
    """Both plugins; None: BalancedAllocation goes by the strategy's resources."""
    weights = weights_of(_weighted(case, violations))
    violations.extend(weight_faults(weights, "resources"))
    names = [item.resource for item in weights] if balanced is None else balanced
    alike = tuple(ResourceWeight(resource=name, weight=1) for name in dict.fromkeys(names))
    plugins = (
        WeightedPlugin(strategy=_fit_strategy(case, weights, violations), weight=1),
        WeightedPlugin(strategy=BalancedAllocation(weights=alike), weight=1),
    )
    return ScoringProfile(scheduler_name="", plugins=plugins)


def _fit_strategy(
    case: Case, weights: tuple[ResourceWeight, ...], violations: Violations
) -> PluginStrategy:
    name = case.get("strategy")
    reader = STRATEGIES.get(name) if isinstance(name, str) else None
    if reader is None:
        violations.add("strategy", f"must be one of {', '.join(STRATEGIES)}, not {name!r}")
        reader = next(iter(STRATEGIES.values()))
    shape: tuple[ShapePoint, ...] = ()
    if reader.takes_shape:
        shape = shape_of(list(_points(case, violations)))
        violations.extend(shape_faults(shape, "shape"))
    return reader.read(weights, shape)


def _weighted(case: Case, violations: Violations) -> list[Mapping[str, Any]]:
    items: list[Mapping[str, Any]] = []
    for position, value in enumerate(list_at(case.get("resources"), "resources", violations)):
        path = f"resources[{position}]"
        item = object_at(value, path, violations)
        name, weight = item.get("name"), item.get("weight", 1)
        if not isinstance(name, str) or not name:
            violations.add(f"{path}.name", "is required, text")
        elif isinstance(weight, bool) or not isinstance(weight, int):
            violations.add(f"{path}.weight", "must be a whole number")
        else:
            items.append({"name": name, "weight": weight})
    return items


def _points(case: Case, violations: Violations) -> Iterator[Mapping[str, int]]:
    for position, value in enumerate(list_at(case.get("shape"), "shape", violations)):
        match value:
            case [int(utilization), int(score)]:
                yield {"utilization": utilization, "score": score}
            case _:
                violations.add(f"shape[{position}]", "must be [utilization, score], whole numbers")


def _nodes(case: Case, violations: Violations) -> Iterator[NodeWithPods]:
    for position, value in enumerate(objects_at(case, "nodes")):
        path = f"nodes[{position}]"
        node = object_at(value, path, violations)
        name = node.get("name", "")
        if not isinstance(name, str):
            violations.add(f"{path}.name", "must be text")
        yield NodeWithPods(
            name=str(name),
            allocatable=quantities_at(node.get("allocatable"), f"{path}.allocatable", violations),
            pods=tuple(
                _pod(pod, f"{path}.pods[{at}]", violations)
                for at, pod in enumerate(list_at(node.get("pods"), f"{path}.pods", violations))
            ),
        )


def _incoming_pod(case: Case, violations: Violations) -> PodResources:
    if case.get("pod") is None:
        violations.add("pod", "is required, an object")
    return _pod(case.get("pod"), "pod", violations)


def _pod(value: Any, path: str, violations: Violations) -> PodResources:
    pod = object_at(value, path, violations)
    level = f"{path}.pod_level_requests"
    return PodResources(
        containers=_containers(pod, "containers", path, violations),
        init_containers=_containers(pod, "init", path, violations),
        overhead=quantities_at(pod.get("overhead"), f"{path}.overhead", violations),
        pod_level=quantities_at(pod.get("pod_level_requests"), level, violations),
    )


def _containers(
    pod: Mapping[str, Any], field: str, path: str, violations: Violations
) -> tuple[ContainerRequest, ...]:
    containers = []
    for position, value in enumerate(list_at(pod.get(field), f"{path}.{field}", violations)):
        place = f"{path}.{field}[{position}]"
        container = object_at(value, place, violations)
        requests = quantities_at(container.get("requests"), f"{place}.requests", violations)
        restart_always = container.get("restart") == "Always"
        containers.append(ContainerRequest(requests=requests, restart_always=restart_always))
    return tuple(containers)


def _totals(case: Case, field: str, violations: Violations) -> dict[str, int]:
    """Totals of a node in base units, under the names of the resources."""
    recorded = object_at(case.get(field), field, violations)
    totals = {
        resource: _amount(recorded[key], f"{field}.{key}", violations)
        for key, resource in _TOTALS.items()
        if key in recorded
    }
    scalar = object_at(recorded.get("scalar"), f"{field}.scalar", violations)
    for name, amount in scalar.items():
        totals[name] = _amount(amount, f"{field}.scalar[{name}]", violations)
    return totals


def _amount(value: Any, path: str, violations: Violations) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_AMOUNT:
        violations.add(path, f"must be a whole number from 0 to {MAX_AMOUNT}")
        return 0
    return value


def _balanced_resources(case: Case, violations: Violations) -> list[str]:
    field = "balanced_resources"
    names = list_at(case.get(field), field, violations)
    for position, name in enumerate(names):
        if not isinstance(name, str):
            violations.add(f"{field}[{position}]", "must be text")
    return [str(name) for name in names]


def _text(case: Case, name: str) -> str:
    value = case[name]
    if not isinstance(value, str):
        raise InvalidRequest.of(name, "must be text")
    return value
