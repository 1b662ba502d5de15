"""Reads the scoring configuration people already have into strategies.

Must not score: a reader's result is a value of ``estimator.binpack``.

- ``documents``: one YAML or JSON document, decoded strictly by tables of fields; all faults at once
- ``kubescheduler``: KubeSchedulerConfiguration v1: decoded, defaulted, checked, made into profiles
- ``kubescheduler_rules``: its fields, and the rules of a decoded and defaulted document
- ``policy``: the legacy scheduler Policy (removed in Kubernetes 1.23), translated into a profile
- ``reader``: a configuration of any kind by its text, and the strategy of a scheduler name
- ``shape_rules``: the rules for a shape and for weighted resources, the same in every format
- ``volcano``: volcano's scheduler.conf, as far as its binpack plugin is concerned
"""
