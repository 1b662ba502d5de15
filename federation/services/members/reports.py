"""Messages of agents on their streams: hello, reports, heartbeats, goodbye.

Must not answer a report before it is committed, nor let one bad report harm another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from federation.model.cluster import (
    AGENT_AWAITED,
    API_SERVER_UNREACHABLE,
    REPORT_MISSING,
    Blindness,
    CapacityReport,
    Cluster,
)
from federation.model.errors import (
    EPOCH_AHEAD,
    SERVER_TIME,
    Conflict,
    InvalidRequest,
    LimitExceeded,
    NotFound,
    PreconditionFailed,
    Unauthenticated,
    Unavailable,
    Violation,
)
from federation.model.grades import model_hash
from federation.runtime.batching import Batcher
from federation.services.agent_values import AgentFacts, AgentHello, AgentSight, WelcomeFacts
from federation.services.fleet.histories import WENT_BACK
from federation.services.fleet.journal_reader import Following
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import ClusterChanged, new_nonce
from federation.services.member_ports import NamedReport, ReportVerdict
from federation.services.members.finished_jobs import Finishing
from federation.services.members.join import check_release
from federation.services.members.settling import Settling
from federation.services.ports import Clock, Store

MAX_WAITING = 20_000
# An agent that missed this many heartbeats is silent, and its cluster stale.
MISSED_BEATS = 3
# Times that differ by less are the same.
SAME_SECONDS = 5.0
# How far an agent's clock may be ahead of ours.
MAX_AHEAD_SECONDS = 300.0
# Heartbeats that one process takes; agents of a larger fleet send them less often.
BEATS_PER_SECOND = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTimes:
    """The longest pauses of agents, and how long reports are collected before they are written."""

    heartbeat_seconds: float = 10.0
    report_seconds: float = 10.0
    batch_seconds: float = 0.02


class Reporting:
    """The agents' side of the fleet. Belongs to one event loop."""

    def __init__(
        self,
        store: Store,
        fleet: FleetOwner,
        clock: Clock,
        beat: ReportTimes | None = None,
        *,
        following: Following | None = None,
        finishing: Finishing | None = None,
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._clock = clock
        self._beat = beat or ReportTimes()
        self._following = following or Following(store, fleet)
        self._finishing = finishing or Finishing(store, fleet)
        self.settling = Settling()
        self._batches = Batcher(self._write, seconds=self._beat.batch_seconds)

    async def connected(self, cluster: str, hello: AgentHello, credential_id: str) -> WelcomeFacts:
        """Note that an agent's stream opened, with a credential that is the one in use then.

        Raises NotFound, Unauthenticated when the credential is not valid any more, and Conflict
        when the epoch is outdated. PreconditionFailed: the epoch lies in the future, or the
        agent's release is too far from ours.
        """
        check_release(cluster, hello.agent_version)
        self._refuse_future(cluster, hello)
        facts = AgentFacts(
            agent_version=hello.agent_version,
            kubernetes_version=hello.kubernetes_version,
            placer=hello.placer,
            api_enablements=hello.api_enablements,
        )
        async with self._store.transaction() as tx:
            stored = await tx.clusters.lock(cluster)
            if stored is None:
                raise NotFound(f"There is no cluster {cluster!r}.")
            if not await tx.credentials.settle(stored.id, credential_id):
                raise Unauthenticated(f"The credential of cluster {cluster!r} was revoked.")
            self._refuse_outdated(stored.cluster, hello)
            # An older cluster of this name may have left, and the journal may not show it here yet.
            # The agent must not get promises in that one.
            await self._following.catch_up(tx, await tx.journal.lock([cluster]))
            if facts != stored.facts:
                await tx.clusters.put_facts(stored.id, facts)
                await tx.journal.append([ClusterChanged(cluster=cluster)])
        self._compare(cluster, hello, stored.reported)
        self._fleet.put_facts(cluster, facts)
        self._mark_alive(cluster, hello.epoch)
        if hello.sight is not None:
            self.see(cluster, hello.sight)
        if hello.agent_time is not None:
            ahead = hello.agent_time - self._clock.now()
            presence = replace(self._fleet.known(cluster).presence, clock_offset_seconds=ahead)
            self._fleet.put_presence(cluster, presence)
        return self.welcome(cluster)

    @property
    def heartbeat_seconds(self) -> float:
        """The time between heartbeats: the longer the more agents there are."""
        return max(self._beat.heartbeat_seconds, self._fleet.size / BEATS_PER_SECOND)

    @property
    def silence_seconds(self) -> float:
        """The time without a message after which an agent is silent."""
        return MISSED_BEATS * self.heartbeat_seconds

    def welcome(self, cluster: str) -> WelcomeFacts:
        """Return the facts that the agent needs, which are sent again when the model changes."""
        model = self._fleet.model_in_force(cluster)
        return WelcomeFacts(
            model=model,
            model_hash=model_hash(model) if model.grades else "",
            heartbeat_seconds=self.heartbeat_seconds,
            report_seconds=max(self._beat.report_seconds, self.heartbeat_seconds),
            server_time=self._clock.now(),
        )

    async def accept(self, cluster: str, report: CapacityReport) -> None:
        """Commit a report.

        Raises NotFound, InvalidRequest, Conflict when the stored report is as new or newer, and
        Unavailable.
        """
        uid = self._fleet.known(cluster).cluster.uid
        if report.interest_version > self._fleet.ledger(cluster).version:
            # Another control plane may have sent the agent changes that are not known here yet.
            await self._catch_up(cluster)
        version = self._fleet.ledger(cluster).version
        if report.interest_version > version and self._following.believe(
            f"the agent of cluster {cluster} was told of version {report.interest_version} of its "
            f"ledger, {version} is stored"
        ):
            raise Unavailable(WENT_BACK)
        violations = report_violations(report, version)
        if violations:
            raise InvalidRequest(violations)
        if len(self._batches) >= MAX_WAITING:
            raise LimitExceeded("Too many reports wait to be written; send it again later.")
        named = NamedReport(cluster=cluster, cluster_uid=uid, report=report, nonce=new_nonce())
        verdict = await self._batches.put(cluster, named)
        if not verdict.known:
            raise NotFound(f"There is no cluster {cluster!r}.")
        if verdict.received_at is None:
            raise Conflict(
                f"Report ({report.epoch}, {report.sequence}) of cluster {cluster!r} is not newer "
                "than the stored one."
            )
        self._see_again(cluster, REPORT_MISSING)

    def see(self, cluster: str, sight: AgentSight) -> None:
        """Note the sight of an agent, which counts until its next message about it."""
        presence = self._fleet.known(cluster).presence
        blindness = presence.blindness if presence.is_awaited else None
        if sight.blind and not presence.is_awaited:
            blindness = Blindness(
                since=self._clock.now() - sight.picture_age_seconds,
                reason=API_SERVER_UNREACHABLE,
                message=sight.message,
            )
        self._fleet.put_presence(
            cluster,
            replace(
                presence,
                blindness=same_or_new(presence.blindness, blindness),
                skipped_objects=sight.skipped_objects,
            ),
        )

    def heartbeat(
        self,
        cluster: str,
        sequence: int,
        content_hash: str,
        agent_time: float,
        sight: AgentSight | None = None,
    ) -> bool:
        """Return whether the stored report is still the agent's picture; else it sends another.

        A confirmed report is as of ``agent_time`` by the agent's clock. A report that is neither
        confirmed nor replaced within the time of silence does not count any more.
        """
        stored = self._fleet.known(cluster)
        report = stored.state.report
        in_step = (
            report is not None
            and report.epoch == stored.presence.epoch
            and (report.sequence, report.content_hash) == (sequence, content_hash)
        )
        if in_step and not (sight and sight.blind):
            self._see_again(cluster, AGENT_AWAITED)
        confirmed = sequence if in_step else 0
        self._mark_alive(cluster, stored.presence.epoch, confirmed_sequence=confirmed)
        self.see(cluster, sight or AgentSight())
        if report is not None and in_step:
            later = replace(report, snapshot_time=max(report.snapshot_time, agent_time))
            self._fleet.confirm_report(cluster, later, self._as_of(cluster, sight))
        elif stored.state.as_of is not None:
            self._miss_report(cluster, stored.state.as_of)
        return in_step

    def _see_again(self, cluster: str, reason: str) -> None:
        """End a blindness of that reason, because the stored report is the agent's picture."""
        presence = self._fleet.known(cluster).presence
        if presence.blindness and presence.blindness.reason == reason:
            self._fleet.put_presence(cluster, replace(presence, blindness=None))

    def _as_of(self, cluster: str, sight: AgentSight | None) -> float:
        """Return when the report that an agent confirmed was last known to be true."""
        blindness = self._fleet.known(cluster).presence.blindness
        if blindness is not None:
            return blindness.since
        return self._clock.now() - (sight.picture_age_seconds if sight else 0.0)

    def _miss_report(self, cluster: str, as_of: float) -> None:
        presence = self._fleet.known(cluster).presence
        if presence.blindness is None and self._clock.now() - as_of > self.silence_seconds:
            missing = Blindness(
                since=as_of,
                reason=REPORT_MISSING,
                message="The agent's newest report has not been stored.",
            )
            self._fleet.put_presence(cluster, replace(presence, blindness=missing))

    def disconnected(self, cluster: str, epoch: int) -> None:
        """Note that the stream of an epoch ended, unless there is a newer one."""
        if not self._fleet.has(cluster):
            return
        presence = self._fleet.known(cluster).presence
        # A peer may serve the same session by now: ours broke, and the agent dialled the peer.
        if presence.epoch == epoch and not presence.peer:
            self._fleet.put_presence(cluster, replace(presence, connected=False))
            self.settling.forget(cluster)

    def _mark_alive(self, cluster: str, epoch: int, confirmed_sequence: int = 0) -> None:
        now = self._clock.now()
        alive = replace(
            self._fleet.known(cluster).presence,
            connected=True,
            epoch=epoch,
            peer="",
            confirmed_sequence=confirmed_sequence,
            last_heartbeat_at=now,
            silent_after=now + self.silence_seconds,
        )
        self._fleet.put_presence(cluster, alive)

    def _compare(self, cluster: str, hello: AgentHello, stored: tuple[int, int] | None) -> None:
        """Notice a store that has lost a report that was acknowledged."""
        acknowledged = hello.epoch, hello.acknowledged_sequence
        if hello.acknowledged_sequence and stored is not None and acknowledged > stored:
            self._following.believe(
                f"report {acknowledged} of cluster {cluster} was acknowledged, {stored} is stored"
            )

    def _refuse_future(self, cluster: str, hello: AgentHello) -> None:
        """Refuse an epoch (milliseconds) in the future, which would shut out all until then."""
        ahead_seconds = hello.epoch / 1000 - self._clock.now()
        if ahead_seconds > MAX_AHEAD_SECONDS:
            raise PreconditionFailed(
                f"A clock is off, the agent's or this control plane's: epoch {hello.epoch} of "
                f"cluster {cluster!r} is {ahead_seconds:.0f} s ahead of this control plane's clock,"
                f" and {MAX_AHEAD_SECONDS:.0f} s are tolerated.",
                reason=EPOCH_AHEAD,
                facts={SERVER_TIME: f"{self._clock.now():.3f}"},
            )

    def _refuse_outdated(self, cluster: Cluster, hello: AgentHello) -> None:
        self._fleet.put_cluster(cluster, is_locked=True)
        newest = self._fleet.known(cluster.name).newest_epoch
        if hello.epoch < newest:
            raise Conflict(
                f"Epoch {hello.epoch} of cluster {cluster.name!r} is older than {newest}: "
                "another agent took over, or the agent's clock went back."
            )

    async def _catch_up(self, cluster: str) -> None:
        async with self._store.transaction() as tx:
            await self._following.catch_up(tx, await tx.journal.lock([cluster]))

    async def _write(self, reports: Sequence[NamedReport]) -> Sequence[ReportVerdict]:
        """Commit reports of different clusters, and apply newer ones to the fleet."""
        await self._fleet.pack_ahead((named.cluster, named.report) for named in reports)
        async with self._store.transaction() as tx:
            verdict_of = {verdict.cluster: verdict for verdict in await tx.reports.advance(reports)}
        verdicts = [verdict_of[named.cluster] for named in reports]
        for named, verdict in zip(reports, verdicts, strict=True):
            # The cluster may be gone, or have been replaced, since the report was written.
            is_current = self._fleet.is_of(named.cluster, named.cluster_uid)
            if verdict.received_at is not None and is_current:
                self._finishing.note(named.cluster, named.report)
                self.settling.note(named.cluster, named.report, self._clock.now())
                self._fleet.put_report(
                    named.cluster,
                    named.report,
                    verdict.received_at,
                    verdict.ledger_version,
                    named.nonce,
                )
        return verdicts


def same_or_new(last: Blindness | None, new: Blindness | None) -> Blindness | None:
    """Return the new blindness, with the old date if it is the same: messages take time."""
    if last is None or new is None or last.reason != new.reason:
        return new
    if abs(last.since - new.since) > SAME_SECONDS:
        return new
    return replace(new, since=last.since)


def report_violations(report: CapacityReport, ledger_version: int) -> list[Violation]:
    """Return violations between the parts of a report, whose parts were checked on arrival.

    Agents were sent no later version than the ledger's.
    """
    violations = [
        Violation(field=f"gradeCounts[{grade}]", rule="must not be negative")
        for grade, count in report.grade_counts.items()
        if count < 0
    ]
    graded = sum(report.grade_counts.values())
    if report.model_hash and graded != report.nodes.graded:
        rule = f"must sum to gradedNodes, {report.nodes.graded}, but sum to {graded}"
        violations.append(Violation(field="gradeCounts", rule=rule))
    if report.pools is not None:
        pooled, nodes = sum(report.pools.counts), report.nodes
        if not nodes.graded <= pooled <= nodes.total:
            rule = (
                f"must sum to the nodes that are capacity: {nodes.graded} (gradedNodes) to "
                f"{nodes.total} (totalNodes), not {pooled}"
            )
            violations.append(Violation(field="pools.counts", rule=rule))
    return violations + _echo_violations(report, ledger_version)


def _echo_violations(report: CapacityReport, ledger_version: int) -> list[Violation]:
    violations = [
        Violation(field=f"echoes[{place}]", rule="must not count less than nothing")
        for place, echo in enumerate(report.echoes)
        if min(echo.bound, echo.unbound, echo.finished) < 0
    ]
    if report.interest_version > ledger_version:
        rule = f"must be one that the agent was told of: at most {ledger_version}"
        violations.append(Violation(field="interestVersion", rule=rule))
    return violations
