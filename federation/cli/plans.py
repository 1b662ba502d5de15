"""Verbs about plans: drain, and plan create, show, list, approve, watch, stop.

Must not interpret what it shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar, Unpack

import click

from federation.cli import output as show
from federation.cli.arguments import RenamedOption, check_may_ask, confirm, pairs_of, yes_option
from federation.cli.connection import connection, patient_connection
from federation.cli.decisions import shares_text
from federation.cli.kinds import GetKind, Request, kind_command
from federation.cli.lists import ListColumn, ListedKind
from federation.cli.output import Output, output_option
from federation.cli.pictures import bars
from federation.codec.timestamps import seconds_from_timestamp
from federation.codec.written import document_from_message, enum_word
from federation.model.errors import FederationError, InvalidRequest
from federation.model.placement import binding_key
from federation.model.readable import counted
from federation.runtime.terminal import say
from federation.v1 import rebalance_pb2

if TYPE_CHECKING:
    from federation.client import Client

KINDS: Final = {
    enum_word(rebalance_pb2.PlanKind.DESCRIPTOR, number): number
    for number in rebalance_pb2.PlanKind.values()
    if number
}
F = TypeVar("F", bound=Callable[..., Any])
# Something was not moved.
INCOMPLETE: Final = 3
TO_THE_LAST: Final = frozenset(
    {
        rebalance_pb2.PLAN_KIND_DRAIN,
        rebalance_pb2.PLAN_KIND_FAILBACK,
        rebalance_pb2.PLAN_KIND_UNSCHEDULABLE,
    }
)
WHOLE_PERCENT: Final = 100
MOVED: Final = frozenset({rebalance_pb2.STEP_STATE_DONE})

BUDGET: Final = (
    click.option(
        "--moves-at-once",
        type=click.IntRange(1, 1000),
        default=10,
        show_default=True,
        help="How many bindings may be moving at a time.",
    ),
    click.option(
        "--moves-per-cluster",
        type=click.IntRange(1, 1000),
        help="How many of them may leave or fill one cluster at a time.  [default: as many]",
    ),
    click.option(
        "--max-moves",
        type=click.IntRange(1, 5000),
        default=5000,
        show_default=True,
        help="How many bindings the plan may move.",
    ),
    click.option(
        "--max-moved",
        "max_moved_percent",
        type=click.IntRange(1, 100),
        default=100,
        show_default=True,
        metavar="PERCENT",
        help="How many percent of its replicas a binding may be moved by.",
    ),
    click.option(
        "--binding-selector",
        "selector",
        cls=RenamedOption,
        old=["--selector"],
        metavar="K=V,...",
        help="Only bindings with these labels move.",
    ),
)


class Budget(TypedDict):
    """The values of the budget options."""

    moves_at_once: int
    moves_per_cluster: int | None
    max_moves: int
    max_moved_percent: int
    selector: str | None


def budget_options(function: F) -> F:
    """Which bindings a plan may move, and how many of them."""
    return reduce(lambda wrapped, option: option(wrapped), reversed(BUDGET), function)


plan_argument = click.argument("plan_id", metavar="PLAN", type=click.IntRange(min=1))


@click.command(epilog="Example: fedctl drain member1")
@click.argument("clusters", metavar="CLUSTER...", nargs=-1, required=True)
@budget_options
@yes_option
@click.pass_context
def drain(
    context: click.Context, clusters: Sequence[str], *, yes: bool, **options: Unpack[Budget]
) -> None:
    """Empty clusters by a plan, and follow it to its end.

    The clusters are cordoned, and stay so. Each binding gets room elsewhere before it leaves, and
    its old share stays until the new one runs. Who stops watching does not stop the plan. Exits
    with 3 when something is left there.
    """
    check_may_ask(yes=yes)
    plan = _created(_request("drain", clusters, options))
    _print_plan(plan)
    try:
        confirm(f"Plan {plan.id} cordons {', '.join(plan.clusters)} and moves that.", yes=yes)
    except click.Abort:
        connection().call(lambda api: api.plans.stop(plan.id, "declined"))
        raise
    _approved(plan.id)
    if not _followed(plan.id):
        context.exit(INCOMPLETE)


class PlanVerbs(click.Group):
    """A group in which ``plan`` still creates one, as in ``rebalance plan drain``."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, "create" if cmd_name == "plan" else cmd_name)


@click.group(cls=PlanVerbs, epilog="Example: fedctl plan create drain member1")
def plan() -> None:
    """Make, show, approve, watch and stop plans of moves."""


@plan.command("create", epilog="Example: fedctl plan create drain member1 -o json")
@click.argument("kind", type=click.Choice(list(KINDS)))
@click.argument("clusters", metavar="CLUSTER...", nargs=-1)
@click.option("--cluster-selector", metavar="K=V,...", help="The clusters with these labels.")
@click.option(
    "--headroom",
    type=click.IntRange(0, 99),
    metavar="PERCENT",
    help="consolidate: how much of a cluster stays free that takes what leaves others.  "
    "[default: 20]",
)
@click.option(
    "--tolerance",
    type=click.IntRange(0, 100),
    metavar="PERCENT",
    help="balance: how much fuller a cluster may be than all together.  [default: 5]",
)
@budget_options
@output_option
def make(
    kind: str,
    clusters: Sequence[str],
    cluster_selector: str | None,
    headroom: int | None,
    tolerance: int | None,
    output: Output,
    **options: Unpack[Budget],
) -> None:
    """Make a plan, and show it; nothing moves until it is approved.

    Drain leaves nothing in the clusters. Failback brings bindings back to affinity groups that they
    prefer, of those in the clusters, or of all. Balance moves among the clusters, or all, what
    makes some much fuller than others. Consolidate leaves as many of them empty as can be.
    Unschedulable moves what is pending there, and others so that what waits finds room.
    """
    request = _request(kind, clusters, options)
    if cluster_selector:
        request.cluster_selector.update(pairs_of([cluster_selector], "--cluster-selector"))
    if headroom is not None:
        request.headroom_percent = headroom
    if tolerance is not None:
        request.tolerance_percent = tolerance
    _show(_created(request), output)


@plan.command("show", epilog="Example: fedctl plan show 7 --svg plan.svg")
@plan_argument
@click.option(
    "--svg",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a picture: what the bindings that move have in each cluster, before and after.",
)
@output_option
def show_plan(plan_id: int, svg: Path | None, output: Output) -> None:
    """A plan: how good it is, its steps and how far they are, and what it leaves."""
    plan = connection().call(lambda api: api.plans.get(plan_id))
    _show(plan, output)
    if svg is not None:
        try:
            svg.write_text(picture(plan), encoding="utf-8")
        except OSError as error:
            raise FederationError(f"cannot write {svg}: {error.strerror}") from error


def picture(plan: rebalance_pb2.Plan) -> str:
    """A picture, as SVG: replicas of bindings that move, by cluster, before and after."""
    earlier, later = Counter[str](), Counter[str]()
    for step in plan.steps:
        earlier.update({share.name: share.replicas for share in step.before})
        later.update({share.name: share.replicas for share in step.after})
    pairs = [(name, earlier[name], later[name]) for name in sorted(earlier | later)]
    title = f"{_kind(plan)}: replicas of bindings that move, by cluster"
    return bars(title, pairs, ("before", "after"))


PLANS: Final[ListedKind[rebalance_pb2.Plan]] = ListedKind(
    word="plan",
    named=lambda plan: str(plan.id),
    columns=(
        ListColumn("PLAN", lambda plan, _: plan.id),
        ListColumn("KIND", lambda plan, _: _kind(plan)),
        ListColumn("STATE", lambda plan, _: _state(plan)),
        ListColumn(
            "AGE",
            lambda plan, now: show.age(now - (seconds_from_timestamp(plan.created_at) or now)),
            order=lambda plan: -(seconds_from_timestamp(plan.created_at) or 0.0),
        ),
        ListColumn("STEPS", lambda plan, _: plan.step_count),
        ListColumn("CLUSTERS", lambda plan, _: ", ".join(plan.clusters)),
        ListColumn("BY", lambda plan, _: plan.approved_by or plan.created_by),
        ListColumn("REASON", lambda plan, _: plan.reason or "-"),
    ),
    least=("BY", "AGE"),
    prose=("CLUSTERS", "REASON"),
    empty="There are no plans.",
)


async def _fetch_plans(api: Client, request: Request) -> Sequence[rebalance_pb2.Plan]:
    if request.names:
        return [await api.plans.get(_plan_number(name)) for name in request.names]
    return await api.plans.list(limit=request.options["limit"])


def _plan_number(name: str) -> int:
    if not (name.isascii() and name.isdecimal()):
        raise InvalidRequest.of("PLAN", f"must be a number, not {name!r}")
    return int(name)


GET_PLANS: Final = GetKind(
    plural="plans",
    listed=PLANS,
    words="""Plans, the newest first, or those with these numbers.

    What a plan does, step by step: fedctl plan show PLAN.
    """,
    fetch=_fetch_plans,
    fetches_names=True,
    options=[
        click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
    ],
    metavar="PLAN",
)
plan.add_command(kind_command(GET_PLANS, "plan list"))


@plan.command(epilog="Example: fedctl plan approve 7")
@plan_argument
def approve(plan_id: int) -> None:
    """Carry a plan out, from now on; what it says is checked against the fleet first."""
    plan = _approved(plan_id)
    say(f"plan/{plan.id} approved: {counted(plan.step_count, 'step')}")


@plan.command(epilog='Example: fedctl plan stop 7 --reason "enough for today"')
@plan_argument
@click.option("--reason", default="", help="Why; everybody who asks is shown it.")
def stop(plan_id: int, reason: str) -> None:
    """Begin no step any more; those that are moving come to their end."""
    connection().call(lambda api: api.plans.stop(plan_id, reason))
    say(f"plan/{plan_id} stopped")


@plan.command(epilog="Example: fedctl plan watch 7")
@plan_argument
@click.pass_context
def watch(context: click.Context, plan_id: int) -> None:
    """A line for each step that changes, until the plan has ended.

    Exits with 3 when something was not moved.
    """
    if not _followed(plan_id):
        context.exit(INCOMPLETE)


def _request(
    kind: str, clusters: Sequence[str], options: Budget
) -> rebalance_pb2.CreatePlanRequest:
    selector = options["selector"]
    return rebalance_pb2.CreatePlanRequest(
        kind=KINDS[kind],
        clusters=clusters,
        moves_at_once=options["moves_at_once"],
        moves_per_cluster=options["moves_per_cluster"] or 0,
        max_moves=options["max_moves"],
        max_moved_percent=options["max_moved_percent"],
        selector=pairs_of([selector], "--binding-selector") if selector else {},
    )


def _created(request: rebalance_pb2.CreatePlanRequest) -> rebalance_pb2.Plan:
    return patient_connection().call(
        lambda api: api.plans.create(request), doing="the plan is being made"
    )


def _approved(plan_id: int) -> rebalance_pb2.Plan:
    """Every step is decided once more before that."""
    return patient_connection().call(
        lambda api: api.plans.approve(plan_id), doing="every step is being checked"
    )


def _show(plan: rebalance_pb2.Plan, output: Output) -> None:
    if output.is_document:
        show.print_document(document_from_message(plan), output, [PLANS.name(plan)])
    else:
        _print_plan(plan)


def _print_plan(plan: rebalance_pb2.Plan) -> None:
    # Lists of plans do not wait for the rules of plans.
    from federation.plans.plan import Gain, PlanKind  # noqa: PLC0415 - see above
    from federation.plans.words import gain_words  # noqa: PLC0415 - see above

    message = plan.gain
    gain = Gain(wanted=message.wanted, moved=message.moved, bound=message.bound, unit=message.unit)
    words = gain_words(PlanKind(_kind(plan)), gain)
    facts = [
        ("Plan", plan.id),
        ("Kind", f"{_kind(plan)} {', '.join(plan.clusters)}".strip()),
        ("State", _state(plan)),
        *([("Why", plan.reason)] if plan.reason else []),
        *_limits(plan),
        (words.name, f"{words.does}, in {counted(plan.step_count, 'step')}"),
        ("At best", words.at_best),
        ("At once", _at_once(plan)),
    ]
    show.print_facts(facts)
    if plan.steps:
        show.print_heading("Steps")
        show.print_table(
            ["STEP", "BINDING", "FROM", "TO", "STATE", "WHY"],
            [
                (
                    step.number,
                    binding_key(step.namespace, step.name),
                    shares_text(step.before),
                    shares_text(step.after),
                    _step_state(step),
                    step.message or step.reason,
                )
                for step in plan.steps
            ],
            last=["STEP", "FROM", "STATE"],
            prose=["FROM", "TO", "WHY"],
        )
    if plan.unfixed:
        show.print_heading("Stays where it is")
        show.print_table(
            ["BINDING", "REPLICAS", "WHY"],
            [
                (binding_key(stay.namespace, stay.name), stay.replicas, stay.reason)
                for stay in plan.unfixed
            ],
            prose=["WHY"],
        )
        if plan.unfixed_count > len(plan.unfixed):
            say(f"{counted(plan.unfixed_count, 'binding')} in all", err=True)


def _limits(plan: rebalance_pb2.Plan) -> Iterable[tuple[str, str]]:
    """Limits of the plan that are not the defaults."""
    if plan.selector:
        yield "Selector", ",".join(f"{key}={value}" for key, value in sorted(plan.selector.items()))
    if plan.max_moved_percent < WHOLE_PERCENT:
        yield "Max moved", f"{plan.max_moved_percent} % of a binding"
    if plan.HasField("headroom_percent"):
        yield "Headroom", f"{plan.headroom_percent} % of each cluster that takes more"
    if plan.HasField("tolerance_percent"):
        yield "Tolerance", f"{plan.tolerance_percent} % of a cluster above all together"


def _at_once(plan: rebalance_pb2.Plan) -> str:
    if not plan.moves_per_cluster:
        return counted(plan.moves_at_once, "step")
    return f"{counted(plan.moves_at_once, 'step')}, {plan.moves_per_cluster} of one cluster"


def _followed(plan_id: int) -> bool:
    """A line for each step that changes; whether all that was to move did."""

    def opened(api: Client) -> AsyncGenerator[rebalance_pb2.Plan]:
        return api.plans.watch(plan_id)

    plan = rebalance_pb2.Plan()
    steps: dict[int, rebalance_pb2.PlanStep] = {}
    try:
        for plan in connection().iterate(opened):
            for step in plan.steps:
                if step.state != steps.get(step.number, rebalance_pb2.PlanStep()).state:
                    say(_step_line(step))
                steps[step.number] = step
    except KeyboardInterrupt:
        say(f"plan {plan_id} goes on: fedctl plan stop {plan_id} stops it", err=True)
        return True
    why = f": {plan.reason}" if plan.reason else ""
    moved = sum(step.state in MOVED for step in steps.values())
    of = counted(plan.step_count, "step is", "steps are")
    say(f"plan/{plan_id} {_state(plan)}{why}: {moved} of {of} done")
    if plan.unfixed_count:
        stay = counted(plan.unfixed_count, "binding stays", "bindings stay")
        say(f"{stay} behind", err=True)
    # Of clusters that are evened out, or emptied where that can be, most stays where it is.
    leaves_nothing = plan.kind in TO_THE_LAST
    return moved == plan.step_count and not (leaves_nothing and plan.unfixed_count)


def _step_line(step: rebalance_pb2.PlanStep) -> str:
    why = f"  {step.message}" if step.message else ""
    key = binding_key(step.namespace, step.name)
    return f"{step.number}  {_step_state(step)}  {key}  to {shares_text(step.after)}{why}"


def _kind(plan: rebalance_pb2.Plan) -> str:
    return enum_word(rebalance_pb2.PlanKind.DESCRIPTOR, plan.kind)


def _state(plan: rebalance_pb2.Plan) -> str:
    return enum_word(rebalance_pb2.PlanState.DESCRIPTOR, plan.state)


def _step_state(step: rebalance_pb2.PlanStep) -> str:
    return enum_word(rebalance_pb2.StepState.DESCRIPTOR, step.state)
