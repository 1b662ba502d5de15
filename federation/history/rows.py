"""Row structs: the declared form of each value that the database stores inside a document or body.

A row struct names its keys itself. A field that is renamed in the model keeps its key in the
database: the attribute of the struct is renamed with it, and ``name=`` keeps the key. Unknown keys
are refused, because a value that loses a field in silence promises something else.

Must not know any particular value: the modules ``*_rows`` declare them. Reasons stand in many, and
are stored as text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import msgspec

from federation.history.bodies import Body, check_version, refusal
from federation.model.reasons import Reason, stored_reason
from federation.runtime.typed_values import converted, converted_by_attributes

Value = TypeVar("Value")


def always(default: Value) -> Value:
    """Declare a field that is written even where it has its default: SQL reads its key."""
    field: Value = msgspec.field(default_factory=lambda: default)
    return field


class DocumentPart(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A value inside a document. A field is not written while it has its default."""


class Document(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole document. Release 0.1.0 wrote no ``v``, which means version 1."""

    v: int = always(1)


def reason_of(kind: Any, plain: Any) -> Any:
    """Return a stored reason. Raises TypeError, from which a decoder makes a ValidationError."""
    if kind is not Reason or not isinstance(plain, str):
        raise TypeError(f"{type(plain).__name__} where {kind} was expected")
    return stored_reason(plain)


def plain_reason(part: object) -> str:
    """Return a reason as it is stored. Raises TypeError for any other value."""
    if not isinstance(part, Reason):
        raise TypeError(f"a document holds a {type(part).__name__}")
    return str(part)


Row = TypeVar("Row", bound=msgspec.Struct)
DocumentRow = TypeVar("DocumentRow", bound=Document)


class Rows(Generic[Value, Row]):
    """Converts values of a model type to their row struct, and back."""

    def __init__(self, model: type[Value], row: type[Row], kind: str) -> None:
        """Declare which row struct a type has; ``kind`` says in the plural what errors name."""
        self.row = row
        self.kind = kind
        self.model = model
        self._rows: Any = list[row]  # type: ignore[valid-type]  # a type for msgspec, not for mypy
        self._values: Any = tuple[model, ...]  # type: ignore[valid-type]  # the same

    def pack(self, value: Value) -> Row:
        """Return the row struct of a value."""
        return converted_by_attributes(value, self.row)

    def unpack(self, row: Row) -> Value:
        """Return the value of a row struct."""
        return converted_by_attributes(row, self.model)

    def read(self, stored: object, subject: str = "") -> Value:
        """Return the value of builtins that JSON was read into; ``subject`` names its owner.

        Raises UnknownKey.
        """
        try:
            row = converted(stored, self.row, reason_of)
        except msgspec.ValidationError as error:
            raise refusal(error, subject or self.kind) from error
        return self.unpack(row)

    def read_all(self, stored: object) -> tuple[Value, ...]:
        """Return the values of a JSON array that was read into builtins. Raises UnknownKey."""
        try:
            rows = converted(stored, self._rows, reason_of)
        except msgspec.ValidationError as error:
            raise refusal(error, self.kind) from error
        values: tuple[Value, ...] = converted_by_attributes(rows, self._values)
        return values

    def json(self, value: Value) -> str:
        """Return the value as JSON, for arrays of documents, which travel as texts."""
        return msgspec.json.encode(self.pack(value), enc_hook=plain_reason).decode()

    def json_of_all(self, values: Iterable[Value]) -> str:
        """Return the values as one JSON array."""
        rows = [self.pack(value) for value in values]
        return msgspec.json.encode(rows, enc_hook=plain_reason).decode()

    def builtins(self, value: Value) -> Any:
        """Return the value as builtins, for a JSONB column."""
        return msgspec.to_builtins(self.pack(value), str_keys=True, enc_hook=plain_reason)


class Documents(Rows[Value, DocumentRow]):
    """Converts values to documents with a version, and back."""

    def pack(self, value: Value) -> DocumentRow:
        """Return the row struct of a value, in this release's version."""
        row = super().pack(value)
        return row if row.v == row.newest else msgspec.structs.replace(row, v=row.newest)

    def read(self, stored: object, subject: str = "") -> Value:
        """Return the value of builtins that JSON was read into. Raises NewerBody."""
        if isinstance(stored, dict):
            # A newer version may have other keys, and other types behind the same keys.
            check_version(stored.get("v", 1), self.row.newest, subject or self.kind)
        return super().read(stored, subject)
