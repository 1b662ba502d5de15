"""A contract of the import linter: these rooms do without those modules.

Must not complain about a room that does not exist yet: the contract waits for it.
"""

from __future__ import annotations

from typing import Any

from grimp import ImportGraph
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.domain.contract import ContractCheck


class RoomsWithoutContract(ForbiddenContract):
    """The linter's own ``forbidden`` contract, of what exists on both sides."""

    type_name = "rooms_without"

    source_modules: Any
    forbidden_modules: Any

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        def existing(expressions: Any) -> set[Any]:
            return {found for found in expressions if found.expression in graph.modules}

        self.source_modules = existing(self.source_modules)
        self.forbidden_modules = existing(self.forbidden_modules)
        return super().check(graph, verbose)
