"""The fake API server answers as a real one was recorded to, request by request.

Must not excuse a difference without saying why.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial

import pytest

from lab.kubeapi.server import ADMIN_TOKEN, KubeApiServer
from tests.contract.kubeapi.recorded import Exchange, Replay, exchanges, recorded
from tests.contract.kubeapi.scenes import SCENES, UNCACHED_SCENES, steps

# Seconds of the fake while watches are replayed: they end by their timeouts.
SECOND = 0.08
SHORT_SECOND = 0.01
LONG_WATCHES = frozenset({"server-shutdown", "bookmarks-over-80-seconds"})

NO_POD_VALIDATION = "the agent makes no pods, so the fake does not validate them"
NO_QUOTA = "the agent makes no pods, so the fake admits them without quotas"
NOT_ASKED_FOR = "the agent never asks for this form"
SKIPPED = {
    ("errors", "token-request"): NOT_ASKED_FOR,
    ("errors", "422-pod"): NO_POD_VALIDATION,
    ("errors", "400-quantity"): NO_POD_VALIDATION,
    ("errors", "unknown-field-warning"): NO_POD_VALIDATION,
    ("errors", "400-strict"): NO_POD_VALIDATION,
    ("errors", "403-quota"): NO_QUOTA,
    ("errors", "403-quota-needs-request"): NO_QUOTA,
    ("list", "table"): NOT_ASKED_FOR,
    ("list", "protobuf"): NOT_ASKED_FOR,
    ("list", "gzip-asked-10-pods"): NOT_ASKED_FOR,
    ("list", "gzip-asked-80-pods"): NOT_ASKED_FOR,
    ("list", "gzip-not-asked-80-pods"): "no body was recorded",
    ("list", "gzip-asked-watch"): NOT_ASKED_FOR,
}
SCENES_BY_NAME = {"cached": SCENES, "uncached": UNCACHED_SCENES}
# What starts with one of these may differ.
PARSER_TEXT = ("body.message",)  # quotes Go's JSON parser
SPEC_DIFF = ("body.message", "body.details.causes[0].message")  # quotes a diff of Go structs
NO_FAIRNESS = ("X-Kubernetes-Pf-",)  # recorded with Priority and Fairness off; the fake's is on
EXCUSED: dict[tuple[str, str], tuple[str, ...]] = {
    ("errors", "422-immutable"): SPEC_DIFF,
    ("errors", "400-malformed-json"): PARSER_TEXT,
    ("errors", "400-continue"): PARSER_TEXT,
    # The real server fills in a condition's absent times; the agent does not read them.
    ("binding", "condition-unschedulable"): ("body.status.conditions[0].lastProbeTime",),
    ("throttled", "429-max-inflight"): NO_FAIRNESS,
    ("throttled", "watch-is-exempt"): NO_FAIRNESS,
}


def scene_of(exchange: Exchange) -> str:
    return "uncached" if exchange.id.startswith("nocache-") else "cached"


def token_of(exchange: Exchange) -> str | None:
    if exchange.auth == "none":
        return None
    if exchange.auth != "bearer":
        return ADMIN_TOKEN
    if exchange.id == "401-bad-token":
        return "nobody"
    return "reader" if "reader" in exchange.id or exchange.id == "access-review" else "no-rights"


def token_of_throttled(_: Exchange) -> str:
    return ADMIN_TOKEN


@cache
def replayed(file: str, scene_name: str) -> dict[str, list[str]]:
    """The differences of every exchange of a scene, asked one after another of one server."""
    scene = SCENES_BY_NAME[scene_name][file]
    found: dict[str, list[str]] = {}
    with KubeApiServer(scene.cluster(), second=SECOND) as server:
        replay = Replay(server.url, token_of_throttled if file == "throttled" else token_of)
        for exchange in exchanges(file):
            if (file, exchange.id) in SKIPPED or scene_of(exchange) != scene_name:
                continue
            server.second = SHORT_SECOND if exchange.id in LONG_WATCHES else SECOND
            scene.before.get(exchange.id, steps())(server)
            meanwhile = partial(scene.during.get(exchange.id, steps()), server)
            found[exchange.id] = replay.differences(exchange, meanwhile)
        replay.close()
    return found


def cases() -> Iterator[object]:
    for file in SCENES:
        for exchange in exchanges(file):
            reason = SKIPPED.get((file, exchange.id))
            marks = [pytest.mark.skip(reason=reason)] if reason else []
            yield pytest.param(file, exchange.id, id=f"{file}/{exchange.id}", marks=marks)


@pytest.mark.parametrize(("file", "exchange_id"), list(cases()))
def test_the_fake_answers_as_recorded(file: str, exchange_id: str) -> None:
    excused = EXCUSED.get((file, exchange_id), ())
    differences = replayed(file, scene_of(recorded(file, exchange_id)))[exchange_id]
    unexcused = [each for each in differences if not each.startswith(excused or ("\0",))]
    assert unexcused == []
    stale = [each for each in excused if not any(found.startswith(each) for found in differences)]
    assert stale == [], "excused, but no longer different"
