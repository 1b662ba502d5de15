"""Verbs about workloads: schedule, explain.

Must not decide anything: the control plane does.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final

import click

from federation.cli import output as show
from federation.cli.connection import connection
from federation.cli.decisions import (
    can_draw,
    draw_decision,
    print_decision,
    print_nodes,
    print_preview,
    print_trace,
)
from federation.cli.durations import DurationType
from federation.cli.names import named_binding, namespace_option
from federation.cli.output import Output, output_option
from federation.client import Client
from federation.codec.ranges import MAX_LEASE_SECONDS
from federation.codec.written import document_from_message
from federation.model.errors import NotFound
from federation.model.placement import Certificate, binding_key
from federation.v1 import resource_pb2, scheduling_pb2

_DECISION_ID: Final = re.compile(r"[0-9a-f-]{36}")
NOT_PLACED = 3
WITHOUT_A_PLACE = {
    scheduling_pb2.Outcome.OUTCOME_UNSCHEDULABLE,
    scheduling_pb2.Outcome.OUTCOME_NO_FIT,
}

Ask = Callable[[Client], Awaitable[scheduling_pb2.ScheduleResponse]]


SCHEDULE_EPILOG = """Examples:

\b
fedctl schedule -f deployment.yaml -f policy.yaml
fedctl schedule -f deployment.yaml -f policy.yaml --dry-run
fedctl schedule -f api.yaml -f database.yaml -f policy.yaml --atomic
fedctl schedule -f binding.yaml --certificate strict --idempotency-key 2f1c
fedctl schedule --commit TOKEN
fedctl schedule -f binding.yaml --exit-code || echo "no place for it"
"""


@click.command(epilog=SCHEDULE_EPILOG)
@click.option("-f", "--filename", "paths", multiple=True, help="File, or - .")
@click.option("--adopt", is_flag=True, help="Take spec.clusters as where the workload runs now.")
@click.option("--wait/--no-wait", default=True, help="Keep a binding that does not fit.")
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
    type=click.Choice([each.value for each in Certificate]),
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
    help="Exit with 3 when a binding has no place: UNSCHEDULABLE or NO_FIT. Else that is 0.",
)
@output_option
def schedule(
    paths: Sequence[str],
    output: Output,
    *,
    adopt: bool,
    wait: bool,
    preview: bool,
    atomic: bool,
    tokens: Sequence[str],
    idempotency_key: str | None,
    certificate: str | None,
    lease_seconds: int | None,
    node_timeout: float,
    exit_code: bool,
) -> None:
    """Decide where the workloads of files run.

    The files hold ResourceBindings, or workloads with their policies.
    """
    _check_options(
        paths=paths,
        tokens=tokens,
        preview=preview,
        atomic=atomic,
        idempotency_key=idempotency_key,
        changes_promises=bool(certificate or lease_seconds),
    )
    if tokens:
        asks: list[Ask] = [
            partial(Client.commit_preview, token=token, node_timeout_seconds=node_timeout)
            for token in tokens
        ]
        _show_as_answered(asks, output, {}, exit_code=exit_code)
        return
    from federation.cli.inputs import bindings_in  # noqa: PLC0415 - only this verb reads files

    held = bindings_in(paths)
    bindings = _promised(held.bindings, certificate, lease_seconds)
    if idempotency_key and len(bindings) > 1:
        raise click.UsageError(f"a key stands for one request, and the files hold {len(bindings)}")
    if atomic:
        items = [
            scheduling_pb2.ScheduleBatchItem(
                binding=each, adopt=adopt, idempotency_key=idempotency_key or ""
            )
            for each in bindings
        ]
        _show_together(items, output, held.warnings, exit_code=exit_code)
        return
    scheduling = partial(
        Client.schedule, node_timeout_seconds=node_timeout, idempotency_key=idempotency_key or ""
    )
    method = Client.preview if preview else scheduling
    _show_as_answered(
        [partial(method, binding=binding, adopt=adopt, wait=wait) for binding in bindings],
        output,
        held.warnings,
        exit_code=exit_code,
    )


def _check_options(
    *,
    paths: Sequence[str],
    tokens: Sequence[str],
    preview: bool,
    atomic: bool,
    idempotency_key: str | None,
    changes_promises: bool,
) -> None:
    """Raise UsageError where options do not go together."""
    if bool(paths) == bool(tokens):
        raise click.UsageError("give files with -f, or tokens of previews with --commit")
    if tokens and preview:
        raise click.UsageError("--preview decides, --commit takes what was decided: choose one")
    if atomic and (tokens or preview):
        raise click.UsageError("previews are of one binding each: --atomic does not go with them")
    if idempotency_key is not None and not idempotency_key.strip():
        raise click.UsageError("--idempotency-key: must not be empty")
    if idempotency_key and (tokens or preview):
        raise click.UsageError("tokens of previews are repeatable without --idempotency-key")
    if tokens and changes_promises:
        raise click.UsageError("--commit takes what was decided: no --certificate, no lease")


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
        documents = [document_from_message(each) for each in results]
        show.print_document(documents, output, (_binding_name(each.decision) for each in results))
    else:
        for result in results:
            print_decision(result.decision)
            show.print_facts((each.field, each.rule) for each in result.violations)
    outcomes = {each.decision.outcome for each in results}
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
