"""Watches of the client: resumed where they broke, begun anew when too much was missed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc.aio import Metadata

from federation.client import BlockingClient, Target
from federation.client.watching import WatchMessage, watched
from federation.model.errors import (
    Conflict,
    FederationError,
    InvalidRequest,
    PermissionRefused,
    Unavailable,
)
from federation.rpc.status import status_of
from federation.v1.scheduling_pb2 import BindingEvent, WatchBindingsResponse
from lab.control_planes import RunningControlPlane, running_control_plane
from tests.api.calls import binding, scheduled


class Call:
    """A stream that answers as told, then ends, or fails with the error."""

    def __init__(self, answers: Sequence[Any]) -> None:
        self._answers = list(answers)
        self.is_cancelled = False

    async def read(self) -> Any:
        answer = self._answers.pop(0) if self._answers else grpc.aio.EOF
        if isinstance(answer, FederationError):
            status = status_of(answer)
            trailing = Metadata(*status.trailing_metadata)
            raise grpc.aio.AioRpcError(status.code, Metadata(), trailing, status.details)
        return answer

    def cancel(self) -> None:
        self.is_cancelled = True


class ControlPlane:
    """Streams one after the other; which versions were asked for."""

    def __init__(self, *streams: Sequence[Any]) -> None:
        self.calls = [Call(answers) for answers in streams]
        self.asked: list[str] = []

    def open(self, version: str) -> Call:
        self.asked.append(version)
        return self.calls[len(self.asked) - 1]


def told(version: str) -> WatchBindingsResponse:
    return WatchBindingsResponse(
        events=[BindingEvent(decision_id=version)], resource_version=version
    )


async def heard(plane: ControlPlane, count: int, version: str = "") -> list[str]:
    """Versions, or "relist"."""
    messages: list[WatchMessage[Any]] = []
    async with aclosing(watched(plane.open, version)) as watch:
        async for message in watch:
            messages.append(message)
            if len(messages) == count:
                break
    return ["relist" if each.relist else each.resource_version for each in messages]


RELIST = Conflict("too slow", reason="RELIST")


async def test_a_broken_stream_is_resumed_from_the_last_version() -> None:
    plane = ControlPlane([told("1"), told("2"), Unavailable()], [told("3")], [told("4")])
    assert await heard(plane, 5) == ["relist", "1", "2", "3", "4"]
    assert plane.asked == ["", "2", "3"]
    assert all(call.is_cancelled for call in plane.calls)


async def test_who_missed_too_much_forgets_and_lists_again() -> None:
    plane = ControlPlane([told("8"), RELIST], [told("")], [told("9")])
    assert await heard(plane, 5, "7") == ["8", "relist", "", "relist", "9"]
    assert plane.asked == ["7", "", ""]


async def test_a_version_that_was_told_and_is_refused_later_is_listing_again() -> None:
    refused = InvalidRequest.of("resourceVersion", "is not one that was given out")
    plane = ControlPlane([told("8"), Unavailable()], [refused], [told("9")])
    assert await heard(plane, 3, "7") == ["8", "relist", "9"]
    assert plane.asked == ["7", "8", ""]


async def test_a_version_of_the_callers_that_is_refused_is_told() -> None:
    plane = ControlPlane([InvalidRequest.of("resourceVersion", "is not one that was given out")])
    with pytest.raises(InvalidRequest):
        await heard(plane, 1, "7")


@pytest.mark.parametrize("error", [PermissionRefused(), Conflict("else")])
async def test_what_watching_again_cannot_help_is_raised(error: FederationError) -> None:
    plane = ControlPlane([told("1"), error])
    with pytest.raises(type(error)):
        await heard(plane, 9)
    assert plane.asked == [""]


async def test_a_control_plane_that_never_answered_is_not_waited_for() -> None:
    with pytest.raises(Unavailable):
        await heard(ControlPlane([Unavailable()]), 9)


@pytest.fixture
async def running(database_url: str, tmp_path: Path) -> AsyncIterator[RunningControlPlane]:
    async with running_control_plane(database_url, tmp_path) as found:
        yield found


async def test_the_blocking_client_watches_and_stops_when_told(
    running: RunningControlPlane,
) -> None:
    await scheduled(running, binding("cart"))
    token = running.plane.admin_token_file.read_text(encoding="ascii").strip()
    target = Target(endpoint=str(running.plane.endpoint), token=token, plaintext=True)

    def names() -> list[str]:
        found: list[str] = []
        with BlockingClient(target) as client:
            for message in client.iterate(lambda api: api.watch_bindings("shop")):
                found += [each.binding.metadata.name for each in message.events]
                if message.resource_version:
                    break
        return found

    assert (await asyncio.to_thread(names))[:1] == ["cart"]
