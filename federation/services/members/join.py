"""Member clusters: joining, reading, and changing what people say about them.

Must not write anything when it refuses: every refusal happens before the commit.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice

from federation.model.access import EVERYTHING, Scope
from federation.model.cluster import UNREACHABLE_KEY, Cluster, Taint, TaintEffect
from federation.model.errors import (
    AlreadyExists,
    Conflict,
    InvalidRequest,
    NotFound,
    Unauthenticated,
    Violation,
)
from federation.model.grades import validate_model
from federation.services.agent_values import AgentFacts, Enrollment, JoinToken
from federation.services.audited_calls import current_call
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import ClusterChanged
from federation.services.member_ports import StoredCluster, StoredJoinToken
from federation.services.members.releases import check_release
from federation.services.ports import Store, Transaction
from federation.services.secrets import make_secret, parse_secret
from federation.services.values import ClusterPage, ClusterView, IssuedCredential, PrincipalKind

DEFAULT_TOKEN_SECONDS = 3600
MAX_TOKEN_SECONDS = 7 * 24 * 3600
CREDENTIAL_SECONDS = 30 * 24 * 3600
# The new one and the one it replaces: an agent that lost the answer can still come back.
CREDENTIALS_PER_CLUSTER = 2
MAX_NAME_CHARACTERS = 48
logger = logging.getLogger(__name__)

NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
TOKEN_REFUSED = "The join token is unknown, used, expired, or for another cluster."  # noqa: S105 - said to a caller, no secret


class Registration:
    """Join tokens, enrolment, and the clusters' specs.

    ``holds_joiners``: a new cluster gets nothing until somebody accepts it.
    """

    def __init__(self, store: Store, fleet: FleetOwner, *, holds_joiners: bool = False) -> None:
        self._store = store
        self._fleet = fleet
        self._holds_joiners = holds_joiners

    async def create_join_token(
        self, cluster: str, ttl_seconds: int = DEFAULT_TOKEN_SECONDS
    ) -> JoinToken:
        """A token with which one agent may join, once, under this name."""
        violations = name_violations(cluster, "cluster")
        if not 1 <= ttl_seconds <= MAX_TOKEN_SECONDS:
            rule = f"must be between 1 and {MAX_TOKEN_SECONDS}"
            violations.append(Violation(field="ttlSeconds", rule=rule))
        if violations:
            raise InvalidRequest(violations)
        made = make_secret()
        async with self._store.transaction() as tx:
            expires_at = await tx.credentials.add_join_token(
                token_id=made.id, secret_hash=made.hash, cluster=cluster, ttl_seconds=ttl_seconds
            )
        return JoinToken(token=made.token, cluster=cluster, expires_at=expires_at)

    async def list_join_tokens(
        self, after: str, limit: int, *, scope: Scope = EVERYTHING
    ) -> Sequence[StoredJoinToken]:
        """Those that may still be used, by ascending id, those that come after ``after``."""
        found: list[StoredJoinToken] = []
        async with self._store.reading() as read:
            while len(found) < limit:
                page = await read.credentials.join_tokens(after, limit)
                found += [token for token in page if scope.sees_cluster(token.cluster)]
                if len(page) < limit:
                    break
                after = page[-1].id
        return found[:limit]

    async def revoke_join_token(
        self, token_id: str, *, scope: Scope = EVERYTHING
    ) -> StoredJoinToken:
        """Raises NotFound where it may not be used any more."""
        async with self._store.transaction() as tx:
            token = await tx.credentials.cancel_join_token(token_id)
            if token is None or not scope.sees_cluster(token.cluster):
                raise NotFound(f"There is no join token {token_id!r} that may still be used.")
        return token

    async def enroll(self, enrollment: Enrollment) -> IssuedCredential:
        """Joins a cluster, or gives one that is known another credential.

        Raises Unauthenticated for any fault of the token, and AlreadyExists when the name belongs
        to a cluster with another uid.
        """
        violations = name_violations(enrollment.cluster, "cluster")
        if not enrollment.cluster_uid:
            violations.append(Violation(field="clusterUid", rule="must not be empty"))
        if violations:
            raise InvalidRequest(violations)
        check_release(enrollment.cluster, enrollment.agent_version)
        made = make_secret()
        async with self._store.transaction() as tx:
            await _spend_token(tx, enrollment)
            stored = await _known_or_added(tx, enrollment, held=self._holds_joiners)
            await tx.credentials.keep_newest(stored.id, CREDENTIALS_PER_CLUSTER - 1)
            expires_at = await tx.credentials.add(
                credential_id=made.id,
                secret_hash=made.hash,
                kind=PrincipalKind.AGENT,
                cluster_id=stored.id,
                ttl_seconds=CREDENTIAL_SECONDS,
            )
            await tx.journal.append([ClusterChanged(cluster=enrollment.cluster)])
        self._fleet.put_cluster(stored.cluster)
        self._fleet.put_facts(stored.cluster.name, stored.facts)
        self._warn_of_twins(stored.cluster)
        return IssuedCredential(
            credential=made.token,
            expires_at=expires_at or 0.0,
            last_epoch=self._fleet.known(stored.cluster.name).newest_epoch,
        )

    def _warn_of_twins(self, joined: Cluster) -> None:
        """Log the other names of the same Kubernetes cluster: its capacity counts once for each."""
        twins = [
            name
            for name in self._fleet.snapshot.names
            if name != joined.name and self._fleet.known(name).cluster.uid == joined.uid
        ]
        if twins:
            fields = {"cluster": joined.name, "same_uid": ", ".join(twins), "uid": joined.uid}
            logger.warning("one cluster has joined under two names", extra={"fields": fields})

    async def list_clusters(
        self, after: str, limit: int, *, scope: Scope = EVERYTHING
    ) -> ClusterPage:
        """Clusters by ascending name that come after ``after`` (empty: from the first)."""
        snapshot = self._fleet.snapshot
        if not scope.sees_all_clusters:
            later = filter(scope.sees_cluster, snapshot.names_after(after, len(snapshot.names)))
            names = tuple(islice(later, limit + 1))
        else:
            names = snapshot.names_after(after, limit + 1)
        page = names[:limit]
        return ClusterPage(
            views=tuple(self._fleet.view(name) for name in page),
            next_after=page[-1] if len(names) > limit else "",
            fleet_generation=snapshot.generation,
        )

    async def get_cluster(self, name: str) -> ClusterView:
        """Raises NotFound."""
        return self._fleet.view(name)

    async def update_cluster(
        self, cluster: Cluster, expected_version: int | None, *, now: float
    ) -> ClusterView:
        """Replaces labels, annotations and spec, ``now``.

        Raises Conflict when ``expected_version`` is given and is no longer the cluster's.
        """
        violations = validate_model(cluster.model, field="spec.resourceModels")
        if violations:
            raise InvalidRequest(violations)
        async with self._store.transaction() as tx:
            stored = await tx.clusters.lock(cluster.name)
            if stored is None:
                raise NotFound(f"There is no cluster {cluster.name!r}.")
            before = stored.cluster
            if expected_version is not None and before.resource_version != expected_version:
                raise Conflict(
                    f"Cluster {cluster.name!r} is at version {before.resource_version}, "
                    f"not {expected_version}: read it again."
                )
            wanted = _with_spec_of(before, cluster, now)
            after = before
            if wanted != before:
                after = await tx.clusters.put(stored.id, wanted)
                await tx.journal.append([ClusterChanged(cluster=cluster.name)])
        self._fleet.put_cluster(after)
        return self._fleet.view(cluster.name)


def name_violations(name: str, field: str) -> list[Violation]:
    """A cluster's name is a DNS-1123 label, short enough to be part of other names."""
    if len(name) <= MAX_NAME_CHARACTERS and NAME.fullmatch(name):
        return []
    rule = (
        f"must be a DNS-1123 label of at most {MAX_NAME_CHARACTERS} characters "
        "(lower-case letters, digits and '-', starting and ending with a letter or digit)"
    )
    return [Violation(field=field, rule=rule)]


async def _spend_token(tx: Transaction, enrollment: Enrollment) -> None:
    presented = parse_secret(enrollment.token)
    if presented is None:
        raise Unauthenticated(TOKEN_REFUSED)
    expected = await tx.credentials.spend_join_token(presented.id, enrollment.cluster)
    if expected is None or not presented.matches(expected):
        raise Unauthenticated(TOKEN_REFUSED)
    call = current_call()
    if call is not None:
        # From here on the audit may say who calls: who was given this token.
        call.actor, call.credential_id = f"join token ({presented.id})", presented.id
        call.is_known = True


async def _known_or_added(tx: Transaction, enrollment: Enrollment, *, held: bool) -> StoredCluster:
    # Two agents may bring two tokens for one new name: the second insert finds the first's row.
    stored = (
        await tx.clusters.lock(enrollment.cluster)
        or await tx.clusters.add(_discovered(enrollment, held=held), _facts(enrollment))
        or await tx.clusters.lock(enrollment.cluster)
    )
    if stored is None:
        raise Conflict(f"Cluster {enrollment.cluster!r} was removed while it joined: try again.")
    if stored.cluster.uid != enrollment.cluster_uid:
        raise AlreadyExists(
            f"The name {enrollment.cluster!r} belongs to the cluster with cluster_uid "
            f"{stored.cluster.uid!r}; this one, with {enrollment.cluster_uid!r}, can take it over "
            f"only by ReplaceCluster."
        )
    return stored


def _discovered(enrollment: Enrollment, *, held: bool) -> Cluster:
    return Cluster(
        name=enrollment.cluster,
        uid=enrollment.cluster_uid,
        provider=enrollment.provider,
        region=enrollment.region,
        zones=tuple(sorted(set(enrollment.zones))),
        held=held,
    )


def _facts(enrollment: Enrollment) -> AgentFacts:
    return AgentFacts(
        agent_version=enrollment.agent_version, kubernetes_version=enrollment.kubernetes_version
    )


def _with_spec_of(before: Cluster, wanted: Cluster, now: float) -> Cluster:
    """What people say, from ``wanted``; what fedsched and the agent say stays."""
    said = replace(
        before,
        provider=wanted.provider,
        region=wanted.region,
        zones=wanted.zones,
        taints=_taints(before.taints, wanted.taints, now),
        model=wanted.model,
        modeling_enabled=wanted.modeling_enabled,
    )
    generation = before.generation + (said != before)
    return replace(
        said, labels=wanted.labels, annotations=wanted.annotations, generation=generation
    )


def _taints(before: Iterable[Taint], wanted: Iterable[Taint], now: float) -> tuple[Taint, ...]:
    """Those that people want, and ours. One that evicts says since when: it may be tolerated for
    a time.
    """
    known = {replace(each, time_added=None): each.time_added for each in before}
    people = (each for each in wanted if each.key != UNREACHABLE_KEY)
    dated = (
        replace(each, time_added=known.get(each) or now)
        if each.effect is TaintEffect.NO_EXECUTE and each.time_added is None
        else each
        for each in people
    )
    return (*dated, *(each for each in before if each.key == UNREACHABLE_KEY))
