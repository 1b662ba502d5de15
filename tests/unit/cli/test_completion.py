"""What shells complete, in the shells that are here."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from federation.cli.__main__ import fedctl
from lab.patience import PATIENCE_SECONDS

ASK = {
    "bash": """
eval "$(fedctl completion bash)"
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_fedctl_completion fedctl
printf '%s\\n' "${{COMPREPLY[@]}}"
""",
    "zsh": """
autoload -Uz compinit && compinit -u -D
compadd() {{ print -l -- "${{(@P)5}}"; }}
_describe() {{ print -l -- "${{(@P)3}}"; }}
eval "$(fedctl completion zsh)"
words=({words}); CURRENT=${{#words}}
_fedctl_completion
""",
    "fish": """
fedctl completion fish | source
complete -C '{words}'
""",
}


@pytest.fixture
def shell_home(tmp_path: Path) -> Path:
    """A folder with ``fedctl`` and a context."""
    program = tmp_path / "bin" / "fedctl"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m federation.cli "$@"\n')
    program.chmod(0o755)
    (tmp_path / "config.yaml").write_text("contexts: {prod: {endpoint: 'a:1'}}\n")
    return tmp_path


@pytest.mark.parametrize("shell", ASK)
@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("fedctl unc", "uncordon"),
        ("fedctl get clu", "clusters"),
        ("fedctl get clusters --sort-by cpu", "cpu-free"),
        ("fedctl get clusters -o js", "json"),
        ("fedctl config use-context p", "prod"),
    ],
)
def test_a_real_shell(shell: str, words: str, completed: str, shell_home: Path) -> None:
    if (program := shutil.which(shell)) is None:
        pytest.skip(f"there is no {shell} here")
    variables = {
        **os.environ,
        "PATH": f"{shell_home / 'bin'}:{os.environ['PATH']}",
        "FEDCTL_CONFIG": str(shell_home / "config.yaml"),
        "HOME": str(shell_home),
        "PYTHONPATH": str(Path(__file__).parents[3]),
    }
    answer = subprocess.run(
        [program, "-c", ASK[shell].format(words=words)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
        env=variables,
    )
    assert completed in re.split(r"[\s:,]+", answer.stdout), answer


def test_a_context_file_that_is_no_good_completes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.yaml").write_text("contexts: 7\n")
    monkeypatch.setenv("FEDCTL_CONFIG", str(tmp_path / "config.yaml"))
    variables = {
        "_FEDCTL_COMPLETE": "bash_complete",
        "COMP_WORDS": "fedctl config use-context p",
        "COMP_CWORD": "3",
    }
    result = CliRunner().invoke(fedctl, [], env=variables, prog_name="fedctl")
    assert result.stdout.strip() == ""
