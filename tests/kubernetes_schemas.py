"""The package kubernetes-validate: Kubernetes' own schemas, and a check of objects by them.

`make install` puts it into a folder of its own, which programs must not import from: `import
kubernetes` would import it wherever it finds it, for more than a second of CPU in every program.
Nor is it imported here before something is checked: every worker finds all tests.
"""

from __future__ import annotations

import importlib
import sys
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(sys.prefix, "schemas")
SCHEMAS = FOLDER / "kubernetes_validate" / "kubernetes-json-schema"


@cache
def package() -> Any:
    """The package itself: ``validate`` and ``ValidationError`` are there."""
    sys.path.append(str(FOLDER))
    try:
        return importlib.import_module("kubernetes_validate")
    finally:
        sys.path.remove(str(FOLDER))


def validate(document: Any, version: str, *, strict: bool) -> None:
    package().validate(document, version, strict=strict)


def json_schemas() -> Any:
    """The package jsonschema, which is as long to import."""
    return importlib.import_module("jsonschema")
