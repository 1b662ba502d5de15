"""Decisions made again, to messages: what a replay found, and what reports say beside it.

Must not be where decisions themselves become messages: this needs the rooms that replay.
"""

from __future__ import annotations

from federation.codec.bindings import put_targets
from federation.codec.decisions import OUTCOME_NUMBERS
from federation.scheduler.replay import Replay
from federation.simulation.reported_fleet import ReportComparison
from federation.v1 import scheduling_pb2


def replay_to_message(replay: Replay) -> scheduling_pb2.ReplayDecisionResponse:
    message = scheduling_pb2.ReplayDecisionResponse(
        equal=replay.difference is None,
        stored_sha256=replay.stored_sha256,
        replayed_sha256=replay.replayed_sha256,
        stored_revision=str(replay.stored_revision),
        replayed_revision=str(replay.replayed_revision),
        outcome=OUTCOME_NUMBERS[replay.decision.outcome],
    )
    put_targets(replay.decision.clusters, message.clusters.add)
    if replay.difference is not None:
        message.first_difference.path = replay.difference.path
        message.first_difference.stored = replay.difference.stored
        message.first_difference.replayed = replay.difference.replayed
    return message


def beside_reports_to_message(beside: ReportComparison) -> scheduling_pb2.BesideReports:
    message = scheduling_pb2.BesideReports(
        equal=beside.equal,
        clusters=beside.clusters,
        on_other_reports=beside.on_others,
        decisions_since=beside.since,
        outcome=OUTCOME_NUMBERS[beside.decision.outcome],
    )
    for each in beside.differences:
        message.differences.add(
            cluster=each.cluster,
            decided_on=each.decided_on,
            least=each.least,
            most=each.most,
            decided_on_report=each.decided_on_report,
            kept_report=each.kept_report or 0,
            not_kept=each.kept_report is None,
        )
    put_targets(beside.decision.clusters, message.targets.add)
    return message
