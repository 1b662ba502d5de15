"""Values as YAML that people can read: apart from the terminal, since few ask for it.

Must not know what is written.
"""

from __future__ import annotations

from typing import Any

import yaml

from federation.model.printable import is_printable


def yaml_text(value: object) -> str:
    """A value as YAML, readable beyond ASCII; ends with a line end."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return text


class _Dumper(yaml.SafeDumper):
    """Writes texts that are not printable with escapes, and all others as they are."""

    def analyze_scalar(self, scalar: str) -> Any:
        # Every text is looked at before it is written, and these words are for it alone.
        self.allow_unicode = all(map(is_printable, scalar.split("\n")))
        return super().analyze_scalar(scalar)
