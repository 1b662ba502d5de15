"""Settings of the control plane.

Must not read the process environment, the command line or files: all three are passed in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from federation.model.errors import InvalidRequest
from federation.runtime.database_url import MASK, masked_url
from federation.runtime.options import LoadedOptions
from federation.runtime.setting_options import OPTIONS
from federation.runtime.setting_values import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSettings:
    """The settings, and where each came from."""

    settings: Settings
    options: LoadedOptions

    @property
    def warnings(self) -> Sequence[str]:
        return self.options.warnings

    def name_of(self, setting: str) -> str:
        """The setting as its author wrote it, the flag where nobody did: for error messages."""
        return self.options.name_of(setting)


def load_settings(
    *,
    flags: Mapping[str, str | None],
    environment: Mapping[str, str],
    document: Mapping[str, object],
    source: str,
    data_dir: Path,
) -> LoadedSettings:
    """As ``OptionTable.load``; ``data_dir`` is the default of that setting.

    Raises InvalidRequest with everything that is wrong.
    """
    loaded = OPTIONS.load(flags=flags, environment=environment, document=document, source=source)
    if loaded.violations:
        raise InvalidRequest(loaded.violations, reason="BAD_SETTINGS")
    values = {**loaded.values, "data_dir": loaded.values["data_dir"] or data_dir}
    warnings = [*loaded.warnings, *_shown_to_all(loaded)]
    options = replace(loaded, values=values, warnings=warnings)
    return LoadedSettings(settings=Settings(**values), options=options)


def _shown_to_all(loaded: LoadedOptions) -> Sequence[str]:
    """What stands on the command line is read by who may list processes."""
    url = loaded.values["database_url"]
    if loaded.origins["database_url"].layer != "flag" or MASK not in masked_url(url):
        return []
    told = "--database-url: whoever may list this machine's processes reads the password"
    return [f"{told}: give it in FEDERATION_DATABASE_URL, or in the file of --config"]
