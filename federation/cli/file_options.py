"""Options that verbs on files share.

Must not load what answers: whoever asks for help, or mistypes, would wait for that.
"""

from __future__ import annotations

from typing import Final

import click

# The words of ModelRule and of Merge.
MODEL_RULES: Final = ("documented", "boundary", "simulated")
MERGES: Final = ("quality", "minimum")

model_rule_option = click.option(
    "--model-rule", type=click.Choice(MODEL_RULES), help="How grades count."
)
merge_option = click.option("--merge", type=click.Choice(MERGES), help="How levels combine.")
cases_option = click.option(
    "--cases", metavar="FILE", help="A case a line, or - ; an answer a line comes back."
)
