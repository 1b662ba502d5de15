"""Whether control planes say what the database holds, in bindings, answers and replays.

Must not hurry: a control plane follows the others within moments, not at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from federation.services.journal import StoredReservations
from lab.callers import Caller, calling
from lab.chaos.audit import Standing
from lab.chaos.callers import Controller
from lab.patience import PATIENCE_SECONDS
from lab.servers import ROOT, environment

FOLLOW_SECONDS = PATIENCE_SECONDS
POLL_SECONDS = 0.05
MAX_REQUEST = 40

# By cluster and component: replicas, their certificate, and the decision.
Told = set[tuple[str, str, int, str, str]]


async def disagreements(endpoints: Sequence[str], token: str, standing: Standing) -> list[str]:
    """What control planes still say otherwise after a while, of some bindings."""
    keys = sorted(standing.bindings)[:MAX_REQUEST]
    found = []
    for endpoint in endpoints:
        async with calling(endpoint, token) as caller:
            wrong = await _wrong(caller, keys, standing)
            deadline = time.monotonic() + FOLLOW_SECONDS
            while wrong and time.monotonic() < deadline:
                await asyncio.sleep(POLL_SECONDS)
                wrong = await _wrong(caller, list(wrong), standing)
            found += [f"{endpoint} says of {key}: {text}" for key, text in wrong.items()]
    return found


async def _wrong(caller: Caller, keys: Sequence[str], standing: Standing) -> Mapping[str, str]:
    """Bindings of which it says something else, and what."""
    wrong = {}
    for key in keys:
        namespace, name = key.split("/")
        answer = await caller.ask("GetBinding", namespace=namespace, name=name)
        told = {
            (each.cluster, each.component, each.replicas, each.certificate, each.decision_id)
            for each in answer.reservations
        }
        stored = _held(standing.reservations.get(key))
        decision = standing.bindings[key][1]
        if told != stored or answer.decision.id != decision:
            wrong[key] = f"{sorted(told)} by {answer.decision.id}, stored: {stored} by {decision}"
    return wrong


def _held(row: StoredReservations | None) -> Told:
    """The newest shape of every component."""
    newest = {(each.cluster, each.component): each for each in row.reservations} if row else {}
    return {
        (each.cluster, each.component, each.replicas, each.certificate, each.decision)
        for each in newest.values()
    }


def check_told(
    callers: Sequence[Controller],
    decisions: Mapping[str, tuple[str, Mapping[str, int]]],
    bindings: Mapping[str, tuple[Mapping[str, int], str]],
    decided: Mapping[str, Counter[str]],
) -> list[str]:
    """What is in the database and was told otherwise, or was told and is not there."""
    found = []
    for caller in callers:
        for told in caller.acknowledged:
            stored = decisions.get(told.decision)
            if stored != (told.binding, told.clusters):
                found.append(f"lost: {told}, stored is {stored}")
        for key, owned in caller.owned.items():
            clusters, decision = bindings.get(key, ({}, ""))
            if (clusters, decision) != (owned.clusters, owned.newest):
                expected = f"{owned.clusters} by {owned.newest}"
                found.append(f"{key} runs in {clusters} by {decision}, told was {expected}")
        found += [f"{key} was deleted and is there" for key in caller.deleted & bindings.keys()]
        found += [
            f"of an atomic batch only some were decided: {keys}"
            for keys in caller.together
            if len({bool(decided.get(key)) for key in keys}) > 1
        ]
        # Each request is refused or placed at most once, and refused before the queue places it.
        found += [
            f"{key}: {decided[key]} for {keys} requests"
            for key, keys in caller.keys.items()
            if key in decided and max(decided[key].values()) > keys
        ]
    return found


class Replayed(NamedTuple):
    """How many decisions came out equal, and which did not."""

    equal: int
    violations: list[str]


def replay(folder: Path, endpoint: str, token: str) -> Replayed:
    """All decisions that a control plane has."""
    trace, error = exported(folder, "chaos", endpoint, token)
    told, error = ({}, error) if error else asked(folder, "replay", "--trace", trace)
    if error:
        return Replayed(0, [error])
    wrong = [each for each in told["unequal"] if each["how"] not in ("notKept", "forgotten")]
    return Replayed(told["equal"], [f"replayed otherwise: {each}" for each in wrong])


def exported(folder: Path, name: str, endpoint: str, token: str, *options: str) -> tuple[str, str]:
    """The file of a trace of all decisions; and why there is none, empty: there is one."""
    trace, token_file = str(folder / f"{name}.trace"), folder / f"{name}.token"
    token_file.write_text(token, "ascii")
    asking = ("--insecure", "--endpoint", endpoint, "--token-file", str(token_file))
    patience = ("--timeout", f"{PATIENCE_SECONDS:g}")
    done = run_fedctl(folder, *asking, *patience, "trace", "export", trace, *options)
    return trace, f"no trace could be exported: {done.stderr}" if done.returncode else ""


def asked(folder: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    """What fedctl says of a trace; and why it says nothing, empty: it does."""
    done = run_fedctl(folder, *arguments, "-o", "json")
    try:
        return json.loads(done.stdout), ""
    except ValueError:
        return {}, f"fedctl {arguments[0]} fails: {done.stderr}"


def run_fedctl(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """As on another machine: it is told of no server that is not among the arguments."""
    nobody = {"HOME": str(folder), "FEDERATION_DATABASE_URL": "postgresql://nobody.invalid/none"}
    return subprocess.run(
        [sys.executable, "-c", "from federation.entry import fedctl; fedctl()", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment(nobody)},
        capture_output=True,
        text=True,
        check=False,
    )
