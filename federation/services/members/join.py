"""Member clusters: joining, reading, changing their specs, and the credentials of their agents.

Must not write anything when it refuses: every refusal happens before the commit. Must not end a
credential in use: an agent that misses the new one comes back with it.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from itertools import islice

from federation.model.access import EVERYTHING, Scope
from federation.model.cluster import UNREACHABLE_KEY, Cluster, Taint, TaintEffect
from federation.model.errors import (
    AlreadyExists,
    Conflict,
    InvalidRequest,
    NotFound,
    PreconditionFailed,
    Unauthenticated,
)
from federation.model.grades import validate_model
from federation.model.releases import TOO_FAR, releases_apart
from federation.services.agent_values import AgentFacts, Enrollment, JoinToken
from federation.services.audited_calls import current_call
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import ClusterChanged
from federation.services.member_ports import StoredCluster, StoredJoinToken
from federation.services.members.identity import issue_credential
from federation.services.ports import Store, Transaction
from federation.services.secrets import make_secret, parse_secret
from federation.services.values import ClusterPage, ClusterView, IssuedCredential, PrincipalKind

DEFAULT_TOKEN_SECONDS = 3600
CREDENTIAL_SECONDS = 30 * 24 * 3600
# The new credential and the last one: an agent that lost the answer can still come back.
CREDENTIALS_PER_CLUSTER = 2
logger = logging.getLogger(__name__)

TOKEN_REFUSED = "The join token is unknown, used, expired, or for another cluster."  # noqa: S105 - said to a caller, no secret


class Registration:
    """Join tokens, enrolment, and the clusters' specs.

    ``holds_joiners``: a new cluster gets no replicas until it is accepted.
    """

    def __init__(self, store: Store, fleet: FleetOwner, *, holds_joiners: bool = False) -> None:
        self._store = store
        self._fleet = fleet
        self._holds_joiners = holds_joiners

    async def create_join_token(
        self, cluster: str, ttl_seconds: int = DEFAULT_TOKEN_SECONDS
    ) -> JoinToken:
        """Make a token with which one agent may join once, under this name."""
        secret = make_secret()
        async with self._store.transaction() as tx:
            expires_at = await tx.credentials.add_join_token(
                token_id=secret.id,
                secret_hash=secret.hash,
                cluster=cluster,
                ttl_seconds=ttl_seconds,
            )
        return JoinToken(token=secret.token, cluster=cluster, expires_at=expires_at)

    async def list_join_tokens(
        self, after: str, limit: int, *, scope: Scope = EVERYTHING
    ) -> Sequence[StoredJoinToken]:
        """Return usable join tokens by ascending id, behind ``after``."""
        tokens: list[StoredJoinToken] = []
        async with self._store.reading() as read:
            while len(tokens) < limit:
                page = await read.credentials.join_tokens(after, limit)
                tokens += [token for token in page if scope.sees_cluster(token.cluster)]
                if len(page) < limit:
                    break
                after = page[-1].id
        return tokens[:limit]

    async def revoke_join_token(
        self, token_id: str, *, scope: Scope = EVERYTHING
    ) -> StoredJoinToken:
        """Revoke a join token. Raises NotFound if it is not usable any more."""
        async with self._store.transaction() as tx:
            token = await tx.credentials.cancel_join_token(token_id)
            if token is None or not scope.sees_cluster(token.cluster):
                raise NotFound(f"There is no join token {token_id!r} that may still be used.")
        return token

    async def enroll(self, enrollment: Enrollment) -> IssuedCredential:
        """Let a cluster join, or give a known one another credential.

        Raises Unauthenticated for any fault of the token, and AlreadyExists when the name belongs
        to a cluster with another uid.
        """
        check_release(enrollment.cluster, enrollment.agent_version)
        async with self._store.transaction() as tx:
            await _spend_token(tx, enrollment)
            stored = await _known_or_added(tx, enrollment, held=self._holds_joiners)
            await tx.credentials.keep_newest(stored.id, CREDENTIALS_PER_CLUSTER - 1)
            issued = await issue_credential(
                tx, PrincipalKind.AGENT, cluster_id=stored.id, ttl_seconds=CREDENTIAL_SECONDS
            )
            await tx.journal.append([ClusterChanged(cluster=enrollment.cluster)])
        self._fleet.put_cluster(stored.cluster)
        self._fleet.put_facts(stored.cluster.name, stored.facts)
        self._warn_of_twins(stored.cluster)
        last_epoch = self._fleet.known(stored.cluster.name).newest_epoch
        return replace(issued, last_epoch=last_epoch)

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
            old = stored.cluster
            if expected_version is not None and old.resource_version != expected_version:
                raise Conflict(
                    f"Cluster {cluster.name!r} is at version {old.resource_version}, "
                    f"not {expected_version}: read it again."
                )
            new = _with_spec_of(old, cluster, now)
            after = old
            if new != old:
                after = await tx.clusters.put(stored.id, new)
                await tx.journal.append([ClusterChanged(cluster=cluster.name)])
        self._fleet.put_cluster(after)
        return self._fleet.view(cluster.name)


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


def _with_spec_of(old: Cluster, new: Cluster, now: float) -> Cluster:
    """Return the cluster with people's spec from ``new``; facts of fedsched and the agent stay."""
    said = replace(
        old,
        provider=new.provider,
        region=new.region,
        zones=new.zones,
        taints=_taints(old.taints, new.taints, now),
        model=new.model,
        modeling_enabled=new.modeling_enabled,
    )
    generation = old.generation + (said != old)
    return replace(said, labels=new.labels, annotations=new.annotations, generation=generation)


def _taints(old: Iterable[Taint], new: Iterable[Taint], now: float) -> tuple[Taint, ...]:
    """Return people's new taints and ours.

    A taint that evicts is dated, because it may be tolerated for a time.
    """
    times = {replace(taint, time_added=None): taint.time_added for taint in old}
    people = (taint for taint in new if taint.key != UNREACHABLE_KEY)
    dated = (
        replace(taint, time_added=times.get(taint) or now)
        if taint.effect is TaintEffect.NO_EXECUTE and taint.time_added is None
        else taint
        for taint in people
    )
    return (*dated, *(taint for taint in old if taint.key == UNREACHABLE_KEY))


# Parts of the interval after which credentials are renewed, so that agents that joined together do
# not come together. While its agent is connected no credential is older than the interval.
EARLIEST, LATEST = 0.7, 0.95


class Renewal:
    """Renewal of credentials that are nearly ``renew_seconds`` old."""

    def __init__(self, store: Store, *, renew_seconds: float) -> None:
        self._store = store
        self._renew_seconds = renew_seconds

    async def ages(self, credential_ids: Sequence[str]) -> Mapping[str, float]:
        """Return the ages of valid credentials in seconds, by id.

        Raises Unavailable.
        """
        async with self._store.reading() as read:
            ages = await read.credentials.ages(credential_ids)
            if len(ages) < len(credential_ids):
                # In a database that was emptied none is revoked.
                await read.histories.check()
        return ages

    def is_due(self, credential_id: str, age_seconds: float) -> bool:
        """Whether it is time for a new one; each credential has a moment of its own."""
        part = EARLIEST + (LATEST - EARLIEST) * _fraction(credential_id)
        return age_seconds >= part * self._renew_seconds

    async def renew(self, cluster: str, in_use: str) -> IssuedCredential:
        """Make a new credential; only the one in use stays valid, too.

        Raises NotFound, and Unauthenticated when the one in use is not valid any more.
        """
        async with self._store.transaction() as tx:
            stored = await tx.clusters.lock(cluster)
            if stored is None:
                raise NotFound(f"There is no cluster {cluster!r}.")
            if in_use not in await tx.credentials.ages([in_use]):
                raise Unauthenticated(f"The credential of cluster {cluster!r} was revoked.")
            await tx.credentials.keep_only(stored.id, in_use)
            return await issue_credential(
                tx, PrincipalKind.AGENT, cluster_id=stored.id, ttl_seconds=CREDENTIAL_SECONDS
            )


def _fraction(credential_id: str) -> float:
    """Return a number from 0 to 1 that depends on the id alone."""
    return zlib.crc32(credential_id.encode()) / 2**32


def check_release(cluster: str, theirs: str) -> None:
    """Refuse agents two releases apart, log those one apart. Raises PreconditionFailed."""
    ours = _own_version()
    apart = releases_apart(ours, theirs)
    if apart >= TOO_FAR:
        raise PreconditionFailed(
            f"The agent of cluster {cluster!r} runs {theirs[:64]!r} and this control plane {ours}: "
            "they may be one release apart, so bring the older one forward first.",
            reason="RELEASES_APART",
        )
    if apart:
        fields = {"cluster": cluster, "agent": theirs, "control_plane": ours}
        logger.warning("agent of another release", extra={"fields": fields})


@cache
def _own_version() -> str:
    return version("fedsched")
