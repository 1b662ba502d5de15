"""Describe tables, and keep hot ones small.

Why: a reader of the database sees what each table and column holds. Rows that change all the time
find space in their page, and are vacuumed after a number of changes, however large the table is.
Roll-out: before the code. No row is rewritten, and nobody who reads or writes has to wait.
"""

from __future__ import annotations

from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

COMMENTS = {
    "access_token": "Tokens of people and programs, with roles and scopes.",
    "access_token.id": "Part of the token that is no secret.",
    "access_token.secret_hash": "SHA-256 of the secret part.",
    "access_token.name": "Name of the owner, for people.",
    "access_token.role": "viewer, scheduler, operator, bridge or admin.",
    "access_token.namespaces": "Patterns of namespaces that it may see; empty: all.",
    "access_token.clusters": "Patterns of clusters that it may see; empty: all.",
    "access_token.cluster_labels": "Labels that clusters must have for it to see them; empty: "
    "none.",
    "access_token.networks": "Networks that it may be used from; empty: all.",
    "access_token.calls_per_second": "Limit of calls in a second; 0: none.",
    "access_token.calls_at_once": "Limit of calls at one time; 0: none.",
    "access_token.created_by": "Who made it.",
    "access_token.created_at": "Time at which it was made.",
    "access_token.expires_at": "Time from which it is refused.",
    "access_token.revoked_at": "Time at which it was revoked; null before.",
    "access_token.last_used_at": "Time of the last use, within a minute or so; null before the "
    "first.",
    "access_token.last_used_from": "Address of the last use; empty before the first.",
    "audit": "Audit: changes and refusals. Sealed rows are a chain of hashes.",
    "audit.id": "Number of the row.",
    "audit.at": "Time of the call.",
    "audit.actor": "Who called.",
    "audit.credential_id": "Id of the credential or token that was used.",
    "audit.address": "Address of the caller.",
    "audit.method": "Service and method; the name never changes.",
    "audit.objects": "What the call was about.",
    "audit.result": "OK, or the gRPC status code.",
    "audit.reason": "Reason of a refusal; empty otherwise.",
    "audit.request_sha256": "SHA-256 of the request, in hexadecimal digits; empty where it was "
    "not read.",
    "audit.unrecorded": "Number of like refusals before this row that were not recorded.",
    "audit.seal": "Place in the chain; null before the row is sealed.",
    "audit.hash": "Hash of the row and of the hash before it; null before the row is sealed.",
    "audit_head": "One row: the ends of the chain of the audit.",
    "audit_head.is_only": "Always true: there is one row.",
    "audit_head.seal": "Place of the newest sealed row.",
    "audit_head.hash": "Hash of the newest sealed row.",
    "audit_head.pruned_seal": "Place of the newest row that was pruned.",
    "audit_head.pruned_hash": "Hash of the newest row that was pruned.",
    "binding": "Bindings: what is to run, and where it runs now.",
    "binding.id": "Number of the row; it is never given again.",
    "binding.namespace": "Namespace of the binding.",
    "binding.name": "Name of the binding.",
    "binding.uid": "UID of the workload, as the caller gave it.",
    "binding.generation": "Grows by one with each change of what is asked for.",
    "binding.version": "Grows by one with each change of the row; the resourceVersion of the "
    "API holds it.",
    "binding.spec": "What is asked for: replicas, requirements, placement, priority, gang, "
    "evictions; with a version v.",
    "binding.clusters": "Where it runs now: a list of objects with name and replicas.",
    "binding.decision_id": "Newest decision about it.",
    "binding.observed_affinity": "Affinity group of the placement that the newest decision came "
    "from; empty without one.",
    "binding.affinity_group": "key=value of the label that groups workloads that stay together; "
    "empty without one.",
    "binding.anti_affinity_group": "key=value of the label that groups workloads that stay "
    "apart; empty without one.",
    "binding.created_at": "Time of the first decision about it.",
    "binding.updated_at": "Time of the last change of the row.",
    "binding.last_scheduled_at": "Time of the newest decision that placed it; null before the "
    "first one.",
    "cluster": "Member clusters: one row for each.",
    "cluster.id": "Number of the row; it is never given again.",
    "cluster.name": "Name of the cluster, by which people and placements call it.",
    "cluster.uid": "UID of the namespace kube-system in the cluster; it says which cluster has "
    "the name.",
    "cluster.spec": "What people say of the cluster: labels, annotations, places, taints, "
    "cordon, resource model.",
    "cluster.facts": "What the agent says of itself and of the APIs of the cluster.",
    "cluster.kubernetes_version": "Version of Kubernetes that the agent has read last.",
    "cluster.generation": "Grows by one with each change of spec.",
    "cluster.version": "Grows by one with each change of the row; the resourceVersion of the "
    "API holds it.",
    "cluster.created_at": "Time at which the cluster joined first.",
    "cluster.updated_at": "Time of the last change of spec or uid.",
    "cluster_capacity": "Ledger of each cluster: decisions lock these small rows, reports lie "
    "in cluster_report.",
    "cluster_capacity.cluster_id": "The cluster.",
    "cluster_capacity.version": "Grows by one with each change of the promises or the report of "
    "the cluster.",
    "cluster_capacity.epoch": "Session of the agent that sent the newest report; 0 before the "
    "first one.",
    "cluster_capacity.sequence": "Number of the newest report within its session; 0 before the "
    "first one.",
    "cluster_capacity.received_at": "Time at which the newest report was stored; null where "
    "none counts.",
    "cluster_capacity.history": "XOR of the nonces of all changes: it names what led to the "
    "version.",
    "cluster_report": "Newest report of each cluster.",
    "cluster_report.cluster_id": "The cluster.",
    "cluster_report.body": "The report as the agent sent it, with a version v.",
    "credential": "Credentials of agents, of control planes among each other, and of the first "
    "admin.",
    "credential.id": "Part of the credential that is no secret.",
    "credential.serial": "Grows with each credential: which one is newer does not depend on "
    "clocks.",
    "credential.kind": "admin, agent or replica (a control plane).",
    "credential.cluster_id": "Cluster of an agent; null for others.",
    "credential.secret_hash": "SHA-256 of the secret part.",
    "credential.created_at": "Time at which it was made.",
    "credential.expires_at": "Time from which it is refused; null: never.",
    "credential.revoked_at": "Time at which it was revoked; null before.",
    "decision": "Decisions, in partitions by day that are dropped as a whole; the newest one of "
    "each binding is moved to day -infinity before.",
    "decision.id": "Id of the decision.",
    "decision.binding_id": "The binding; it may be deleted, and no other one gets its number.",
    "decision.namespace": "Namespace of the binding.",
    "decision.name": "Name of the binding.",
    "decision.binding_generation": "Generation of the binding that was decided.",
    "decision.outcome": "SCHEDULED, PARTIAL, UNSCHEDULABLE (no capacity) or NO_FIT (filters or "
    "spread leave nothing).",
    "decision.clusters": "Replicas of each chosen cluster: a list of objects with name and "
    "replicas.",
    "decision.remainder": "Replicas that got no cluster.",
    "decision.reason": "Why the outcome is not SCHEDULED, in words; empty otherwise.",
    "decision.algorithm_revision": "Revision of the algorithm that decided.",
    "decision.created_at": "Time of the transaction that wrote the decision.",
    "decision.trace": "Everything behind the decision, as compressed JSON; fedctl explain shows "
    "it.",
    "decision.triggers": "What made a control plane decide, in words.",
    "decision.day": "Day of created_at in UTC, which chooses the partition; -infinity: it "
    "outlived its day.",
    "decision_input": "Bodies that decisions share: the fleets and profiles that they were made "
    "on.",
    "decision_input.name": "SHA-256 of the content.",
    "decision_input.body": "The content, compressed.",
    "decision_input.used_at": "Time of a use, written every 40 minutes at most; unused bodies "
    "are deleted.",
    "duty": "Background work that one control plane does at a time. Rows stay, so that tokens "
    "only grow.",
    "duty.name": "Name of the work.",
    "duty.holder": "replica.id of the control plane that does it; empty once it was left.",
    "duty.token": "Grows with each holder: an earlier one cannot write any more.",
    "duty.expires_at": "Time until which the holder does it, unless it renews.",
    "duty.failing_since": "Time since when the work fails; null while its last round succeeded.",
    "duty.failure": "Why it fails; empty otherwise.",
    "failover": "One row: whether failover is frozen. No row before it first was.",
    "failover.is_only": "Always true: there is one row.",
    "failover.body": "Since when, why and by whom, with a version v.",
    "history": "One row: which database of which server this is. No row: the tables were emptied.",
    "history.is_only": "Always true: there is one row.",
    "history.id": "Id of the history; a restore or a failover begins another one.",
    "history.database": "Server, database and timeline as of the last start; empty before the "
    "first.",
    "join_token": "Join tokens: each lets one cluster join once.",
    "join_token.id": "Part of the token that is no secret.",
    "join_token.secret_hash": "SHA-256 of the secret part.",
    "join_token.cluster_name": "Name that the cluster has to join under.",
    "join_token.created_at": "Time at which it was made.",
    "join_token.expires_at": "Time from which it is refused.",
    "join_token.used_at": "Time at which it was used or cancelled; null before.",
    "journal": "Changes that were committed, for all control planes to read in the order of "
    "(xid, id); pruned after an hour or so.",
    "journal.id": "Number of the entry.",
    "journal.xid": "Id of the transaction; entries of the oldest one that still runs, and later "
    "ones, are not read yet.",
    "journal.kind": "binding, report or cluster.",
    "journal.body": "The change as MessagePack, with a version v.",
    "journal.created_at": "Time of the transaction.",
    "journal.nonce": "Random number of the change, which cluster_capacity.history sums up.",
    "journal_horizon": "One row: the newest entry of the journal that was pruned. No row before "
    "the first.",
    "journal_horizon.is_only": "Always true: there is one row.",
    "journal_horizon.xid": "journal.xid of the entry.",
    "journal_horizon.id": "journal.id of the entry.",
    "namespace_quota": "Quotas: how much a namespace may hold promised.",
    "namespace_quota.namespace": "The namespace.",
    "namespace_quota.limits": 'Limits: replicas under "", resources by name.',
    "namespace_quota.changed_at": "Time of the last change.",
    "node_plan": "Nodes that agents chose for the shares of decisions.",
    "node_plan.decision_id": "The decision.",
    "node_plan.cluster_name": "The cluster whose agent answered.",
    "node_plan.body": "The nodes and their replicas, with a version v.",
    "node_plan.created_at": "Time of the first answer.",
    "plan": "Plans of rebalancing, consolidation and drains.",
    "plan.id": "Number of the plan, by which people call it.",
    "plan.state": "draft, running, done or stopped.",
    "plan.created_at": "Time at which it was made.",
    "plan.body": "The plan without its steps, with a version v.",
    "plan_step": "Steps of plans.",
    "plan_step.plan_id": "The plan; the row goes with it.",
    "plan_step.number": "Number of the step, from 1 on.",
    "plan_step.state": "pending, moving, done, skipped or failed.",
    "plan_step.version": "Version of the plan when the step last changed.",
    "plan_step.body": "The step, with a version v.",
    "preemption": "Replicas that were preempted within the last hour, for the limits of each "
    "minute.",
    "preemption.id": "Number of the row.",
    "preemption.at": "Time of the preemption.",
    "preemption.namespace": "Namespace that lost replicas.",
    "preemption.replicas": "Number of replicas.",
    "presence": "Which control plane heard which agent, and when. Not logged: it is empty after "
    "a crash of the server.",
    "presence.cluster_id": "The cluster.",
    "presence.replica": "replica.id of the control plane; empty once the stream ended.",
    "presence.epoch": "Session of the agent.",
    "presence.heard_at": "Time at which the agent was heard last.",
    "presence.clock_offset_seconds": "How far the clock of the agent is ahead.",
    "presence.confirmed_sequence": "Number of the report that the agent stood by when it was "
    "heard; 0: none.",
    "presence.blind_seconds": "How long the agent had not seen its cluster when it was heard; "
    "0: it saw it.",
    "presence.blind_reason": "Why it did not, as a code; empty: it saw it.",
    "presence.blind_message": "Why it did not, for people; empty: it saw it.",
    "presence.skipped_objects": "Number of nodes, pods and quotas that the agent cannot read.",
    "preview": "Previews: decisions that are not committed, deleted soon after they expire.",
    "preview.id": "Id of the preview.",
    "preview.secret_hash": "SHA-256 of the secret of the caller who may commit it.",
    "preview.binding_id": "The binding; null where it is new.",
    "preview.binding_generation": "Generation of the binding that was decided; null where it is "
    "new.",
    "preview.body": "The binding, the decision and its evidence, as compressed JSON.",
    "preview.decision_id": "The decision that the preview became; null before.",
    "preview.created_at": "Time of the preview.",
    "preview.expires_at": "Time from which it cannot be committed.",
    "replica": "Control planes that run. Not logged: it is empty after a crash of the server.",
    "replica.id": "Id of the process; no other one gets it. Its sessions are called fedsched/ID.",
    "replica.endpoint": "Where other control planes dial it.",
    "replica.heard_at": "Time at which it last said that it runs.",
    "report_picture": "Contents of reports that are kept, once a day each, in partitions by day.",
    "report_picture.name": "SHA-256 of the content.",
    "report_picture.day": "Day in UTC, which chooses the partition.",
    "report_picture.body": "The content, compressed.",
    "report_round": "Which pictures clusters had, minute by minute, in partitions by day.",
    "report_round.id": "Id of the row.",
    "report_round.day": "Day in UTC, which chooses the partition.",
    "report_round.kept_at": "Time of the round.",
    "report_round.body": "Clusters and the names of their pictures, compressed.",
    "request": "Answers under idempotency keys, kept for 24 hours.",
    "request.caller": "Id of the credential of the caller.",
    "request.key": "Idempotency key.",
    "request.body_hash": "SHA-256 of the request.",
    "request.answer": "The answer, as it was sent.",
    "request.created_at": "Time of the answer.",
    "reservation": "Promises: all that a binding holds, in one row. Bindings that hold nothing "
    "have none.",
    "reservation.namespace": "Namespace of the binding.",
    "reservation.name": "Name of the binding.",
    "reservation.uid": "UID of the workload, as the caller gave it.",
    "reservation.clusters": "Clusters in which it holds something.",
    "reservation.held": 'What counts against the quota of the namespace: replicas under "", '
    "resources by name.",
    "reservation.body": "Each promise with its requirements and replicas, as MessagePack with a "
    "version v.",
    "reservation.lease_expires_at": "Time at which the promises end unless they are renewed; "
    "null: they do not.",
    "waiting": "Queue: a row for each binding that waits for capacity, in whole or in part.",
    "waiting.binding_id": "The binding; the row goes with it.",
    "waiting.namespace": "Namespace of the binding.",
    "waiting.name": "Name of the binding.",
    "waiting.priority": "Priority of the binding, or of its gang: higher ones are tried first.",
    "waiting.state": "active, backoff (until next_try), unschedulable (until something changes) "
    "or gated (not tried).",
    "waiting.gate": "What a gated binding waits for; empty for all others.",
    "waiting.since": "Time since when it waits.",
    "waiting.attempts": "Number of times it was tried.",
    "waiting.next_try": "Time of the next try in state backoff; null otherwise.",
    "waiting.remainder": "Replicas that wait.",
    "waiting.short_of": "What is missing, in words.",
    "waiting.overtaken_since": "Time at which a later binding was first placed where this one "
    "could have gone.",
    "waiting.overtaken_by": "NAMESPACE/NAME of the binding that did so first; empty before.",
    "waiting.earmarked_since": "Time since when capacity is kept for it; null where none is.",
    "waiting.nominated": "Capacity that others left for it by preemption, and until when it is "
    "kept; null without.",
    "waiting.gang": "Gang that it waits with for its first place; empty without one.",
    "waiting.entry": "First member of the gang: all members have its position; empty without a "
    "gang.",
    "waiting.ordered_at": "Time that a plug-in puts in place of since in the order; null "
    "otherwise.",
    "waiting.times_out": "Time at which the gang stops waiting; null without a gang.",
}
SETTINGS = {
    "binding": {"fillfactor": 80, "autovacuum_vacuum_scale_factor": 0.02},
    "cluster_capacity": {
        "fillfactor": 50,
        "autovacuum_vacuum_scale_factor": 0,
        "autovacuum_vacuum_threshold": 1000,
    },
    "cluster_report": {
        "fillfactor": 80,
        "autovacuum_vacuum_scale_factor": 0,
        "autovacuum_vacuum_threshold": 1000,
    },
    "duty": {
        "fillfactor": 50,
        "autovacuum_vacuum_scale_factor": 0,
        "autovacuum_vacuum_threshold": 200,
    },
    "journal": {"autovacuum_vacuum_scale_factor": 0, "autovacuum_vacuum_threshold": 10000},
    "presence": {
        "fillfactor": 50,
        "autovacuum_vacuum_scale_factor": 0,
        "autovacuum_vacuum_threshold": 1000,
    },
    "replica": {
        "fillfactor": 50,
        "autovacuum_vacuum_scale_factor": 0,
        "autovacuum_vacuum_threshold": 200,
    },
    "reservation": {"fillfactor": 80, "autovacuum_vacuum_scale_factor": 0.02},
    "waiting": {"fillfactor": 70, "autovacuum_vacuum_scale_factor": 0.02},
}


def upgrade() -> None:
    for name, comment in COMMENTS.items():
        describe(name, "'" + comment.replace("'", "''") + "'")
    for table, settings in SETTINGS.items():
        values = ", ".join(f"{name} = {value}" for name, value in settings.items())
        op.execute(f"ALTER TABLE {table} SET ({values})")


def downgrade() -> None:
    for table, settings in SETTINGS.items():
        op.execute(f"ALTER TABLE {table} RESET ({', '.join(settings)})")
    for name in COMMENTS:
        describe(name, "NULL")


def describe(name: str, comment: str) -> None:
    kind = "COLUMN" if "." in name else "TABLE"
    op.execute(f"COMMENT ON {kind} {name} IS {comment}")
