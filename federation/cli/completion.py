"""The verb ``completion``: what makes a shell complete verbs and options.

Must not ask a control plane: a shell waits for it.
"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from federation.runtime.terminal import say_lines


@click.command(epilog="Example: fedctl completion fish > ~/.config/fish/completions/fedctl.fish")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the shell's completion script.

    In bash and zsh, put `eval "$(fedctl completion bash)"` into ~/.bashrc or ~/.zshrc, each with
    its own name.
    """
    root = click.get_current_context().find_root().command
    if kind := get_completion_class(shell):
        say_lines(kind(root, {}, "fedctl", "_FEDCTL_COMPLETE").source())
