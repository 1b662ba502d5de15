"""The package kubernetes-validate: Kubernetes' own schemas, and a check of objects by them.

`make install` puts it into a folder of its own, which programs must not import from: `import
kubernetes` would import it wherever it finds it, for more than a second of CPU in every program.
"""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

FOLDER = str(Path(sys.prefix, "schemas"))

sys.path.append(FOLDER)
try:
    import kubernetes_validate
finally:
    sys.path.remove(FOLDER)

SCHEMAS = files(kubernetes_validate) / "kubernetes-json-schema"
ValidationError = kubernetes_validate.ValidationError
validate = kubernetes_validate.validate
