"""Counts of an agent's work: lists and watches, reports, questions.

Must not know who reads them.
"""

from __future__ import annotations

from collections import Counter

from federation.runtime.measures import Distribution


class AgentMeasures:
    """``lists`` are how long each resource took to list, ``changes`` what its watches brought, and
    ``troubles`` how often either failed. ``report_bytes`` is the size of the newest report.
    """

    def __init__(self) -> None:
        self.lists: dict[str, Distribution] = {}
        self.changes = Counter[str]()
        self.troubles = Counter[str]()
        self.questions = Counter[str]()
        self.reports = 0
        self.report_bytes = 0
        self.streams = 0
        self.is_connected = False
