"""Tells connected agents which pods to look for: everything once, and then what changed.

Must not decide what an agent has to look for: the cluster's ledger does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Protocol

from federation.agents.session import Session
from federation.capacity.ledger import ClusterLedger
from federation.codec.interests import interest_messages
from federation.model.echoes import Interest, InterestUpdate, Owner, SoughtShape
from federation.model.errors import NotFound
from federation.model.reservations import PromiseCertificate, Reservation, Share
from federation.model.shapes import Echo
from federation.services.journal import BindingChanged, Change, ClusterChanged, ReportAdvanced
from federation.services.threads import TELLING_AGENTS
from federation.v1.agents_pb2 import ConnectResponse

# At most four updates a second for each agent: its reports come more seldom.
PAUSE_SECONDS = 0.25
# More bindings than this take longer to write than the loop may stand still.
THREAD_BINDINGS = 100


class PromiseLedgers(Protocol):
    """What is promised, and who the promises are for: owners and uids by binding, where known."""

    def ledger(self, name: str) -> ClusterLedger:
        """Raises NotFound."""
        ...

    @property
    def owners(self) -> Mapping[str, Owner]: ...

    @property
    def uids(self) -> Mapping[str, str]: ...


class _Feed:
    """What one agent is still to be told. ``told`` is the version it was told last."""

    def __init__(self) -> None:
        self.wanted = asyncio.Event()
        self.told = 0
        self.is_writing = False
        self._whole = False
        self._changed: set[str] = set()
        # Changed bindings that may free nodes, as long as the agent is not told.
        self._freeing: set[str] = set()
        self.want_whole()

    def want(self, binding: str, *, frees_nodes: bool) -> None:
        self._changed.add(binding)
        if frees_nodes:
            self._freeing.add(binding)
        self.wanted.set()

    def want_whole(self) -> None:
        self._whole = True
        self.wanted.set()

    def take_early(self, binding: str) -> Collection[str]:
        """Take the other bindings that may free nodes, where they are few. They stay among those
        that are to be told.
        """
        if self._whole or self.is_writing or len(self._freeing) > THREAD_BINDINGS:
            return ()
        early = self._freeing - {binding}
        self._freeing -= early
        return early

    def take(self) -> Collection[str] | None:
        """The bindings that changed; None: everything is to be told."""
        changed = None if self._whole else self._changed
        self._whole, self._changed, self._freeing = False, set(), set()
        self.wanted.clear()
        return changed


class Interests:
    """What the agents of this process are told. ``changed`` is to be called of every change."""

    def __init__(self, ledgers: PromiseLedgers) -> None:
        self._ledgers = ledgers
        self._feeds: dict[str, _Feed] = {}

    def changed(self, change: Change) -> None:
        """A change that the ledgers know."""
        match change:
            case BindingChanged():
                for cluster in change.clusters.keys() & self._feeds.keys():
                    frees_nodes = self._frees_nodes(cluster, change)
                    self._feeds[cluster].want(change.key, frees_nodes=frees_nodes)
            case ClusterChanged():
                if change.emptied and change.cluster in self._feeds:
                    self._feeds[change.cluster].want_whole()
            case ReportAdvanced():
                self._catch_up(change.cluster)

    async def tell(self, session: Session) -> None:
        """Tell the agent of a session, whatever there is to tell, until cancelled."""
        feed = _Feed()
        self._feeds[session.cluster] = feed
        session.before_orders = partial(self._tell_of_others, session, feed)
        try:
            while True:
                await feed.wanted.wait()
                await self._tell(session, feed)
                await asyncio.sleep(PAUSE_SECONDS)
        finally:
            session.before_orders = None
            if self._feeds.get(session.cluster) is feed:
                del self._feeds[session.cluster]

    def _frees_nodes(self, cluster: str, change: BindingChanged) -> bool:
        """Return whether an agent may keep nodes for the binding that it has no more promise for.

        A binding for which every promise in the cluster has just begun or grown frees none.
        """
        ledger, version = self._ledger(cluster), change.clusters[cluster].version
        held = ledger.of_binding(change.key) if ledger else ()
        return not held or any(reservation.grown_version != version for reservation in held)

    def _catch_up(self, cluster: str) -> None:
        """Where a ledger was read anew nobody said what changed: then all of it is told."""
        feed = self._feeds.get(cluster)
        if feed is None or feed.wanted.is_set():
            return
        if self._ledgers.ledger(cluster).interest_version != feed.told:
            feed.want_whole()

    async def _tell(self, session: Session, feed: _Feed) -> None:
        changed = feed.take()
        ledger = self._ledger(session.cluster)
        if ledger is None:
            return
        version = ledger.interest_version
        if changed is None or len(changed) > THREAD_BINDINGS:
            feed.is_writing = True
            try:
                messages = await TELLING_AGENTS.run(
                    self._messages, ledger, changed, feed.told, version
                )
            finally:
                feed.is_writing = False
        else:
            messages = self._messages(ledger, changed, feed.told, version)
        self._send(session, feed, messages, version)

    def _tell_of_others(self, session: Session, feed: _Feed, binding: str) -> None:
        """Tell of the nodes that a few decisions free, before nodes are chosen for a binding.

        Agents keep nodes for what was promised: an order that takes the place of other bindings
        would find none. Bindings that were only promised more free no nodes, and an order for each
        of them tells the agent. The next update tells all of it, with its version and with the
        binding: an agent takes the order for news. After a change of many the order does not wait.
        """
        changed: Collection[str] | None = feed.take_early(binding)
        ledger = self._ledger(session.cluster) if changed else None
        if ledger is None:
            return
        version = feed.told
        if not version:
            # Nothing was promised when the agent was told: version 0 announces further messages.
            changed, version = feed.take(), ledger.interest_version
        self._send(session, feed, self._messages(ledger, changed, feed.told, version), version)

    @staticmethod
    def _send(
        session: Session, feed: _Feed, messages: Sequence[ConnectResponse], version: int
    ) -> None:
        feed.told = version
        for message in messages:
            session.send(message)

    def _ledger(self, cluster: str) -> ClusterLedger | None:
        """None for a cluster that was removed: its stream is about to end."""
        try:
            return self._ledgers.ledger(cluster)
        except NotFound:
            return None

    def _messages(
        self, ledger: ClusterLedger, changed: Collection[str] | None, told: int, version: int
    ) -> Sequence[ConnectResponse]:
        held = set(ledger.bindings()) if changed is None else {
            binding for binding in changed if ledger.of_binding(binding)
        }  # fmt: skip
        owners, uids = self._ledgers.owners, self._ledgers.uids
        update = InterestUpdate(
            version=version,
            whole=changed is None,
            interests=tuple(
                interest_of(ledger, binding, owners.get(binding), uids.get(binding, ""))
                for binding in sorted(held)
            ),
            removed=tuple(sorted(set(changed or ()) - held)),
        )
        return [ConnectResponse(interest=each) for each in interest_messages(update, told)]


def interest_of(ledger: ClusterLedger, binding: str, owner: Owner | None, uid: str) -> Interest:
    """What to look for on behalf of a binding that holds something in the cluster."""
    held = _newest_first(ledger.of_binding(binding))
    shapes = tuple(_sought(each, ledger.echo_of(each)) for each in held)
    return Interest(binding=binding, uid=uid, owner=owner, shapes=shapes)


def _newest_first(held: Sequence[Reservation]) -> list[Reservation]:
    """By component in the order of the binding, and in each the newest shape first."""
    by_component: dict[str, list[Reservation]] = {}
    for each in held:
        by_component.setdefault(each.component, []).insert(0, each)
    return [each for found in by_component.values() for each in found]


def _sought(reservation: Reservation, echo: Echo | None) -> SoughtShape:
    is_planned = reservation.certificate is PromiseCertificate.PLANNED and reservation.replicas
    return SoughtShape(
        component=reservation.component,
        shape=reservation.shape,
        decisions=reservation.decisions,
        planned=_share(reservation) if is_planned else None,
        echoed=max(reservation.adopted, echo.bound if echo else 0),
        promised=reservation.replicas,
    )


def _share(reservation: Reservation) -> Share:
    return Share(
        component=reservation.component,
        requirements=reservation.requirements,
        replicas=reservation.replicas,
        certificate=reservation.certificate,
    )
