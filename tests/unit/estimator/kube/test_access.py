"""Kubeconfigs that cannot be used: one clear error, whatever is wrong with the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from estimator.kube.access import connect
from federation.model.errors import PreconditionFailed


@pytest.mark.parametrize(
    "text", ["", '{"apiVersion": "v1", "kind": "Con', "[]", "x", "kind: Config"]
)
def test_a_file_that_is_no_kubeconfig_or_not_yet_whole_is_refused(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(PreconditionFailed, match=str(path)):
        connect(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PreconditionFailed):
        connect(tmp_path / "kubeconfig")
