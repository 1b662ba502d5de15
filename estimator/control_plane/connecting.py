"""Stream after stream to the control plane, until told to stop.

Must not know what is said in one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import grpc
import grpc.aio

from estimator.agent import Agent
from estimator.control_plane.reconnecting import MAX_AFTER_SECONDS, Reconnecting, wait_until
from estimator.control_plane.stream import Speaker, Stream
from federation.model.errors import FederationError, PermissionRefused, Unauthenticated
from federation.runtime.backoff import Backoff

logger = logging.getLogger(__name__)


async def keep_connected(
    open_channel: Callable[[], grpc.aio.Channel],
    agent: Agent,
    speaker: Speaker,
    stopping: asyncio.Event,
    backoff: Backoff,
) -> None:
    """Stream after stream until told to stop.

    Raises PermissionRefused when refused for good, Unauthenticated when it is the credential that
    is refused.
    """
    while not stopping.is_set():
        stream = Stream(agent, speaker, stopping)
        try:
            async with open_channel() as channel:
                await stream.run(channel)
        except (PermissionRefused, Unauthenticated):
            raise
        except Reconnecting as asked:
            backoff.reset()
            seconds = backoff.within(min(asked.after_seconds, MAX_AFTER_SECONDS))
            logger.info("%s; dialling again in %.1f s", asked, seconds)
            await wait_until(stopping, seconds)
        except FederationError as error:
            if stream.welcomed:
                backoff.reset()
            seconds = backoff.next_seconds()
            logger.warning("%s; dialling again in %.1f s", error.message, seconds)
            await wait_until(stopping, seconds)
        except Exception:
            # What nobody foresaw ends the stream and not the agent.
            seconds = backoff.next_seconds()
            logger.exception("the stream failed; dialling again in %.1f s", seconds)
            await wait_until(stopping, seconds)
