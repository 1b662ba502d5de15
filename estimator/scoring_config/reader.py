"""Whichever scoring configuration a text holds, told by what it says about itself.

Must not guess: a text that is none of the three known formats is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from estimator.binpack.strategy import Strategy
from estimator.scoring_config import kubescheduler_fields, policy
from estimator.scoring_config.documents import load_document, load_strict_document
from estimator.scoring_config.faults import Fault, FaultType, InvalidConfiguration, Stage
from estimator.scoring_config.kubescheduler import kube_scheduler_profiles
from estimator.scoring_config.policy import translate_policy
from estimator.scoring_config.volcano import volcano_configuration


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
    if document.get("kind") == kubescheduler_fields.KIND:
        return ScoringConfiguration(strategies=kube_scheduler_profiles(document))
    rule = f"must be {kubescheduler_fields.KIND} or {policy.KIND}, or the file have Volcano's tiers"
    fault = Fault(field="kind", rule=rule, type=FaultType.NOT_SUPPORTED)
    raise InvalidConfiguration(Stage.DECODE, [fault])
