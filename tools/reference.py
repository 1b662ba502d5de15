"""The reference in docs/reference, out of protos, commands and metrics.

Must not say anything that they do not. ``--check``: only whether it is as it would be written.
"""

from __future__ import annotations

import inspect
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from unittest.mock import MagicMock

import click
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    ServiceDescriptorProto,
)

from estimator.__main__ import cli as estimator
from federation.__main__ import main as federation
from federation.cli.__main__ import fedctl
from federation.codec.rights import DECLARED, PACKAGE, Audience, Permission, ScopeRule
from federation.model.access import Role
from federation.telemetry.families import families_of
from federation.telemetry.measured import Shared
from tools.protos import API, ROOT, image

FOLDER = ROOT / "docs" / "reference"
MADE = "Made by `make reference`: changes belong into the sources."
# Where protobuf keeps comments: field numbers of descriptor.proto.
MESSAGES, ENUMS, SERVICES, FIELDS, NESTED, NESTED_ENUMS, VALUES, METHODS = 4, 5, 6, 2, 3, 4, 2, 2
SYNTAX = 12
COMMANDS: Mapping[str, click.Command] = {
    "fedctl": fedctl,
    "federation": federation,
    "estimator": estimator,
}
AUDIENCES: Mapping[Audience, str] = {
    Audience.ANYBODY: "no credential",
    Audience.AGENTS: "agents only",
    Audience.PEERS: "control planes only",
}
SCOPES: Mapping[ScopeRule, str] = {
    ScopeRule.NOTHING: "-",
    ScopeRule.BINDING: "namespace",
    ScopeRule.STATED_BINDING: "namespace",
    ScopeRule.CLUSTER: "cluster",
    ScopeRule.NEW_CLUSTER: "cluster",
    ScopeRule.OBJECT_OF_CLUSTER: "cluster",
    ScopeRule.FLEET: "the fleet",
    ScopeRule.ANSWER: "what is answered",
}
ENDINGS = {"counter": "_total", "info": "_info"}
Place = tuple[int, ...]


class Nothing(MagicMock):
    """A control plane in which nothing has happened, of whatever parts there are."""

    def __getattr__(self, name: str) -> object:
        # Of a distribution: that beyond its last bound.
        return [0] if name == "counts" else super().__getattr__(name)


def pages() -> Mapping[str, str]:
    """Every page by its file's name."""
    commands = {f"{name}.md": commands_page(name, command) for name, command in COMMANDS.items()}
    return {
        **commands,
        "api.md": api_page(),
        "metrics.md": metrics_page(),
        "rights.md": rights_page(),
        "README.md": index(),
    }


def index() -> str:
    return f"""# Reference

{MADE}

- [api.md](api.md): services and messages of the gRPC API
- [fedctl.md](fedctl.md), [federation.md](federation.md), [estimator.md](estimator.md): commands
- [rights.md](rights.md): roles, scope, audit and size of a request, for each rpc
- [metrics.md](metrics.md): what a control plane tells Prometheus
"""


def cell(text: str) -> str:
    """Return the text as one cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def commands_page(name: str, command: click.Command) -> str:
    sections = "\n".join(sections_of(command, click.Context(command, info_name=name)))
    return f"# {name}\n\n{MADE}\n\n{sections}"


def sections_of(command: click.Command, context: click.Context) -> Iterator[str]:
    """The command, and those below it."""
    yield f"## {context.command_path}\n"
    yield from prose(command.help or "")
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"Usage: `{context.command_path} {usage}`\n"
    yield from prose(command.epilog or "")
    options = [param for param in command.params if isinstance(param, click.Option)]
    if shown := [option for option in options if not option.hidden]:
        yield "| option | default | what it does |\n|---|---|---|"
        yield from (option_row(option, context) for option in shown)
        yield ""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from sections_of(below, click.Context(below, context, info_name=name))


def prose(text: str) -> Iterator[str]:
    """Paragraphs; what click must not fill is text as it stands."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        head, preformatted, lines = paragraph.partition("\b\n")
        if head.strip():
            yield cell(head) + "\n"
        if preformatted:
            yield f"```text\n{lines.rstrip()}\n```\n"


def option_row(option: click.Option, context: click.Context) -> str:
    written, text = option.get_help_record(context) or ("", "")
    extra = option.get_help_extra(context)
    text = re.sub(r"\s*\[(default: [^]]*|required)\]", "", text)
    default = str(extra.get("default", "required" if option.required else ""))
    default = default.replace(str(Path.home()), "~")
    return f"| `{cell(written)}` | {cell(default)} | {cell(text)} |"


def metrics_page() -> str:
    """Out of the families that a control plane with nothing in it would tell."""
    rows = sorted(
        (
            family.name + ENDINGS.get(family.type, ""),
            family.type,
            ", ".join(f"`{label}`" for label in getattr(family, "_labelnames", ())),
            family.documentation,
        )
        for family in families_of(
            Nothing(), Shared(waiting={}, failover=Nothing(), failing_duties=(), days_left=0), {}
        )
        # Of Prometheus' own library, and there on Linux alone.
        if not family.name.startswith("process_")
    )
    table = "\n".join(
        f"| `{name}` | {kind} | {labels} | {cell(text)} |" for name, kind, labels, text in rows
    )
    return f"""# Metrics

{MADE} [metrics](../metrics.md) says more of each, and what its alerts mean.

| metric | type | labels | what it says |
|---|---|---|---|
{table}
"""


def rights_page() -> str:
    rows = "\n".join(
        f"| `{path.removeprefix(PACKAGE)}` | {row.verb} {row.resource} | {callers_of(row)} "
        f"| {SCOPES[row.scope]} | {audited_of(row)} | {row.max_request_bytes // 1024} |"
        for path, row in sorted(DECLARED.items())
    )
    columns = (*Role, "must be in scope", "audited", "KiB of a request")
    return f"""# Rights

{MADE} Each rpc declares them in `proto/federation/v1`, as its option `rights`.
[Access](../access.md) explains roles, scopes and the audit.

| rpc | what it does | {" | ".join(columns)} |
|---|---|{"---|" * len(columns)}
{rows}
"""


def callers_of(row: Permission) -> str:
    """Return a cell for each role."""
    if row.audience is not Audience.TOKENS:
        return AUDIENCES[row.audience] + " |" * (len(Role) - 1)
    return " | ".join("yes" if role in row.roles else "-" for role in Role)


def audited_of(row: Permission) -> str:
    return "each commit" if row.decides else "yes" if row.changes else "-"


def api_page() -> str:
    files = descriptors()
    conventions = [paragraph for file in files for paragraph in conventions_of(file)]
    services = [
        section
        for file in files
        for number, service in enumerate(file.service)
        for section in service_sections(file, service, (SERVICES, number))
    ]
    messages = [section for file in files for section in types_of(file)]
    return "\n".join(
        [
            f"# API\n\n{MADE} Package `federation.v1`; sources in `proto/federation/v1`.\n",
            "# Conventions\n",
            *conventions,
            "# Services\n",
            *services,
            "# Messages\n",
            *messages,
        ]
    )


def descriptors() -> list[FileDescriptorProto]:
    """Return the descriptors of the API's files, comments included."""
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "set.binpb"
        image(written)
        files = FileDescriptorSet.FromString(written.read_bytes()).file
    return [file for file in files if file.name.startswith(API)]


def conventions_of(file: FileDescriptorProto) -> Iterator[str]:
    """Yield the paragraphs of a file's header after its title, which concern all services."""
    for location in file.source_code_info.location:
        if tuple(location.path) == (SYNTAX,):
            _, *paragraphs = location.leading_comments.strip().split("\n\n")
            yield from (_paragraph(cell(text)) for text in paragraphs)


def comment(file: FileDescriptorProto, place: Place) -> str:
    for location in file.source_code_info.location:
        if tuple(location.path) == place:
            return cell(location.leading_comments or location.trailing_comments)
    return ""


def service_sections(
    file: FileDescriptorProto, service: ServiceDescriptorProto, place: Place
) -> Iterator[str]:
    yield f"## {service.name}\n"
    yield from filter(None, [_paragraph(comment(file, place))])
    yield "| rpc | request | answer | what it does |\n|---|---|---|---|"
    for number, method in enumerate(service.method):
        request = _linked(method.input_type) + (" (stream)" if method.client_streaming else "")
        answer = _linked(method.output_type) + (" (stream)" if method.server_streaming else "")
        said = comment(file, (*place, METHODS, number))
        yield f"| `{method.name}` | {request} | {answer} | {said} |"
    yield ""


def types_of(file: FileDescriptorProto) -> Iterator[str]:
    for number, message in enumerate(file.message_type):
        yield from message_sections(file, message, message.name, (MESSAGES, number))
    for number, enum in enumerate(file.enum_type):
        yield from enum_section(file, enum, enum.name, (ENUMS, number))


def message_sections(
    file: FileDescriptorProto, message: DescriptorProto, name: str, place: Place
) -> Iterator[str]:
    if message.options.map_entry:
        return
    yield f"## {name}\n"
    yield from filter(None, [_paragraph(comment(file, place))])
    if message.field:
        entries = {f"{name}.{nested.name}": nested for nested in message.nested_type}
        yield "| field | type | number | what it is |\n|---|---|---|---|"
        for number, field in enumerate(message.field):
            kind, said = kind_of(field, entries), comment(file, (*place, FIELDS, number))
            yield f"| `{field.name}` | {kind} | {field.number} | {said} |"
        yield ""
    for number, nested in enumerate(message.nested_type):
        below = (*place, NESTED, number)
        yield from message_sections(file, nested, f"{name}.{nested.name}", below)
    for number, enum in enumerate(message.enum_type):
        below = (*place, NESTED_ENUMS, number)
        yield from enum_section(file, enum, f"{name}.{enum.name}", below)


def kind_of(field: FieldDescriptorProto, entries: Mapping[str, DescriptorProto]) -> str:
    entry = entries.get(_short(field.type_name))
    if entry is not None and entry.options.map_entry:
        key, value = entry.field
        return f"map of {_scalar(key)} to {_scalar(value)}"
    repeated = field.label == FieldDescriptorProto.LABEL_REPEATED
    return ("list of " if repeated else "optional " if field.proto3_optional else "") + _scalar(
        field
    )


def _scalar(field: FieldDescriptorProto) -> str:
    if field.type_name:
        return _linked(field.type_name)
    return FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()


def enum_section(
    file: FileDescriptorProto, enum: EnumDescriptorProto, name: str, place: Place
) -> Iterator[str]:
    yield f"## {name}\n"
    yield from filter(None, [_paragraph(comment(file, place))])
    yield "| value | number | what it means |\n|---|---|---|"
    for number, value in enumerate(enum.value):
        said = comment(file, (*place, VALUES, number))
        yield f"| `{value.name}` | {value.number} | {said} |"
    yield ""


def _paragraph(text: str) -> str:
    return f"{text}\n" if text else ""


def _short(name: str) -> str:
    return name.removeprefix(".federation.v1.")


def _linked(name: str) -> str:
    """To its section, where it is ours."""
    short = _short(name)
    if short == name:
        return f"`{name.removeprefix('.')}`"
    return f"[{short}](#{short.lower().replace('.', '')})"


def main(arguments: Iterable[str]) -> int:
    texts = pages()
    if "--check" in arguments:
        stale = [
            name
            for name, text in texts.items()
            if not (FOLDER / name).exists() or (FOLDER / name).read_text("utf-8") != text
        ]
        stale += [path.name for path in FOLDER.glob("*.md") if path.name not in texts]
        for name in stale:
            print(f"docs/reference/{name} is not what its sources give: run `make reference`")
        return 1 if stale else 0
    FOLDER.mkdir(exist_ok=True)
    for name, text in texts.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
