"""``fedctl``, the person's tool. One module per group of verbs.

Must not compute answers: the API, or the same pure code it runs, does.

- ``access``: verbs about who may do what, and how much: token, whoami, quota
- ``apply``: objects of files: apply sends them, diff compares them, and edit lets people write one
- ``arguments``: arguments of verbs: names of kinds and objects, pairs, times, spans, and the answer
  yes
- ``audit``: verbs about the audit: list, verify, export
- ``bindings``: bindings and what is reserved for them: get bindings, describe, and reservation
- ``clusters``: member clusters and those that join: get clusters, describe, join-token, accept,
  reject
- ``connection``: connections to control planes: the options of every online verb, and why one
  cannot be called
- ``contexts``: control planes under names: verbs login and config, and the file that keeps where
  each is
- ``decisions``: how decisions are shown: outcome, shares, nodes, the whole trace, and how much is
  placed
- ``doctor``: the verb ``doctor``: whether fedctl can ask its control planes, and if not, why and
  what to do
- ``estimate``: the verb ``estimate``: how many replicas fit, from files or from the control plane
- ``events``: the verb ``events``: what happened to bindings and clusters, a line an event, the
  oldest first
- ``fleet``: verbs about the whole fleet: top, how full it is, and failover, whether anything moves
- ``history``: verbs about what was decided before: get decisions, history, replay and trace
- ``inputs``: files that verbs read: clusters, bindings, requests and options, and files of cases
- ``kinds``: kinds that `fedctl get` lists: how each is fetched, and with ``-w`` how its rows are
  followed
- ``layouts``: layouts of tables: which columns a terminal has room for, how wide each is, and their
  lines
- ``lists``: lists: the columns of a kind, which rows are selected, their order, and how they are
  shown
- ``members``: verbs that change clusters: cordon, label, taint, delete, replace, revoke
- ``offline``: verbs that need no server: they answer from files, by the code that a control plane
  runs
- ``output``: answers as they are shown: tables for people, documents and parts of them for programs
- ``pictures``: pictures of numbers in pairs, as SVG: a bar for what was, one for what would be
- ``plans``: verbs about plans: drain, and plan create, show, list, approve, watch, stop
- ``verbs``: the verbs of ``fedctl`` in their groups, how one is loaded, and get, describe and
  completion
- ``waiting``: verbs about what waits and what changes: queue, gangs, suspend, resume, reschedule,
  wait
- ``workloads``: verbs about workloads: schedule, explain
"""
