"""Verbs about workloads: schedule, explain.

Must not decide anything: the control plane does.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from federation.cli import output as show
from federation.cli.arguments import DurationType, OldFlag, named_binding, namespace_option
from federation.cli.connection import connection
from federation.cli.decisions import (
    can_draw,
    draw_decision,
    print_decision,
    print_nodes,
    print_preview,
    print_trace,
)
from federation.cli.output import Output, output_option
from federation.cli.waiting import PLACED, wait_for
from federation.codec.ranges import MAX_LEASE_SECONDS
from federation.codec.written import document_from_message
from federation.model.errors import NotFound
from federation.model.placement import Certificate, binding_key
from federation.v1 import resource_pb2, scheduling_pb2

if TYPE_CHECKING:
    from federation.client import Client

_DECISION_ID: Final = re.compile(r"[0-9a-f-]{36}")
NOT_PLACED = 3
WITHOUT_A_PLACE = {
    scheduling_pb2.Outcome.OUTCOME_UNSCHEDULABLE,
    scheduling_pb2.Outcome.OUTCOME_NO_FIT,
}

Ask = Callable[["Client"], Awaitable[scheduling_pb2.ScheduleResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleOptions:
    """The options of the verb schedule."""

    paths: Sequence[str]
    output: Output
    adopt: bool
    queue: bool
    wait: bool
    preview: bool
    atomic: bool
    tokens: Sequence[str]
    idempotency_key: str | None
    certificate: str | None
    lease_seconds: int | None
    node_timeout: float
    exit_code: bool

    @property
    def exits_with_3(self) -> bool:
        """Whether a binding without a place is what was not asked for."""
        return self.exit_code or self.atomic or not (self.queue or self.preview)

    def check(self) -> None:
        """Raise UsageError where options do not go together."""
        is_preview = bool(self.tokens or self.preview)
        key = self.idempotency_key
        for is_wrong, rule in (
            (
                bool(self.paths) == bool(self.tokens),
                "give files with -f, or tokens of previews with --commit",
            ),
            (
                self.tokens and self.preview,
                "--preview decides, --commit takes what was decided: choose one",
            ),
            (
                self.atomic and is_preview,
                "previews are of one binding each: --atomic does not go with them",
            ),
            (key is not None and not key.strip(), "--idempotency-key: must not be empty"),
            (key and is_preview, "tokens of previews are repeatable without --idempotency-key"),
            (
                self.tokens and (self.certificate or self.lease_seconds),
                "--commit takes what was decided: no --certificate, no lease",
            ),
            (
                self.wait and (is_preview or self.atomic or not self.queue),
                "--wait is for what is kept until it fits",
            ),
        ):
            if is_wrong:
                raise click.UsageError(rule)


SCHEDULE_EPILOG = """Examples:

\b
fedctl schedule -f deployment.yaml -f policy.yaml
fedctl schedule -f deployment.yaml -f policy.yaml --dry-run
fedctl schedule -f api.yaml -f database.yaml -f policy.yaml --atomic
fedctl schedule -f binding.yaml --certificate strict --idempotency-key 2f1c
fedctl schedule --commit TOKEN
fedctl schedule -f binding.yaml --wait --timeout 5m
fedctl schedule -f binding.yaml --no-queue || echo "no place for it"
"""


@click.command(epilog=SCHEDULE_EPILOG)
@click.option("-f", "--filename", "paths", multiple=True, help="File, or - .")
@click.option("--adopt", is_flag=True, help="Take spec.clusters as where the workload runs now.")
@click.option(
    "--queue/--no-queue",
    default=True,
    help="Keep a binding that does not fit, and try it again. Without it exits with 3 then.",
)
@click.option("--no-wait", cls=OldFlag, says="--no-queue")
@click.option("--wait", is_flag=True, help="Wait until all is placed, as long as --timeout says.")
@click.option(
    "--preview",
    "--dry-run",
    "preview",
    is_flag=True,
    help="Decide, commit nothing, and show a token.",
)
@click.option(
    "--atomic",
    is_flag=True,
    help="Place all that the files hold, or none; nothing waits, and no nodes are awaited.",
)
@click.option(
    "--commit", "tokens", multiple=True, metavar="TOKEN", help="Commit what a preview showed."
)
@click.option(
    "--idempotency-key",
    metavar="KEY",
    help="Decide once however often this is called with it, for a day; one binding only.",
)
@click.option(
    "--certificate",
    type=click.Choice([certificate.value for certificate in Certificate]),
    help="What the promises must be worth, in place of what the files say.",
)
@click.option(
    "--lease-seconds",
    type=DurationType(1, MAX_LEASE_SECONDS, is_whole=True),
    help="Let go of what is reserved after so long, unless renewed; in place of what files say.",
)
@click.option(
    "--node-timeout",
    type=DurationType(0, 20),
    default="5s",
    show_default=True,
    help="How long to wait for the agents to choose nodes.",
)
@click.option(
    "--exit-code",
    is_flag=True,
    help="Exit with 3 when a binding has no place, also where it is kept, or only previewed.",
)
@output_option
def schedule(**options: Any) -> None:
    """Decide where the workloads of files run.

    The files hold ResourceBindings, or workloads with their policies.
    """
    chosen = ScheduleOptions(**options)
    chosen.check()
    # Help and completion do not wait for grpc, nor for what reads files.
    from federation.cli.inputs import bindings_in  # noqa: PLC0415 - see above
    from federation.client import Client  # noqa: PLC0415 - see above

    seconds, output = chosen.node_timeout, chosen.output
    if chosen.tokens:
        asks: list[Ask] = [
            partial(Client.commit_preview, token=token, node_timeout_seconds=seconds)
            for token in chosen.tokens
        ]
        _show_as_answered(asks, output, {}, exit_code=chosen.exits_with_3)
        return
    held = bindings_in(chosen.paths)
    bindings = _promised(held.bindings, chosen.certificate, chosen.lease_seconds)
    key = chosen.idempotency_key or ""
    if key and len(bindings) > 1:
        raise click.UsageError(f"a key stands for one request, and the files hold {len(bindings)}")
    if chosen.atomic:
        items = [
            scheduling_pb2.ScheduleBatchItem(
                binding=binding, adopt=chosen.adopt, idempotency_key=key
            )
            for binding in bindings
        ]
        _show_together(items, output, held.warnings, exit_code=chosen.exits_with_3)
        return
    scheduling = partial(Client.schedule, node_timeout_seconds=seconds, idempotency_key=key)
    method = Client.preview if chosen.preview else scheduling
    asks = [
        partial(method, binding=binding, adopt=chosen.adopt, wait=chosen.queue)
        for binding in bindings
    ]
    _show_as_answered(asks, output, held.warnings, exit_code=chosen.exits_with_3)
    if chosen.wait:
        metas = [binding.metadata for binding in bindings]
        wait_for([(meta.namespace, meta.name) for meta in metas], PLACED, err=output.is_document)


def _promised(
    bindings: Sequence[resource_pb2.ResourceBinding],
    certificate: str | None,
    lease_seconds: int | None,
) -> Sequence[resource_pb2.ResourceBinding]:
    """The bindings, with what the options say of their promises."""
    for binding in bindings:
        if certificate is not None:
            binding.spec.certificate = certificate
        if lease_seconds is not None:
            binding.spec.lease_seconds = lease_seconds
    return bindings


def _show_as_answered(
    asks: Sequence[Ask],
    output: Output,
    warnings: Mapping[str, Sequence[str]],
    *,
    exit_code: bool,
) -> None:
    """One call after the other on one connection: what was committed is shown even when a later
    call fails.

    ``warnings`` are those of the files, by binding: a control plane never sees pod templates.
    """
    documents, names = [], []
    outcomes = set()

    async def show_each(api: Client) -> None:
        for ask in asks:
            answer = await ask(api)
            _add_warnings(answer.decision, warnings)
            outcomes.add(answer.decision.outcome)
            if output.is_document:
                documents.append(document_from_message(answer))
                names.append(_binding_name(answer.decision))
                continue
            print_decision(answer.decision, queued=answer.queued)
            print_preview(answer)
            if output.is_wide and answer.decision.HasField("trace"):
                print_trace(answer.decision.trace, wide=True)
            print_nodes(answer.decision)

    try:
        connection().call(show_each)
    finally:
        if documents:
            show.print_document(documents, output, names)
    if exit_code and outcomes & WITHOUT_A_PLACE:
        click.get_current_context().exit(NOT_PLACED)


def _binding_name(decision: scheduling_pb2.Decision) -> str:
    return f"binding/{binding_key(decision.namespace, decision.name)}"


def _add_warnings(decision: scheduling_pb2.Decision, warnings: Mapping[str, Sequence[str]]) -> None:
    decision.warnings.extend(warnings.get(binding_key(decision.namespace, decision.name), ()))


def _show_together(
    items: Sequence[scheduling_pb2.ScheduleBatchItem],
    output: Output,
    warnings: Mapping[str, Sequence[str]],
    *,
    exit_code: bool,
) -> None:
    """One call for all of them; exits with 1 where one is wrong."""
    results = connection().call(lambda api: api.schedule_batch(items, atomic=True))
    for result in results:
        _add_warnings(result.decision, warnings)
    if output.is_document:
        documents = [document_from_message(result) for result in results]
        show.print_document(
            documents, output, (_binding_name(result.decision) for result in results)
        )
    else:
        for result in results:
            print_decision(result.decision)
            show.print_facts((result.field, result.rule) for result in result.violations)
    outcomes = {result.decision.outcome for result in results}
    if scheduling_pb2.OUTCOME_INVALID in outcomes:
        click.get_current_context().exit(1)
    if exit_code and outcomes & WITHOUT_A_PLACE:
        click.get_current_context().exit(NOT_PLACED)


@click.command(epilog="Example: fedctl explain shop/checkout-deployment")
@click.argument("name", metavar="NAMESPACE/BINDING | DECISION")
@namespace_option
@output_option
def explain(name: str, namespace: str, output: Output) -> None:
    """Show why a binding is where it is.

    Lists every cluster's filter, scores, estimate and share.
    """
    decision_id = _decision_id(name, namespace)
    decision = connection().call(lambda api: api.get_decision(decision_id))
    if output.is_document:
        document = document_from_message(decision)
        show.print_document(document, output, [f"decision/{decision.id}"])
        return
    print_decision(decision)
    if can_draw():
        draw_decision(decision)
    print_trace(decision.trace, wide=output.is_wide)
    print_nodes(decision)


def _decision_id(name: str, namespace: str) -> str:
    """The decision of that id, or the newest about the binding. Raises NotFound."""
    if _DECISION_ID.fullmatch(name):
        return name
    binding = named_binding(name, namespace)
    answer: scheduling_pb2.GetBindingResponse = connection().call(
        lambda api: api.get_binding(*binding)
    )
    if answer.decision.id:
        return answer.decision.id
    gate = f" ({answer.wait.gate})" if answer.wait.gate else ""
    rule = "none was made yet, or none is kept any more"
    raise NotFound(f"There is no decision about binding {binding_key(*binding)!r}{gate}: {rule}.")
