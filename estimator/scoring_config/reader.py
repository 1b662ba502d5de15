"""Reads a scoring configuration of any kind, and chooses the strategy of a scheduler name.

Must not read files.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from estimator.binpack.fit_strategies.requested_to_capacity_ratio import (
    RequestedToCapacityRatio,
    Scale,
)
from estimator.binpack.profile import ScoringProfile
from estimator.binpack.strategy import Strategy
from estimator.scoring_config import kubescheduler_rules, policy
from estimator.scoring_config.documents import (
    Fault,
    FaultType,
    InvalidConfiguration,
    Stage,
    load_document,
    load_strict_document,
)
from estimator.scoring_config.kubescheduler import kube_scheduler_profiles
from estimator.scoring_config.policy import translate_policy
from estimator.scoring_config.volcano import volcano_configuration
from federation.model.errors import InvalidRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringConfiguration:
    """The strategies a file asks for by scheduler name, and what it says that has no effect.

    None is left when Volcano's binpack plugin is absent or switched off.
    """

    strategies: tuple[Strategy, ...]
    warnings: tuple[str, ...] = ()


def read_scoring_configuration(text: str) -> ScoringConfiguration:
    """Reads KubeSchedulerConfiguration v1, a legacy Policy or Volcano's scheduler.conf.

    Raises InvalidConfiguration with field paths.
    """
    document = load_document(text)
    if "kind" not in document and ("tiers" in document or "actions" in document):
        volcano = volcano_configuration(document)
        strategies = () if volcano.binpack is None else (volcano.binpack,)
        return ScoringConfiguration(strategies=strategies, warnings=volcano.warnings)
    document = load_strict_document(text)
    if document.get("kind") == policy.KIND:
        translated = translate_policy(document)
        return ScoringConfiguration(strategies=(translated.profile,), warnings=translated.warnings)
    if document.get("kind") == kubescheduler_rules.KIND:
        return ScoringConfiguration(strategies=kube_scheduler_profiles(document))
    rule = f"must be {kubescheduler_rules.KIND} or {policy.KIND}, or the file have Volcano's tiers"
    fault = Fault(field="kind", rule=rule, type=FaultType.NOT_SUPPORTED)
    raise InvalidConfiguration(Stage.DECODE, [fault])


def strategy_for(configuration: ScoringConfiguration, scheduler_name: str) -> Strategy:
    """The profile that ``scheduler_name`` names; the only one, whatever the pod says.

    Raises InvalidRequest when there is none, or when there are several and none has the name.
    """
    strategies = configuration.strategies
    if not strategies:
        rule = "scores no nodes: Volcano's binpack plugin is absent, switched off or has weight 0"
        raise InvalidRequest.of("configuration", rule)
    if len(strategies) == 1:
        return strategies[0]
    for strategy in strategies:
        if strategy.name == scheduler_name:
            return strategy
    names = ", ".join(strategy.name for strategy in strategies)
    raise InvalidRequest.of("schedulerName", f"must be one of {names}, not {scheduler_name!r}")


def on_documented_scale(strategy: Strategy) -> Strategy:
    """The profile's RequestedToCapacityRatio alone, scoring 0 to 10 as Kubernetes' page does.

    Raises InvalidRequest for anything else: no other strategy has that scale.
    """
    shaped = [
        plugin.strategy
        for plugin in (strategy.plugins if isinstance(strategy, ScoringProfile) else ())
        if isinstance(plugin.strategy, RequestedToCapacityRatio)
    ]
    if len(shaped) != 1:
        rule = "10 is a scale of RequestedToCapacityRatio only, which the configuration has not"
        raise InvalidRequest.of("scale", rule)
    return replace(shaped[0], scale=Scale.DOCUMENTATION)
