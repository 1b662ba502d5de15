"""The border: documents, messages of the wire, and the model's values, turned into each other.

- ``audit``: records of the audit to messages and back
- ``bindings``: resource bindings, from messages and back
- ``changed_placements``: placements that policies give to bindings that were decided under others
- ``clusters``: member clusters, from messages and back
- ``condition_types``: what conditions of clusters are called that are not Kubernetes' own
- ``counts``: bound of the parts that a request may hold in all, so that reading and deciding end
  in time
- ``cross_field_rules``: rules between the fields of one message, by the ids that the protos give
  them
- ``decision_words``: parts of decisions in words, for terminals and pages alike
- ``decisions``: decisions and their traces to messages
- ``descriptors``: what the descriptors of protobuf do not say directly, nor their type stubs
- ``document_files``: files of documents that somebody named, read whole and checked for size
  before they are
- ``documents``: text to documents: YAML (several), JSON, and Kubernetes lists, as plain mappings
- ``echoes``: what reports count of promises, from messages and back
- ``estimates``: estimates: requests from messages, answers to messages
- ``field_tables``: tables of the fields that types of other projects have, written as text
- ``funnel``: a decision as a funnel: from all clusters to those that promised, and what left at
  each step
- ``interests``: what agents are to look for, from messages and back
- ``karmada_fields``: fields of Karmada's and Kubernetes' own types that fedsched accepts and
  reads over
- ``kubernetes_fields``: the fields of Kubernetes' own workloads, at the levels that fedsched
  reads, from 1.25 to 1.37
- ``models``: resource models and grade counts, from messages and back
- ``namespace_quotas``: namespace quotas, from messages and back
- ``packable``: what decisions pack into, for simulations elsewhere: pools and outstanding
  promises, both ways
- ``placements``: placements, from messages and back: where a workload may go and how replicas are
  divided
- ``plans``: plans, to messages, and what is asked of them, from messages
- ``plugin_args``: the arguments of scheduler plugins: objects into the frozen dataclasses that
  plugins declare
- ``pods``: pod templates as replica requirements, read leniently: their schema is Kubernetes' own
- ``policies``: propagation policies: which one a workload falls under
- ``pools``: node pools of reports, from messages and back
- ``profiles``: scheduler profiles out of a FederationSchedulerConfiguration, strictly
- ``ranges``: rules about single values of the wire: names, whole numbers, words out of a closed
  set
- ``remembered``: values that were read before, by the bytes of their messages: many bindings ask
  for the same
- ``replays``: decisions made again, to messages: what a replay found, and what reports say beside
  it
- ``reports``: agents' reports, from messages and back, and the hash that names their content
- ``requirements``: what one replica asks for, from messages and back
- ``rights``: rights of rpcs, as the protos declare them: callers, scope, audit, and limits of a
  request
- ``role_rules``: rules that give roles to callers whom others vouch for, out of a file, strictly
- ``rules``: rules of the protos (buf.validate), compiled for each message and evaluated with our
  paths
- ``scopes``: scopes and limits of callers: what a role may be limited to
- ``selectors``: label, field and node selectors, tolerations and taints, from messages and back
- ``simulations``: simulations: clusters, bindings and options from messages, decisions to
  messages
- ``strict``: documents to messages and back, strictly: unknown fields and wrong types are refused
  by path
- ``summaries``: resource summaries: quantities of a cluster's status as amounts in base units,
  and back
- ``texts``: rules about texts of the wire that people are shown: labels, annotations, uids, and
  free words
- ``timestamps``: points in time: RFC 3339 text, protobuf timestamps, Unix seconds
- ``unknown_numbers``: fields that a message holds and its schema does not know: told by number,
  where it came from
- ``unread``: fields that are accepted, as Karmada writes them, and that nothing here reads: told,
  not refused
- ``value_rules``: rules of single values, as buf.validate declares them: a test and a sentence for
  each
- ``violations``: collects broken rules, so that a caller hears of all of them at once
- ``virtual_time``: virtual time of simulations: events from messages, steps and who waits to
  messages
- ``waits``: how bindings wait, to messages
- ``workloads``: documents as bindings: resource bindings as they are, workloads through their
  policy
- ``written``: messages to documents, in the spelling people know from Kubernetes: integers stay
  numbers
- ``yaml_values``: yAML streams as plain values: dicts, lists, text, numbers, booleans and None
"""
