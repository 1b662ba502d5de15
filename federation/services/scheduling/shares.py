"""The shares that a decision asks a cluster for, and what is said of their certificates.

Pure. Must not know whether there is room for them.
"""

from __future__ import annotations

from collections.abc import Iterable

from federation.model.placement import Binding, Certificate
from federation.model.reservations import PromiseCertificate, Reservation, Share

NOT_PLANNED = "no placer of ours is there to follow plans"


def units_of(binding: Binding, count: int) -> Iterable[tuple[Share, int]]:
    """What so many replicas, or sets, are made of: each part, and how many times."""
    return ((part, count) for part in parts(binding, 1))


def note_of(asked: Certificate | None, worth: PromiseCertificate) -> str:
    """Why a promise is worth something else than was asked for."""
    if worth is PromiseCertificate.UNPROVEN:
        return "nothing shows whether there is room"
    if worth is PromiseCertificate.SUMMARY_CHECKED:
        return "nothing shows whether its nodes have room"
    return NOT_PLANNED if asked is Certificate.PLANNED else ""


def parts(
    binding: Binding,
    replicas: int,
    certificate: PromiseCertificate = PromiseCertificate.CAREFUL,
) -> tuple[Share, ...]:
    """What one cluster runs of the workload; one of components goes there as a whole."""
    if binding.components:
        return tuple(
            Share(
                component=each.name,
                requirements=each.requirements,
                replicas=each.replicas,
                certificate=certificate,
            )
            for each in binding.components
        )
    return (Share(requirements=binding.requirements, replicas=replicas, certificate=certificate),)


def shares_of(reservations: Iterable[Reservation]) -> tuple[Share, ...]:
    """What was asked for, by what is held of it."""
    return tuple(
        Share(
            component=each.component,
            requirements=each.requirements,
            replicas=each.replicas,
            certificate=each.certificate,
        )
        for each in reservations
    )
