"""What reports count of promises, from messages and back.

Must not know what was promised: the ledger does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from federation.codec import ranges
from federation.codec.violations import Violations
from federation.model.node_plans import LostPlan
from federation.model.quotations import quoted
from federation.model.shapes import Echo, Shape, request_shape
from federation.v1 import agents_pb2

# With them a report stays within the 4 MiB that a message may have.
MAX_ECHO_BYTES: Final = 3 * 1024 * 1024
# More would only repeat what is wrong.
MAX_FOUND: Final = 16
# Each is written to the store; the others come with later reports.
MAX_LOST_PLANS: Final = 100
MAX_REASON_CHARACTERS: Final = 500
# Numbers, tags and lengths of an echo, and a shape of its own: all but its texts.
_ECHO_BYTES: Final = 48
_SHAPE_BYTES: Final = 24


def read_echoes(message: agents_pb2.Report, most_bytes: int, found: Violations) -> tuple[Echo, ...]:
    """The echoes of a report; what is returned means nothing when anything was found."""
    if echo_bytes(message) > most_bytes:
        found.add("echoes", f"must have at most {most_bytes} bytes with their shapes")
        return ()
    before = len(found)
    shapes = [request_shape(shape.request) for shape in message.echo_shapes]
    echoes = []
    for position, echo in enumerate(message.echoes):
        echoes.append(_echo(echo, shapes, f"echoes[{position}]", found))
        if len(found) >= before + MAX_FOUND:
            return ()
    _check_distinct(echoes, found)
    return tuple(echoes)


def read_lost_plans(message: agents_pb2.Report) -> tuple[LostPlan, ...]:
    """Those of a report. Raises InvalidRequest with every broken rule."""
    found = Violations()
    if len(message.lost_plans) > MAX_LOST_PLANS:
        found.add("lostPlans", f"must be at most {MAX_LOST_PLANS}")
        found.check()
    lost = []
    for position, each in enumerate(message.lost_plans):
        path = f"lostPlans[{position}]"
        if "\0" in each.reason:
            found.add(f"{path}.reason", "must not contain NUL")
        lost.append(
            LostPlan(
                binding=each.binding,
                component=each.component,
                decision=each.decision,
                reason=quoted(each.reason[:MAX_REASON_CHARACTERS]),
            )
        )
    found.check()
    return tuple(lost)


def put_lost_plans(lost: Iterable[LostPlan], message: agents_pb2.Report) -> None:
    """Write as many into a report as it may have."""
    for each in islice(lost, MAX_LOST_PLANS):
        message.lost_plans.add(
            binding=each.binding,
            component=each.component,
            decision=each.decision,
            reason=each.reason[:MAX_REASON_CHARACTERS],
        )


def echo_bytes(message: agents_pb2.Report) -> int:
    """The part of a report's size that its echoes take."""
    if not message.echoes and not message.echo_shapes:
        return 0
    alone = agents_pb2.Report(echo_shapes=message.echo_shapes, echoes=message.echoes)
    return alone.ByteSize()


def fitting(echoes: Sequence[Echo]) -> tuple[Echo, ...]:
    """As many echoes as a report holds, in order of their keys.

    The promises of the others are deducted as if nothing of them was there: too much is taken for
    used, never too little.
    """
    ordered = tuple(sorted(echoes, key=lambda echo: echo.key))
    left = MAX_ECHO_BYTES
    for position, echo in enumerate(ordered):
        left -= _ECHO_BYTES + len(echo.binding.encode()) + len(echo.component.encode())
        left -= sum(_SHAPE_BYTES + len(name.encode()) for name, _ in echo.shape)
        if left < 0:
            return ordered[:position]
    return ordered


def put_echoes(echoes: Iterable[Echo], message: agents_pb2.Report) -> None:
    """Write echoes into a report, every shape once."""
    places: dict[Shape, int] = {}
    for echo in echoes:
        place = places.get(echo.shape)
        if place is None:
            place = places[echo.shape] = len(places)
            message.echo_shapes.add(request=dict(echo.shape))
        message.echoes.add(
            binding=echo.binding,
            component=echo.component,
            shape=place,
            bound=echo.bound,
            unbound=echo.unbound,
            finished=echo.finished,
        )


def _echo(message: agents_pb2.Echo, shapes: Sequence[Shape], path: str, found: Violations) -> Echo:
    ranges.required(message.binding, f"{path}.binding", found)
    shape: Shape = ()
    if 0 <= message.shape < len(shapes):
        shape = shapes[message.shape]
    else:
        rule = f"must be a position among {len(shapes)} shapes, not {message.shape}"
        found.add(f"{path}.shape", rule)
    return Echo(
        binding=message.binding,
        component=message.component,
        shape=shape,
        bound=ranges.replicas(message.bound, f"{path}.bound", found),
        unbound=ranges.replicas(message.unbound, f"{path}.unbound", found),
        finished=ranges.replicas(message.finished, f"{path}.finished", found),
    )


def _check_distinct(echoes: Sequence[Echo], found: Violations) -> None:
    if len({echo.key for echo in echoes}) < len(echoes):
        found.add("echoes", "must not hold a shape of a binding's component twice")
