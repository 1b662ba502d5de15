"""The program of the processes that simulate, replay and play what-ifs: questions on standard
input, answers on the output.

Must not know the fleet, the store or the network; it ends with the process that started it.
"""

from __future__ import annotations

import os
import pickle
import resource
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from federation.codec.changed_placements import PolicyPlacements
from federation.codec.decisions import decision_to_message
from federation.codec.documents import read_documents
from federation.codec.replays import beside_reports_to_message, replay_to_message
from federation.codec.simulations import (
    SimulationRequest,
    check_price,
    simulation_from_message,
)
from federation.codec.virtual_time import put_virtual_time
from federation.codec.workloads import policies_from_documents
from federation.history.packed_inputs import InputReader
from federation.history.recorded import Recorded
from federation.model.errors import FederationError, LimitExceeded, PluginFailed
from federation.rpc.bindings import add_warnings
from federation.rpc.decoding import decoded, deserialized
from federation.rpc.status import wire_status_of
from federation.rpc.worker_pipes import FrameAnswer, answer_frames, end_with_parent, read_frame
from federation.runtime.log_fields import LogFormat, LogLevel
from federation.runtime.logs import configure_logging
from federation.scheduler.decision import Decision
from federation.scheduler.plugins.profile import Profiles
from federation.services.troubles import tell_plugin_failure
from federation.services.values import DecisionRecord
from federation.services.workers import OUT_OF_MEMORY_CODE, AnswerKind
from federation.simulation.decisions import Simulation, check_bindings
from federation.simulation.reported_fleet import ReportReplayInput, compare_with_reports
from federation.simulation.what_if_runs import RecentQuestion, answer_of, question_bytes
from federation.simulation.world import VirtualFleet
from federation.v1.scheduling_pb2 import ReplayDecisionResponse
from federation.v1.simulation_pb2 import SimulateRequest, SimulateResponse

# What clients take by default, and a margin.
MAX_ANSWER_BYTES: Final = 4_000_000
MEBIBYTE: Final = 1 << 20
# A process that grew beyond this is not kept.
KEPT_BYTES: Final = 256 * MEBIBYTE
# In front of a question: what it is, and the time that it is made at, Unix seconds.
_HEAD: Final = struct.Struct("!cd")
# As violations call them.
POLICIES: Final = "policies"
_SIMULATE: Final = b"s"
_REPLAY: Final = b"r"
_BESIDE_REPORTS: Final = b"b"
_WHAT_IF: Final = b"w"
_QUESTIONS: Final = msgspec.msgpack.Decoder(RecentQuestion)
_RECORDED: Final = msgspec.msgpack.Decoder(Recorded)
_KEPT: Final = msgspec.msgpack.Decoder(ReportReplayInput)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a process is told once."""

    profiles: Profiles
    most_steps: int
    memory_mebibytes: int
    log_format: LogFormat
    log_level: LogLevel


def main() -> None:
    """Answer until standard input ends."""
    end_with_parent()
    setup: Setup = pickle.loads(read_frame())  # noqa: S301 - from the process that started this one
    configure_logging(sys.stderr, form=setup.log_format, level=setup.log_level)
    _restrict(setup.memory_mebibytes)

    def answer_frame(question: bytes) -> FrameAnswer:
        kind, body = answered(question, setup)
        return FrameAnswer(kind, body, is_last=_resident_bytes() > KEPT_BYTES)

    try:
        answer_frames(answer_frame, says_when_taken=True)
    except MemoryError:
        os._exit(OUT_OF_MEMORY_CODE)


def simulation_question(request: bytes, now: float) -> bytes:
    """``request`` is a SimulateRequest."""
    return _HEAD.pack(_SIMULATE, now) + request


def replay_question(recorded: Recorded) -> bytes:
    """Of a large fleet this takes long."""
    return _HEAD.pack(_REPLAY, 0.0) + msgspec.msgpack.encode(recorded)


def beside_reports_question(kept: ReportReplayInput) -> bytes:
    """Of many decisions and reports this takes long."""
    return _HEAD.pack(_BESIDE_REPORTS, 0.0) + msgspec.msgpack.encode(kept)


def what_if_question(asked: RecentQuestion) -> bytes:
    """Of many decisions this takes long."""
    return _HEAD.pack(_WHAT_IF, 0.0) + question_bytes(asked)


def answered(question: bytes, setup: Setup) -> tuple[AnswerKind, bytes]:
    """The response's bytes, or those of the status that the call ends with."""
    kind, now = _HEAD.unpack_from(question)
    asked = question[_HEAD.size :]
    try:
        if kind == _REPLAY:
            replay = _RECORDED.decode(asked).replayed(InputReader(setup.profiles))
            body = replay_to_message(replay).SerializeToString()
        elif kind == _BESIDE_REPORTS:
            body = _beside_reports(_KEPT.decode(asked), setup).SerializeToString()
        elif kind == _WHAT_IF:
            body = _what_if(_QUESTIONS.decode(asked), setup)
        else:
            body = _simulated(asked, setup, now).SerializeToString()
    except FederationError as error:
        if isinstance(error, PluginFailed):
            tell_plugin_failure(error)
        if isinstance(error.__cause__, MemoryError):
            # It met a plugin, and is not the plugin's fault.
            raise error.__cause__ from error
        return AnswerKind.REFUSAL, wire_status_of(error).SerializeToString()
    return AnswerKind.ANSWER, body


def _beside_reports(kept: ReportReplayInput, setup: Setup) -> ReplayDecisionResponse:
    reader = InputReader(setup.profiles)
    message = replay_to_message(kept.recorded.replayed(reader))
    certificates = {name: each.certificate for name, each in setup.profiles.by_name.items()}
    beside = compare_with_reports(kept, reader, certificates)
    message.beside_reports.CopyFrom(beside_reports_to_message(beside))
    return message


def _what_if(asked: RecentQuestion, setup: Setup) -> bytes:
    placement_of = None
    if asked.policies:
        documents = read_documents(asked.policies, source=POLICIES)
        placement_of = PolicyPlacements(policies_from_documents(documents))
    return msgspec.msgpack.encode(answer_of(asked, placement_of, setup.profiles))


def _simulated(body: bytes, setup: Setup, now: float) -> SimulateResponse:
    request = decoded(deserialized(SimulateRequest.FromString, body))
    check_price(request, setup.most_steps)
    asked = simulation_from_message(request, now)
    check_bindings(asked.bindings, setup.profiles)
    response = SimulateResponse()
    decided = zip(
        (binding for _, binding in asked.bindings),
        _decisions(asked, setup.profiles, now, response),
        strict=True,
    )
    size_bytes = response.ByteSize()
    for position, (binding, decision) in enumerate(decided, start=1):
        record = DecisionRecord(
            id="",
            namespace=binding.namespace,
            name=binding.name,
            binding_generation=binding.generation,
            created_at=now,
            decision=decision,
        )
        response.decisions.append(decision_to_message(record, trace=asked.include_traces))
        add_warnings(request.bindings[position - 1], response.decisions[-1])
        size_bytes += response.decisions[-1].ByteSize()
        if size_bytes > MAX_ANSWER_BYTES:
            raise LimitExceeded(
                f"after {position} of {len(asked.bindings)} bindings the answer has {size_bytes} "
                f"bytes, and {MAX_ANSWER_BYTES} travel at once: simulate fewer bindings at a time, "
                "or without traces"
            )
    return response


def _decisions(
    asked: SimulationRequest, profiles: Profiles, now: float, response: SimulateResponse
) -> Sequence[Decision]:
    """The newest about each binding; in virtual time the response tells the rest."""
    bindings = [binding for _, binding in asked.bindings]
    if asked.virtual_time is None:
        simulation = Simulation(asked.states, asked.options, now=now, profiles=profiles)
        return simulation.decide_all(bindings)
    events, rules = asked.virtual_time.events, asked.virtual_time.rules
    fleet = VirtualFleet(asked.states, asked.options, rules, began=now, profiles=profiles)
    fleet.run(bindings, events)
    put_virtual_time(fleet.steps, fleet.waiting(), response)
    return [fleet.decision_of(binding) for binding in bindings]


def _resident_bytes() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        # The peak, elsewhere: on Linux it would start with that of the process that started us.
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    return pages * resource.getpagesize()


def _restrict(memory_mebibytes: int) -> None:
    most = memory_mebibytes * MEBIBYTE
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
