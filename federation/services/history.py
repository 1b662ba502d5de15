"""The history of decisions: what was decided, when, and why; and what a replay is made from.

Must not decide anything, nor unpack traces for a list.
"""

from __future__ import annotations

from federation.model.errors import NotFound, PreconditionFailed
from federation.services.listed_decisions import DecisionFilter, DecisionPage, DecisionPlace
from federation.services.packed_inputs import part_names
from federation.services.packed_traces import Recorded, inputs_of
from federation.services.ports import Store
from federation.services.threads import UNPACKING


class DecisionHistory:
    """Decisions as they were made."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list_decisions(
        self, wanted: DecisionFilter, after: DecisionPlace | None, limit: int
    ) -> DecisionPage:
        """The newest first, those that come after ``after``."""
        async with self._store.reading() as read:
            return await read.decisions.page(wanted, after, limit)

    async def recorded(self, decision_id: str) -> Recorded:
        """A decision with everything that it was made on.

        Raises NotFound, and PreconditionFailed where what it was made on is not kept.
        """
        async with self._store.reading() as read:
            packed = await read.decisions.get(decision_id)
        if packed is None:
            raise NotFound(f"There is no decision {decision_id!r}.")
        result = packed.packed
        inputs = await UNPACKING.run(inputs_of, result.trace)
        if inputs is None:
            raise PreconditionFailed(
                f"Decision {decision_id} cannot be made again: it says what a binding lost to "
                "another one, or what it was made on was never kept.",
                reason="INPUTS_NOT_KEPT",
            )
        async with self._store.reading() as read:
            bodies = dict(await read.decisions.shared([inputs.fleet, inputs.profile]))
            fleet = bodies.get(inputs.fleet)
            parts = part_names(fleet) if fleet is not None else ()
            bodies |= await read.decisions.shared(parts)
        if not bodies.keys() >= {inputs.fleet, inputs.profile, *parts}:
            raise PreconditionFailed(
                f"What decision {decision_id} was made on was forgotten: it is kept as long as "
                "--keep-decisions-days says.",
                reason="INPUTS_FORGOTTEN",
            )
        return Recorded(**result._asdict(), bodies=bodies)
