"""Which of a configuration's strategies scores a pod, and on which scale.

Must not read configurations.
"""

from __future__ import annotations

from dataclasses import replace

from estimator.binpack.fit_strategies.requested_to_capacity_ratio import (
    RequestedToCapacityRatio,
    Scale,
)
from estimator.binpack.profile import ScoringProfile
from estimator.binpack.strategy import Strategy
from estimator.scoring_config.reader import ScoringConfiguration
from federation.model.errors import InvalidRequest


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
