"""Reads the scoring configuration people already have into strategies.

Must not score: a reader's result is a value of ``estimator.binpack``.

- ``choice``: which of a configuration's strategies scores a pod, and on which scale
- ``documents``: one YAML or JSON document as plain values
- ``faults``: what is wrong with a configuration: which field, which kind of fault, and when it is
  noticed
- ``fields``: a strict decoder: tables of fields, each with a reader, as Kubernetes decodes its
  files
- ``kubescheduler``: kubeSchedulerConfiguration v1: strictly decoded, defaulted, checked, and made
  into profiles
- ``kubescheduler_fields``: the fields of KubeSchedulerConfiguration v1 and of the plugin
  arguments it knows
- ``kubescheduler_rules``: the rules of KubeSchedulerConfiguration v1, on a decoded and defaulted
  document
- ``policy``: the legacy scheduler Policy (removed in Kubernetes 1.23), translated into a profile
- ``reader``: whichever scoring configuration a text holds, told by what it says about itself
- ``shape_rules``: the rules for a shape and for weighted resources, the same in every format of
  kube-scheduler
- ``volcano``: volcano's scheduler.conf, as far as its binpack plugin is concerned
"""
