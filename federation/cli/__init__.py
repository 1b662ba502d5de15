"""``fedctl``, the person's tool. One module per group of verbs.

Must not compute answers: the API, or the same pure code it runs, does.

- ``asking``: questions before something ends: on a terminal, unless ``--yes`` answers them
- ``audit``: verbs about the audit: list, verify, export
- ``audit_chain``: the audit's chain of hashes, reckoned anew on the caller's side
- ``audit_export``: the audit as lines of JSON, for programs that ship logs: each record once, in
  the order of seals
- ``columns``: texts in columns: how wide they are, what a narrow terminal leaves out, and how they
  are wrapped
- ``completion``: the verb ``completion``: what makes a shell complete verbs and options
- ``connection``: where the control plane is: the options every online verb shares, before and after
  its name
- ``contexts``: control planes that a person goes back to, by name: where each is, whom to trust,
  which token
- ``decisions``: how decisions are shown: outcome, shares, nodes, the whole trace, and how much is
  placed
- ``diff``: ``fedctl diff``: what schedule or apply would change, and nothing is changed
- ``doctor``: the verb ``doctor``: whether fedctl can ask its control planes, and if not, why and
  what to do
- ``durations``: spans of time as people write them: ``90s``, ``1h30m``, ``500ms``, ``7d``, and
  seconds alone
- ``estimate``: the verb ``estimate``: how many replicas fit, from files or from the control plane
- ``events``: the verb ``events``: what happened to bindings and clusters, a line an event, the
  oldest first
- ``failover``: verbs about failover: status, freeze, resume
- ``fleet``: verbs about member clusters: get, describe, apply; and the lists of everything else
- ``folders``: where fedctl finds its files, by the environment: a part of ``__main__`` that verbs
  need too
- ``history``: verbs about what was decided before: get decisions, history
- ``inputs``: files that verbs read: clusters, bindings, requests and options, and files of cases
- ``joining``: verbs about clusters that join: join-token, accept, reject, and get joiners
- ``kinds``: kinds that `fedctl get` lists: how each is fetched, and with ``-w`` how its rows are
  followed
- ``labels``: verbs ``label`` and ``taint``: a few labels or taints of clusters changed, the others
  untouched
- ``lists``: lists: the columns of a kind, which rows are selected, their order, and how they are
  shown
- ``login``: verbs about where the control planes are: login, config
- ``members``: verbs that change a member cluster's standing: cordon, uncordon, delete, replace,
  revoke
- ``names``: names given on the command line: of objects, of the kinds that they are of, and with
  values
- ``offline``: verbs that need no server: they answer from files, by the code that a control plane
  runs
- ``output``: how answers are shown: aligned tables for people, documents and parts of them for
  programs
- ``plans``: verbs about plans: drain, and rebalance plan, show, list, approve, watch, stop
- ``queueing``: verbs about what waits for room: get queue, suspend, resume, reschedule
- ``quota``: verbs about namespace quotas: set, list, delete
- ``refusals``: why a control plane could not be asked, and what to do: what gRPC says, in words of
  options
- ``replay``: the verb ``replay``: a decision, or all of a trace file, made again and compared
- ``reservations``: verbs about what bindings hold: get reservations, describe binding, release,
  renew
- ``times``: times as people write them on the command line
- ``token``: verbs about tokens: create, list, revoke
- ``top``: the verb ``top``: how full clusters are, and what namespaces hold of them
- ``trace``: verbs about trace files: export
- ``verbs``: the verbs of ``fedctl`` in their groups: the list of all waits for no module
- ``waiting``: ``fedctl wait``: until bindings are placed or deleted
- ``watch``: ``fedctl watch``: a line, or a document, for everything that happens, until it is
  interrupted
- ``workloads``: verbs about workloads: schedule, explain
"""
