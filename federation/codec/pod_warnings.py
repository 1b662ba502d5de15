"""Warnings about pod templates: requests that decisions do not consider, and fractions of bytes.

Must not refuse anything: a template's schema is checked elsewhere, and any value may stand here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from federation.codec.amount_warnings import fraction_warnings

MAX_NAMED: Final = 20

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_DEFAULT_SCHEDULER: Final = "default-scheduler"
# Fields of a pod that keep it from nodes, or hold it back, by their presence alone.
_DECISIVE: Final = (
    *("nodeName", "schedulingGates", "schedulingGroup", "runtimeClassName"),
    *("resourceClaims", "workloadRef"),
)
# Kinds of volumes that exist on some nodes, or in some zones, only.
_BOUND_VOLUMES: Final = frozenset(
    {
        *("persistentVolumeClaim", "ephemeral", "awsElasticBlockStore", "azureDisk", "cinder"),
        *("fc", "gcePersistentDisk", "iscsi", "portworxVolume", "rbd", "vsphereVolume"),
    }
)


def pod_warnings(
    spec: Mapping[str, Any], path: str, unjudged_beside: Iterable[str] = ()
) -> Iterator[str]:
    """Yield the warnings about one pod spec, which stands at ``path``.

    ``unjudged_beside`` names fields of the workload that decisions do not consider either.
    """
    names = list(dict.fromkeys([*unjudged_requests(spec), *unjudged_beside]))
    if names:
        rest = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        yield (
            f"not judged: {', '.join(names[:MAX_NAMED])}{rest}; "
            "pods may stay pending where replicas are placed"
        )
    yield from _fractions(spec, path)


def unjudged_requests(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the pod asks of its nodes and no decision considers, as fields of its spec."""
    yield from (name for name in _DECISIVE if spec.get(name))
    if spec.get("schedulerName") not in (None, "", _DEFAULT_SCHEDULER):
        yield "schedulerName"
    if _object(spec.get("os")).get("name"):
        yield "os.name"
    affinity = _object(spec.get("affinity"))
    for kind in ("podAffinity", "podAntiAffinity"):
        for term in _objects(_object(affinity.get(kind)).get(_REQUIRED)):
            yield f"affinity.{kind} ({_word(term.get('topologyKey'))})"
    for constraint in _objects(spec.get("topologySpreadConstraints")):
        if constraint.get("whenUnsatisfiable") != "ScheduleAnyway":
            yield f"topologySpreadConstraints ({_word(constraint.get('topologyKey'))})"
    on_host = bool(spec.get("hostNetwork"))
    for container in _containers(spec):
        for port in _objects(container.get("ports")):
            number = port.get("hostPort") or (on_host and port.get("containerPort"))
            if number:
                yield f"hostPort {_word(number)}"
    for volume in _objects(spec.get("volumes")):
        yield from (f"volumes ({kind})" for kind in volume if kind in _BOUND_VOLUMES)


def _fractions(spec: Mapping[str, Any], path: str) -> Iterator[str]:
    yield from _of_amounts(spec.get("overhead"), f"{path}.overhead")
    yield from _of_resources(spec, path)
    for field in ("containers", "initContainers"):
        for position, container in enumerate(_objects(spec.get(field))):
            yield from _of_resources(container, f"{path}.{field}[{position}]")


def _of_resources(holder: Mapping[str, Any], path: str) -> Iterator[str]:
    resources = _object(holder.get("resources"))
    for field in ("requests", "limits"):
        yield from _of_amounts(resources.get(field), f"{path}.resources.{field}")


def _of_amounts(amounts: object, path: str) -> Iterator[str]:
    for name, text in _object(amounts).items():
        yield from fraction_warnings(str(name), str(text), f"{path}[{name}]")


def _containers(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for field in ("containers", "initContainers"):
        yield from _objects(spec.get(field))


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _objects(value: object) -> Iterator[Mapping[str, Any]]:
    yield from map(_object, value if isinstance(value, list) else ())


def _word(value: object) -> str:
    """A value of the template, no longer than a label's key may be."""
    text = str(value)
    return text if len(text) <= 317 else f"{text[:314]}..."
