"""Stream after stream to the control plane, until the agent stops.

Must not know what a stream says.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import grpc
import grpc.aio

from estimator.agent.agent import Agent
from estimator.agent.stream import MAX_AFTER_SECONDS, Reconnecting, Speaker, Stream, wait_until
from federation.model.errors import FederationError, PermissionRefused, Unauthenticated
from federation.runtime.backoff import Backoff

logger = logging.getLogger(__name__)


async def keep_connected(
    open_channel: Callable[[], AbstractAsyncContextManager[grpc.aio.Channel]],
    agent: Agent,
    speaker: Speaker,
    stopping: asyncio.Event,
    backoff: Backoff,
) -> None:
    """Stream after stream until told to stop.

    Raises PermissionRefused when refused for good, Unauthenticated when it is the credential that
    is refused.
    """
    fields = {"fields": {"cluster": speaker.cluster}}
    while not stopping.is_set():
        stream = Stream(agent, speaker, stopping)
        try:
            async with open_channel() as channel:
                await stream.run(channel)
        except (PermissionRefused, Unauthenticated):
            raise
        except Reconnecting as request:
            backoff.reset()
            seconds = backoff.within(min(request.after_seconds, MAX_AFTER_SECONDS))
            logger.info("%s; dialling again in %.1f s", request, seconds, extra=fields)
            await wait_until(stopping, seconds)
        except FederationError as error:
            if stream.welcomed:
                backoff.reset()
            seconds = backoff.next_seconds()
            logger.log(
                speaker.trouble_level,
                "%s; dialling again in %.1f s",
                error.message,
                seconds,
                extra=fields,
            )
            await wait_until(stopping, seconds)
        except Exception:
            # What nobody foresaw ends the stream and not the agent.
            seconds = backoff.next_seconds()
            logger.exception("the stream failed; dialling again in %.1f s", seconds, extra=fields)
            await wait_until(stopping, seconds)
