"""All attacks. A module of attacks is added here, with its ``ATTACKS``.

Must not contain an attack.
"""

from __future__ import annotations

from collections.abc import Sequence

from lab.attack import agents, big_questions, credentials, web
from lab.attack.attack import Attack

ATTACKS: Sequence[Attack] = (
    *credentials.ATTACKS,
    *web.ATTACKS,
    *agents.ATTACKS,
    *big_questions.ATTACKS,
)
