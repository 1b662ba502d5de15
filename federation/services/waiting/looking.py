"""What there is for wants that sleep, by one that asks for each.

Plain functions, for a thread. Must not wake anybody.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from federation.model.errors import FederationError
from federation.model.placement import Binding, is_grouped
from federation.scheduler.plugins.profile import Profiles
from federation.scheduler.state import ALONE, Surroundings
from federation.scheduler.waiting.queue import Seen
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.seeing import seen_by, surroundings_of
from federation.services.scheduling.together import seen_together
from federation.services.scheduling.working_copy import WorkingCopy


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One that asks for a want, as it was decided last; with it ``gang``, all that are placed
    together, where it is of one.
    """

    binding: Binding
    surroundings: Surroundings = ALONE
    gang: Sequence[Attempt] = ()

    @classmethod
    def of(cls, attempt: Attempt) -> Sample:
        return cls(
            binding=attempt.candidate,
            surroundings=surroundings_of(attempt, attempt.peers),
            gang=(attempt, *attempt.companions) if attempt.is_joining else (),
        )

    @property
    def is_grouped(self) -> bool:
        """Whether others that are placed may change where it may go."""
        together = [each.candidate for each in self.gang] or [self.binding]
        return any(map(is_grouped, together))


def look_for(
    profiles: Profiles, samples: Mapping[Hashable, Sample], now: float, working: WorkingCopy
) -> tuple[dict[Hashable, Seen], float]:
    """What there is for each want, and the CPU seconds that it took to look."""
    started = time.thread_time()
    seen = {}
    for want, sample in samples.items():
        # What is wrong with it is told where it is tried.
        with suppress(FederationError):
            if sample.gang:
                seen[want] = seen_together(working.anew(), sample.gang, now)
                continue
            profile = profiles.profile_of(sample.binding)
            seen[want] = seen_by(working, sample.binding, profile, sample.surroundings, now)
    return seen, time.thread_time() - started
