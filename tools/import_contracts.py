"""Contracts of the import linter, of rooms that exist: a name that stands for nothing is refused.

Must not know any room: ``.importlinter`` names them.
"""

from __future__ import annotations

from collections.abc import Collection
from importlib.util import find_spec
from typing import Any

from grimp import ImportGraph
from importlinter.application import output
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.domain import fields
from importlinter.domain.contract import Contract, ContractCheck, InvalidContractOptions

OURS = ("federation", "estimator")


class RoomsWithoutContract(ForbiddenContract):
    """The linter's own ``forbidden`` contract. Every module that it names must exist."""

    type_name = "rooms_without"

    source_modules: Any
    forbidden_modules: Any

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        for field in ("source_modules", "forbidden_modules"):
            refuse_unknown(graph, field, [package.expression for package in getattr(self, field)])
        # What nobody imports is not in the graph, and need not be looked for.
        self.forbidden_modules = {
            package for package in self.forbidden_modules if package.expression in graph.modules
        }
        return super().check(graph, verbose)


class TakesContract(Contract):
    """A package takes nothing of other ones, but for some of its ``rooms``, which take ``allowed``.

    Rooms that are ``held_elsewhere`` have a contract of their own. Looks at direct imports:
    whatever is in between is held to the contract by itself.
    """

    type_name = "takes"

    package = fields.StringField()
    of = fields.SetField(subfield=fields.StringField())
    rooms = fields.SetField(subfield=fields.StringField())
    allowed = fields.SetField(subfield=fields.StringField())
    held_elsewhere: Any = fields.SetField(subfield=fields.StringField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: ARG002 - the linter gives it
        package, of = str(self.package), _names(self.of)
        rooms, allowed = _names(self.rooms), _names(self.allowed)
        held_elsewhere = _names(self.held_elsewhere or ())
        refuse_unknown(graph, "rooms", [package, *of, *rooms, *allowed, *held_elsewhere])
        wrong = sorted(
            (importer, imported)
            for importer in graph.modules
            if _is_within(importer, [package]) and not _is_within(importer, held_elsewhere)
            for imported in graph.find_modules_directly_imported_by(importer)
            if _is_within(imported, of)
            and not (_is_within(importer, rooms) and _is_within(imported, allowed))
        )
        return ContractCheck(kept=not wrong, metadata={"wrong": wrong})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for importer, imported in check.metadata["wrong"]:
            output.print_error(f"{importer} must not import {imported}", bold=False)


def refuse_unknown(graph: ImportGraph, field: str, names: Collection[str]) -> None:
    """Raises InvalidContractOptions where a name stands for no module.

    A module of another distribution that nobody imports is in no graph; it is looked up instead.
    """
    unknown = [name for name in names if name not in graph.modules and not _is_installed(name)]
    if unknown:
        raise InvalidContractOptions({field: "There is no module " + ", ".join(sorted(unknown))})


def _is_installed(name: str) -> bool:
    package = name.partition(".")[0]
    return package not in OURS and find_spec(package) is not None


def _names(field: Any) -> list[str]:
    return sorted(field)


def _is_within(module: str, packages: Collection[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)
