"""``fedctl``, the person's tool. One module per group of verbs.

Must not compute answers: the API, or the same pure code it runs, does.

- ``assumptions``: estimates for files of cases beside workloads that are assumed to be there, in
  sets or replicas
- ``audit``: verbs about the audit: list, verify, export
- ``audit_chain``: the audit's chain of hashes, reckoned anew on the caller's side
- ``audit_export``: the audit as lines of JSON, for programs that ship logs
- ``cases``: files of cases: one JSON object a line in, one answer a line out, wrong lines
  included
- ``columns``: texts in columns: how wide they are, what a narrow terminal leaves out, and how they
  are wrapped
- ``completion``: the verb ``completion``: what makes a shell complete verbs and options
- ``connection``: where the control plane is: the options every online verb shares, before and
  after its name
- ``contexts``: control planes that a person goes back to, by name: where each is, whom to trust,
  which token
- ``decisions``: how a decision is shown: the outcome, the shares, the nodes, and the whole trace
- ``doctor``: the verb ``doctor``: whether fedctl can ask its control planes, and if not, why
- ``drawing``: a decision drawn for the eye: the funnel of its clusters, and the shares as bars
- ``estimate``: the verb ``estimate``: how many replicas fit, from files or from the control plane
- ``file_options``: options that verbs on files share
- ``fleet``: verbs about member clusters: get, describe, apply; and the lists of everything else
- ``folders``: where fedctl finds its files, by the environment
- ``following``: lists that are asked for, and with ``-w`` go on
- ``history``: verbs about what was decided before: get decisions, history
- ``inputs``: what the offline verbs read: clusters, requests, options, each under its field path
- ``joining``: verbs about clusters that join: join-token, accept, reject, and get joiners
- ``kinds``: kinds of things that verbs list: which columns each has, and what may be said about
  its lists
- ``listing``: lists: rows of one kind, selected, sorted, and shown
- ``login``: verbs about where the control planes are: login, config
- ``members``: verbs that change a member cluster's standing: cordon, uncordon, delete, replace,
  revoke
- ``names``: names given on the command line: of objects, of the kinds that they are of, and with
  values
- ``objects``: objects that files hold for verbs that connect
- ``output``: how answers are shown: aligned tables for people, documents for programs
- ``plans``: verbs about plans: drain, and rebalance plan, show, list, approve, watch, stop
- ``pictures``: pictures of figures in pairs, as SVG
- ``progress``: how far long work is, on a terminal
- ``queueing``: verbs about what waits for room: get queue, suspend, resume, reschedule
- ``quota``: verbs about namespace quotas: set, list, delete
- ``refusals``: why a control plane could not be asked, and what to do
- ``replay``: the verb ``replay``: a decision, or all of a trace file, made again and compared
- ``reservations``: verbs about what bindings hold: describe binding, release, renew
- ``score``: the verb ``score``: which node a scheduler's configuration prefers for a pod, from
  files alone
- ``scoring_cases``: lines of scoring cases: nodes and a pod with the strategy to score them by,
  or a configuration
- ``selecting``: which rows of a list are shown: by labels, by what documents hold
- ``simulate``: the verb ``simulate``: decide bindings on clusters from files, without any server
- ``simulating``: what ``simulate`` answers: decisions on clusters from files, once or in virtual
  time
- ``times``: times and spans of time as people write them on the command line
- ``token``: verbs about tokens: create, list, revoke
- ``top``: the verb ``top``: how full clusters are, and what namespaces hold of them
- ``trace``: verbs about trace files: export
- ``trace_replays``: the replay of all that a trace file has
- ``virtual_time``: what ``simulate`` shows of clusters that fall silent and come back
- ``watch``: ``fedctl watch``: a line, or a document, for everything that happens, until it is
  interrupted
- ``what_if``: the verb ``what-if``: what would have been decided, from a trace file
- ``what_if_answers``: what ``what-if`` answers: figures of what was, and of what would have been
- ``workloads``: verbs about workloads: schedule, explain, delete
"""
