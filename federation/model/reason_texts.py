"""The English of reasons: one template for each code.

Pure. Must not decide anything: it is the only place that writes these sentences, and none reads
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias, Union

from federation.model.quotations import quoted
from federation.model.readable import amount, plural
from federation.model.reason_codes import ReasonCode

SEPARATOR: Final = "; "
# Parameters as templates take them.
Words: TypeAlias = Union[int, str, "tuple[Words, ...]"]
_Template: TypeAlias = str | Callable[..., str]


def _counted(pairs: Sequence[tuple[str, int]]) -> str:
    """Texts with their counts, the most frequent first."""
    ordered = sorted(pairs, key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{text} ({count})" for text, count in ordered)


def _named(names: Sequence[str], omitted: int) -> str:
    """The names, and how many are left out."""
    rest = f" and {omitted} more" if omitted > 0 else ""
    return f"{', '.join(names)}{rest}"


def _available(replicas: int) -> str:
    return f"{plural(replicas, 'replica')} {'is' if replicas == 1 else 'are'} available"


def _together(minimum: int) -> str:
    return f", and at least {minimum} together (minAvailable)" if minimum else ""


def _over_committed(stuck: Sequence[tuple[str, int]], omitted: int) -> str:
    shares = ", ".join(f"{count} of {binding}" for binding, count in stuck)
    rest = f" and {omitted} more bindings" if omitted else ""
    return f"the cluster is over-committed: promised replicas lost their room, {shares}{rest}"


def _kept_for_large_pods(pods: int) -> str:
    return f"room kept for {pods} large {'pod' if pods == 1 else 'pods'}"


def _no_room_for(replicas: int) -> str:
    count = "one replica" if replicas == 1 else f"{replicas} replicas"
    return f"has no room for {count}"


def _bounds(bounds: Sequence[tuple[str, int, int]]) -> str:
    """The spread constraints: "region 2 to 3, cluster at least 4"; a maximum of 0 is none."""
    return ", ".join(
        f"{field} {minimum} to {maximum}" if maximum else f"{field} at least {minimum}"
        for field, minimum, maximum in bounds
    )


def _too_small(replicas: int, bounds: Sequence[tuple[str, int, int]], total: int) -> str:
    under = f"under the spread constraints ({_bounds(bounds)})"
    return f"{_available(replicas)} {under}, {total} wanted"


def _minimums_do_not_fit(clusters: int) -> str:
    return f"{plural(clusters, 'cluster')} cannot hold the least replicas asked of them"


def _replicas_missing(replicas: int, minimum: int) -> str:
    are = "is" if replicas == 1 else "are"
    where = "missing in clusters where nothing may grow now"
    return f"{plural(replicas, 'replica')} {are} {where}{_together(minimum)}"


def _clusters_closed(closed: Sequence[tuple[str, str]], omitted: int) -> str:
    return _named([f"{cluster} {reason}" for cluster, reason in closed], omitted)


def _clusters_refused(refused: int, clusters: int, reasons: Sequence[tuple[str, int]]) -> str:
    were = "was" if refused == 1 else "were"
    return f"{refused} of {plural(clusters, 'cluster')} {were} refused: {_counted(reasons)}"


def _clusters_unknown(clusters: int, reasons: Sequence[tuple[str, int]]) -> str:
    text = (
        "1 cluster has no estimate and counts as full"
        if clusters == 1
        else f"{clusters} clusters have no estimate and count as full"
    )
    return f"{text}: {_counted(reasons)}" if reasons else text


def _scarce_resources(resources: Sequence[tuple[str, int]]) -> str:
    (name, clusters), *rest = sorted(resources, key=lambda pair: (-pair[1], pair[0]))
    first = f"{name} in {clusters} cluster{'s' if clusters > 1 else ''}"
    return ", ".join([first, *(f"{name} in {clusters}" for name, clusters in rest)])


def _quota_exceeded(namespace: str, limits: Sequence[tuple[str, int, int]]) -> str:
    passed = ", ".join(
        f"{name} {amount(name, used)} of {amount(name, limit)}"
        if name
        else f"replicas {used} of {limit}"
        for name, used, limit in limits
    )
    return f"quota of namespace {namespace}: {passed}"


def _awaits_leaving(leaving: Sequence[tuple[int, str, str]], omitted: int, since: str) -> str:
    staying = [
        f"{plural(replicas, 'replica')} of {binding} to leave {cluster}"
        for replicas, binding, cluster in leaving
    ]
    return f"waits for {_named(staying, omitted)}, since {since}"


def _gang_incomplete(members: int, size: int, gang: str) -> str:
    return f"{members} of {size} members of gang {gang} {'is' if members == 1 else 'are'} here"


def _gang_lacks_members(
    lacking: int,
    gang: str,
    members: Sequence[str],
    omitted_members: int,
    suspended: Sequence[str],
    omitted_suspended: int,
) -> str:
    notes = [f"here: {_named(members, omitted_members)}"] if members else []
    notes += [f"suspended: {_named(suspended, omitted_suspended)}"] if suspended else []
    text = f"{lacking} member{'s' if lacking > 1 else ''} of gang {gang}"
    return f"{text} ({', '.join(notes)})" if notes else text


def _gang_member_unplaced(member: str, gang: str, further: int) -> str:
    nor = f", nor {'was' if further == 1 else 'were'} {further} more" if further else ""
    return f"{member} of gang {gang} was not placed{nor}"


def _preempted(preemptor: str, losses: Sequence[tuple[int, str]]) -> str:
    where = ", ".join(f"{replicas} in {cluster}" for replicas, cluster in losses)
    return f"preempted by {preemptor}: {where}"


TEMPLATES: Final[Mapping[ReasonCode, _Template]] = {
    ReasonCode.CLAUSES: lambda *clauses: SEPARATOR.join(clauses),
    ReasonCode.STORED_TEXT: str,
    ReasonCode.PLUGIN_TEXT: quoted,
    ReasonCode.PLUGIN_OBJECTS: "{}: {}".format,
    ReasonCode.ERROR_TEXT: str,
    ReasonCode.IN_CLUSTER: "{}: {}".format,
    ReasonCode.NOT_REPORTED: "the cluster has not reported yet",
    ReasonCode.MODELLING_OFF: "resource modelling is switched off",
    ReasonCode.MODELLING_OFF_FOR_CLUSTER: "resource modelling is switched off for the cluster",
    ReasonCode.NO_RESOURCE_MODEL: "the cluster has no resource model",
    ReasonCode.NO_GRADE_COUNTS: "the report has no grade counts",
    ReasonCode.OTHER_RESOURCE_MODEL: "the report was graded under another resource model",
    ReasonCode.MODEL_LACKS_RESOURCES: (
        lambda names: f"the resource model lacks {', '.join(names)}"
    ),
    ReasonCode.NODES_UNSEEN: "models and summary cannot see node selectors and affinity",
    ReasonCode.NODE_CHOICE_IGNORED: "the node selector and affinity are ignored",
    ReasonCode.POOLS_LACK_LABELS: (
        lambda keys: f"the cluster's pools do not tell nodes apart by {', '.join(keys)}"
    ),
    ReasonCode.NO_POOLS: (
        "the cluster reports no node pools, and nothing else proves that there is room"
    ),
    ReasonCode.SET_ASIDE: (
        "set aside, as others surely hold all: by its grades perhaps no node holds a replica"
    ),
    ReasonCode.STATED_BY_CALLER: "stated by the caller",
    ReasonCode.NO_AGENT: "no agent that sees its nodes is connected",
    ReasonCode.COUNTED_BESIDE_PROMISES: (
        "counted beside {} promised replicas, put on the first nodes with room: "
        "they are on no node yet"
    ).format,
    ReasonCode.OVER_COMMITTED: _over_committed,
    ReasonCode.KEPT_FOR_LARGE_PODS: _kept_for_large_pods,
    ReasonCode.NOT_REHEARSED: "too much is on its way to rehearse where it goes",
    ReasonCode.NOT_READY: "is not Ready",
    ReasonCode.HELD: "is held until somebody accepts it",
    ReasonCode.CORDONED: "is cordoned",
    ReasonCode.CORDONED_BECAUSE: "is cordoned ({})".format,
    ReasonCode.STALE: "is stale: its agent is silent",
    ReasonCode.UNSEEN: "cannot be seen since {}: {}".format,
    ReasonCode.TO_BE_EMPTIED: "is to be emptied",
    ReasonCode.OUTSIDE_PLAN: "is not among the plan's clusters",
    ReasonCode.FULL_BY_PLAN: "is as full as the plan lets it become",
    ReasonCode.EMPTY_BY_PLAN: "is empty, and the plan keeps it so",
    ReasonCode.UNTOLERATED_TAINT: "has the untolerated taint {}".format,
    ReasonCode.OUTSIDE_AFFINITY: "does not match the cluster affinity",
    ReasonCode.API_MISSING: "does not have the API {} {}".format,
    ReasonCode.PROPERTY_MISSING: "has no {}".format,
    ReasonCode.BEING_EVICTED: "is being evicted",
    ReasonCode.PEERS_ELSEWHERE: "does not hold the workloads of its affinity group",
    ReasonCode.HOLDS_ANTI_AFFINE: "holds a workload of its anti-affinity group",
    ReasonCode.NO_ROOM_FOR: _no_room_for,
    ReasonCode.CLUSTER_GONE: "the cluster is gone",
    ReasonCode.FEWER_FIT: "{} of {} replicas find room".format,
    ReasonCode.FEWER_FIT_BECAUSE: "{} of {} replicas find room: {}".format,
    ReasonCode.MARGIN_KEPT: "{} are kept back beside what is on its way".format,
    ReasonCode.NOTHING_SHOWS_ROOM: "nothing shows whether there is room",
    ReasonCode.STRANDS_OTHERS: "packed anew, others that were promised room would find none",
    ReasonCode.NO_WHOLE_SET: "a whole set finds no room beside what is kept back",
    ReasonCode.STRICT_UNSURE: "strict promises would no longer be sure of their room",
    ReasonCode.TOTALS_TOO_SMALL: "by its totals there is room for {} more, not {}".format,
    ReasonCode.NO_ROOM_FOR_SHARES: "there is no room for the shares: {}".format,
    ReasonCode.ROOM_TOO_SMALL: "there is room for {} more, not {}".format,
    ReasonCode.NO_CLUSTER_PASSES: "no cluster passes the filters",
    ReasonCode.TOO_FEW_GROUPS: "{1} {0}s have candidates, {2} wanted".format,
    ReasonCode.SPREAD_UNKEPT: (
        lambda bounds: f"no choice keeps all spread constraints ({_bounds(bounds)})"
    ),
    ReasonCode.SPREAD_TOO_SMALL: _too_small,
    ReasonCode.SPREAD_HOPELESS: lambda *words: f"no more than {_too_small(*words)}",
    ReasonCode.SEARCH_CUT_SHORT: "not proven, the search was cut short",
    ReasonCode.MINIMUMS_EXCEED_REPLICAS: (
        "the least replicas per cluster add up to {}, {} are wanted".format
    ),
    ReasonCode.MINIMUMS_DO_NOT_FIT: _minimums_do_not_fit,
    ReasonCode.REPLICAS_MISSING: _replicas_missing,
    ReasonCode.REPLICAS_AVAILABLE: (
        lambda placed, total, minimum: f"{_available(placed)}, {total} wanted{_together(minimum)}"
    ),
    ReasonCode.GANG_PERCENT_UNMET: "{} of {} replicas are less than {} percent".format,
    ReasonCode.CLUSTERS_CLOSED: _clusters_closed,
    ReasonCode.CLUSTERS_REFUSED: _clusters_refused,
    ReasonCode.CLUSTERS_UNNAMED: (
        lambda names, omitted: f"no cluster is named {_named(names, omitted)}"
    ),
    ReasonCode.CLUSTERS_UNKNOWN: _clusters_unknown,
    ReasonCode.SHORT_OF: "short of {}".format,
    ReasonCode.SCARCE_RESOURCES: _scarce_resources,
    ReasonCode.RESOURCE: str,
    ReasonCode.SUITABLE_NODES: "nodes that suit",
    ReasonCode.RESOURCES_TOGETHER: lambda names: f"{' and '.join(names)} together",
    ReasonCode.SUITABLE_CLUSTERS: "suitable clusters: {} ({} of {})".format,
    ReasonCode.QUOTA_EXCEEDED: _quota_exceeded,
    ReasonCode.SUSPENDED: "scheduling is suspended",
    ReasonCode.ROOM_KEPT_FOR: (
        lambda bindings: f"room is kept for {', '.join(bindings)}, which waited before"
    ),
    ReasonCode.AWAITS_LEAVING: _awaits_leaving,
    ReasonCode.GANG_INCOMPLETE: _gang_incomplete,
    ReasonCode.GANG_LACKS_MEMBERS: _gang_lacks_members,
    ReasonCode.GANG_MEMBER_WRONG: "{} of the same gang: {}".format,
    ReasonCode.GANG_MEMBER_UNPLACED: _gang_member_unplaced,
    ReasonCode.ROOM_FOR_MEMBER: "room for {}: {}".format,
    ReasonCode.COMPANION_STAYS: ("{}, which must stay together with it, has no place: {}".format),
    ReasonCode.NOTHING_HELPS: "nothing of lower priority makes room",
    ReasonCode.PREEMPTION_SPENT: "no more replicas may be preempted within this minute",
    ReasonCode.PREEMPTION_CROWDED: "no more than {} at once may wait for others to leave".format,
    ReasonCode.PREEMPTED: _preempted,
    ReasonCode.PREEMPTED_BY: "preempted by {}".format,
    ReasonCode.PREEMPTS: "{}: {} in {}, priority {}".format,
    ReasonCode.BINDING_NEW: "the binding is new",
    ReasonCode.NOTHING_CHANGED: "asked again, nothing changed",
    ReasonCode.QUEUE_TRIED: "the queue tried it again",
    ReasonCode.RESCHEDULE_TRIGGERED: "a reschedule was triggered",
    ReasonCode.PLACEMENT_CHANGED: "placement changed",
    ReasonCode.REPLICAS_CHANGED: "replicas changed",
    ReasonCode.REQUIREMENTS_CHANGED: "requirements changed",
    ReasonCode.WORKLOAD_CHANGED: "the workload changed",
    ReasonCode.EVICTIONS_CHANGED: "evictions changed",
    ReasonCode.CLUSTERS_STATED: "its clusters were stated anew",
    ReasonCode.PROFILE_CHANGED: "schedulerName changed",
    ReasonCode.OWN_CLUSTER_GONE: "cluster {} is gone".format,
    ReasonCode.OWN_CLUSTER_TAINTED: "cluster {} has the untolerated taint {}".format,
    ReasonCode.LEASE_ENDED: "the lease of what it held has run out",
    ReasonCode.PROMISE_RELEASED: "what it held was released",
    ReasonCode.NOT_ALL_PLACED: "not all of its replicas are placed",
    ReasonCode.NEVER_PLACED: "it was never placed",
    ReasonCode.EVICTION_UNDONE: "the eviction from cluster {} is taken back".format,
}
