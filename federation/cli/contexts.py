"""Control planes that a person goes back to, by name: where each is, whom to trust, which token.

Must not connect to any.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from federation.model.errors import InvalidRequest, NotFound, Violation
from federation.runtime.files import make_private_directory, write_whole

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
CURRENT, CONTEXTS = "current-context", "contexts"
# By the key of the file: the option of fedctl that it stands for, and what it is.
KEYS: Final[Mapping[str, tuple[str, type]]] = {
    "endpoint": ("endpoint", str),
    "ca": ("ca", Path),
    "token-file": ("token_file", Path),
    "insecure": ("insecure", bool),
}


@dataclass(kw_only=True)
class Contexts:
    """The file: options of fedctl by the name of their context, and which one counts."""

    path: Path
    current: str = ""
    options: dict[str, dict[str, Any]] = field(default_factory=dict)

    def of(self, name: str) -> Mapping[str, Any]:
        """Options of fedctl with their values; raises NotFound."""
        if name not in self.options:
            known = ", ".join(sorted(self.options)) or "none; `fedctl login` makes one"
            raise NotFound(f"there is no context {name!r} in {self.path}; there are: {known}")
        return self.options[name]

    def remove(self, name: str) -> None:
        """Raises NotFound."""
        self.of(name)
        del self.options[name]
        self.current = "" if self.current == name else self.current

    def write(self) -> None:
        from federation.runtime.yaml_texts import yaml_text  # noqa: PLC0415 - yaml, for few

        contexts = {name: written_options(options) for name, options in self.options.items()}
        document = {CURRENT: self.current, CONTEXTS: contexts}
        make_private_directory(self.path.parent)
        write_whole(self.path, yaml_text(document).encode(), mode=0o600)


def written_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """A context's options under the keys of the file."""
    return {
        key: value if kind is bool else str(value)
        for key, (option, kind) in KEYS.items()
        if (value := options.get(option)) is not None
    }


def read_contexts(path: Path) -> Contexts:
    """None where there is no such file. Raises InvalidRequest with everything that is wrong."""
    if not path.exists():
        return Contexts(path=path)
    from federation.codec.document_files import document_of  # noqa: PLC0415 - yaml, for few

    document = document_of(path)
    violations = [
        Violation(field=f"{path}: {key}", rule="unknown field")
        for key in document.keys() - {CURRENT, CONTEXTS}
    ]
    contexts = document.get(CONTEXTS) or {}
    if not isinstance(contexts, dict):
        raise InvalidRequest.of(f"{path}: {CONTEXTS}", "must hold contexts by their names")
    read = Contexts(path=path, current=str(document.get(CURRENT) or ""))
    for name, values in contexts.items():
        where = f"{path}: {CONTEXTS}.{name}"
        read.options[name] = _options(values, where, path.parent, violations)
    if read.current and read.current not in read.options:
        violations.append(
            Violation(field=f"{path}: {CURRENT}", rule="names no context that is here")
        )
    if violations:
        raise InvalidRequest(violations)
    return read


def checked_name(name: str) -> str:
    """Raises InvalidRequest."""
    if not NAME.fullmatch(name):
        rule = "must be at most 63 letters, digits, dots, dashes and underscores"
        raise InvalidRequest.of("NAME", rule)
    return name


def _options(
    values: object, where: str, folder: Path, violations: list[Violation]
) -> dict[str, Any]:
    """A context's options; relative paths are meant from the file's folder."""
    if not isinstance(values, dict):
        violations.append(Violation(field=where, rule="must hold fields"))
        return {}
    options: dict[str, Any] = {}
    for key, value in values.items():
        option, kind = KEYS.get(key, ("", str))
        if not option:
            violations.append(Violation(field=f"{where}.{key}", rule="unknown field"))
        elif not isinstance(value, bool if kind is bool else str):
            rule = "must be true or false" if kind is bool else "must be a text"
            violations.append(Violation(field=f"{where}.{key}", rule=rule))
        else:
            options[option] = folder / str(value) if kind is Path else value
    return options
