"""The names of all statements, and the order in which transactions take locks.

Must not build or run a statement. A name stands in a comment behind the first keyword of its
statement, because PostgreSQL 18 cuts a leading comment off its statistics.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, TypeVar

from sqlalchemy.sql.selectable import HasPrefixes

Statement = TypeVar("Statement", bound=HasPrefixes)

PREFIX: Final = "fedsched:"


class Lock(IntEnum):
    """Classes of locks, in the order in which a transaction takes them.

    A transaction that holds one takes no earlier one for the first time. Rows of one class are
    taken in the order of their keys. Inserts under new ids wait for nobody, and are not listed.
    """

    DUTY = 1
    HISTORY = 2
    JOIN_TOKEN = 3
    TOKEN = 4
    PLAN = 5
    FAILOVER = 6
    PREVIEW = 7
    GROUP = 8
    CLUSTER = 9
    CREDENTIAL = 10
    LEDGER = 11
    BINDING = 12
    QUOTA = 13
    SHARED_BODY = 14
    DECISION = 15
    RESERVATION = 16
    WAITING = 17
    PREEMPTION = 18
    REPORT = 19
    PRESENCE = 20
    REPLICA = 21
    ANSWER = 22
    KEPT_REPORT = 23
    JOURNAL = 24
    AUDIT = 25


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


# The statements that take locks of a class, and hold them until their transaction ends.
LOCKING: Final[Mapping[Lock, frozenset[str]]] = {
    lock: _names(names)
    for lock, names in {
        Lock.DUTY: "duties.check duties.hold duties.leave duties.record_failure",
        Lock.HISTORY: "history.ensure history.lock history.renew history.settle",
        Lock.JOIN_TOKEN: "credentials.cancel_join_token credentials.cancel_join_tokens"
        " credentials.prune_join_tokens credentials.spend_join_token",
        Lock.TOKEN: "tokens.prune tokens.put_uses tokens.revoke",
        Lock.PLAN: "plans.lock plans.lock_running plans.prune plans.put plans.put_steps",
        Lock.FAILOVER: "failover.begin failover.lock failover.put",
        Lock.PREVIEW: "previews.lock previews.prune previews.settle",
        Lock.GROUP: "bindings.lock_groups",
        Lock.CLUSTER: "clusters.add clusters.delete clusters.lock clusters.put clusters.put_facts"
        " clusters.put_uid",
        Lock.CREDENTIAL: "credentials.discard credentials.keep_newest credentials.keep_only"
        " credentials.lock_admin credentials.prune credentials.revoke_admins"
        " credentials.revoke_all credentials.settle",
        Lock.LEDGER: "clusters.reset_capacity history.forget_reports history.lock_ledgers"
        " journal.advance journal.append_and_advance journal.lock reports.advance",
        # A deletion is noted under the lock of its binding.
        Lock.BINDING: "bindings.delete bindings.lock bindings.touch failover.leave"
        " failover.put_evictions",
        Lock.QUOTA: "quotas.lock quotas.put quotas.remove",
        Lock.SHARED_BODY: "decision_inputs.prune decision_inputs.put",
        # Bindings that are there were locked before; new ones are added with their decisions.
        Lock.DECISION: "decisions.add decisions.keep decisions.prune_kept"
        " decisions.prune_deletions decisions.prune_node_plans decisions.put_node_plans",
        Lock.RESERVATION: "reservations.delete reservations.lock reservations.lock_in_cluster"
        " reservations.put reservations.renew",
        Lock.WAITING: "waiting.earmark waiting.fail waiting.gate waiting.lock"
        " waiting.lock_together waiting.open waiting.order waiting.overtake waiting.put"
        " waiting.put_together waiting.refuse waiting.remove",
        Lock.PREEMPTION: "preemptions.add preemptions.lock preemptions.prune",
        Lock.REPORT: "clusters.forget_report reports.advance",
        Lock.PRESENCE: "clusters.forget_presence presences.leave presences.put",
        Lock.REPLICA: "replicas.forget replicas.put replicas.remove",
        Lock.ANSWER: "requests.add requests.prune",
        Lock.KEPT_REPORT: "kept_reports.put",
        Lock.JOURNAL: "history.forget_journal history.move_horizon journal.append"
        " journal.append_and_advance journal.prune",
        Lock.AUDIT: "audit.add audit.begin_head audit.lock_head audit.put_batches audit.put_head",
    }.items()
}
# The statements that change tables themselves: they wait 50 ms at most, and run alone.
RESHAPING: Final = frozenset(
    {"partitions.attach", "partitions.drop", "partitions.lock", "partitions.make"}
)
# The statements that take no lock of a row: they read, or add rows under new ids. Floors are locks
# that wait for nobody, wherever a transaction takes its own.
FREE: Final = _names("""
    audit.batches audit.bounds audit.chain audit.head audit.last_of_day audit.of_batches audit.page
    audit.seal audit.take_floor
    bindings.earmarked bindings.find bindings.first_waiting bindings.holding bindings.in_cluster
    bindings.names bindings.of_gang bindings.page bindings.peers bindings.preemptible
    bindings.to_decide bindings.waiting
    clusters.add_capacity clusters.all clusters.find
    connection.check_client connection.search_path
    credentials.add credentials.add_join_token credentials.ages credentials.find
    credentials.find_admin credentials.join_tokens credentials.serial
    decision_inputs.find
    decisions.deletions decisions.find decisions.find_node_plans decisions.find_undated
    decisions.last_looked_at decisions.page decisions.recorded decisions.recorded_sizes
    duties.failures
    failover.evicted failover.evictions failover.get failover.in_clusters failover.replicas
    gangs.page
    history.get history.holds history.is_there history.newest history.server
    journal.bounds journal.holder journal.oldest journal.read journal.read_ahead
    journal.take_floor
    kept_reports.add kept_reports.now kept_reports.pictures kept_reports.rounds kept_reports.size
    migrations.backend migrations.holders migrations.keep migrations.lock migrations.make_schema
    migrations.names migrations.schemas migrations.set migrations.stamp migrations.tables
    partitions.days_left partitions.missing partitions.oldest partitions.patience
    plans.active plans.add plans.away plans.get plans.page plans.running plans.steps
    plans.steps_since
    preemptions.spent
    presences.all presences.unheard_seconds
    previews.add
    quotas.count quotas.find quotas.held quotas.namespaces quotas.page quotas.used quotas.version
    replicas.all
    reports.get
    requests.get
    reservations.all reservations.expired reservations.has_expired reservations.holdings
    reservations.in_clusters reservations.of
    server.clock server.durability server.fleet server.lost_settings
    server.settings
    signal.announce
    store.take_room
    tokens.add tokens.count tokens.find tokens.is_there tokens.page tokens.unrevoked
    waiting.page waiting.page_of_part waiting.position waiting.tallies
""")
NAMES: Final = frozenset().union(*LOCKING.values(), RESHAPING, FREE)


def named(name: str, statement: Statement) -> Statement:
    """Return a statement of SQLAlchemy that carries a name; texts carry theirs as written."""
    return statement.prefix_with(f"/* {PREFIX}{name} */")


def locks_of(name: str) -> tuple[Lock, ...]:
    """Return the classes of locks that a statement takes, in their order."""
    return tuple(lock for lock in Lock if name in LOCKING[lock])
