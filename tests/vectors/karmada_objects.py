"""Recorded divisions and selections as Karmada's Clusters and ResourceBindings, all at once.

Every line has clusters of its own in what it was recorded with: their room is of a resource that
only this line's binding asks for, their labels have keys of its own, and its binding may go to no
others. So few clusters stand for those of all lines. Must not judge answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lab.karmadas import binding, member
from tests.vectors.cases import placement

Document = dict[str, Any]
Line = dict[str, Any]

# More than all of them together may ask for.
PODS: Final = str(10**12)
LAST_TIME: Final = "2026-03-01T11:00:00Z"
NOW: Final = "2026-03-01T12:00:00Z"


class KarmadaObjects:
    """Names of clusters keep the order that they were recorded in; no pool has more of them."""

    def __init__(self, *, most_clusters: int) -> None:
        self._most_clusters = most_clusters
        self._regions: dict[str, list[str]] = {}
        self._labels: dict[str, dict[str, str]] = {}
        self._rooms: dict[str, dict[str, str]] = {}
        self.names: dict[str, dict[str, str]] = {}
        self.bindings: list[Document] = []

    def add(self, line: Line, pool: str) -> bool:
        """Whether there are clusters for it; lines of one pool share its clusters."""
        by_region = any(each["by"] == "region" for each in line.get("constraints", ()))
        regions = {each["name"]: each["region"] if by_region else "" for each in line["clusters"]}
        names = self._clusters_of(regions, pool)
        if names is None:
            return False
        self.names[line["id"]] = names
        for each in line["clusters"]:
            ours = names[each["name"]]
            room = str(each["allocatable_replicas"])
            self._rooms.setdefault(ours, {})[_resource(line)] = room
            labels = {_key(line, key): value for key, value in each.get("labels", {}).items()}
            self._labels.setdefault(ours, {}).update(labels)
        self.bindings.append(_binding(line, names))
        return True

    def clusters(self) -> list[Document]:
        """All that any line has, Ready, with what each line was recorded to find there."""
        made = []
        for pool, regions in self._regions.items():
            for position, region in enumerate(regions):
                name = _name(pool, position)
                cluster = member(name, pods=PODS)
                if region:
                    cluster["spec"] |= {"region": region, "zones": [f"{region}-z"]}
                cluster["metadata"]["labels"] = self._labels.get(name, {})
                summary = cluster["status"]["resourceSummary"]
                summary["allocatable"] |= self._rooms.get(name, {})
                made.append(cluster)
        return made

    def _clusters_of(self, wanted: Mapping[str, str], pool: str) -> dict[str, str] | None:
        """By recorded name the pool's next of its region, in the order of names; "" is any."""
        regions = list(self._regions.get(pool, ()))
        names, position = {}, 0
        for recorded in sorted(wanted):
            region = wanted[recorded]
            while position < len(regions) and region not in ("", regions[position]):
                position += 1
            if position == len(regions):
                regions.append(region)
            names[recorded] = _name(pool, position)
            position += 1
        if len(regions) > self._most_clusters:
            return None
        self._regions[pool] = regions
        return names


def _binding(line: Line, names: Mapping[str, str]) -> Document:
    prior = [
        {**each, "name": names.get(each["name"], each["name"])} for each in line.get("prior") or ()
    ]
    spec: Document = {
        "placement": _placement(line, names),
        "replicaRequirements": {"resourceRequest": {_resource(line): "1"}},
        "clusters": prior,
    }
    is_fresh = line.get("mode") == "Fresh"
    if is_fresh:
        spec["rescheduleTriggeredAt"] = NOW
    made = binding(line["id"], replicas=line["replicas"], **spec)
    made["spec"]["resource"]["uid"] = line["uid"]
    if is_fresh:
        made["status"] = {"lastScheduledTime": LAST_TIME}
    return made


def _placement(line: Line, names: Mapping[str, str]) -> Document:
    """As it was recorded, for these clusters and no others."""
    made = placement(line)
    terms = [
        each
        for term in made.get("clusterAffinities", ())
        for each in (term, *term["overflowAffinities"])
    ]
    for term in terms:
        term["clusterNames"] = [names[name] for name in term["clusterNames"]]
    if not terms:
        made["clusterAffinity"] = {"clusterNames": sorted(names.values())}
    weights = made["replicaScheduling"].get("weightPreference", {}).get("staticWeightList", ())
    for rule in weights:
        target = rule["targetCluster"]
        for key in ("clusterNames", "exclude"):
            if key in target:
                target[key] = [names.get(name, name) for name in target[key]]
        if labels := target.get("labelSelector"):
            matched = labels["matchLabels"].items()
            labels["matchLabels"] = {_key(line, key): value for key, value in matched}
    return made


def _name(pool: str, position: int) -> str:
    return f"{pool}-{position:03}"


def _resource(line: Line) -> str:
    return f"vectors.example/{line['id']}"


def _key(line: Line, key: str) -> str:
    return f"{line['id']}.{key}"
