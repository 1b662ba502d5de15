"""What a servicer may know of the call that it serves: its caller, its deadline.

Must not decide who may call what.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, TypeAlias

import grpc

from federation.model.errors import DeadlineMissed
from federation.services.values import Principal

# gRPC says of a deadline that has passed that up to a millisecond of it is left.
ROUNDED_UP_SECONDS = 0.001

Context = grpc.aio.ServicerContext[Any, Any]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"  # Generic in the stubs only.

_caller: ContextVar[Principal] = ContextVar("caller")


def caller() -> Principal:
    """Who makes the call that is being served; only inside a method that needs a credential."""
    return _caller.get()


def caller_if_known() -> Principal | None:
    """The same, also inside a method that anybody may call."""
    return _caller.get(None)


def call_as(principal: Principal) -> None:
    """From now on ``caller`` answers this one, in the context that runs."""
    _caller.set(principal)


def seconds_left(context: Context) -> float | None:
    """Until the deadline of a call, None when its caller gave none."""
    left: float | None = context.time_remaining()
    return left


def refuse_late(left: float | None) -> None:
    """Raises DeadlineMissed once no time is left: nobody would hear of what is done now."""
    if left is not None and left <= ROUNDED_UP_SECONDS:
        raise DeadlineMissed
