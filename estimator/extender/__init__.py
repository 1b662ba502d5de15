"""kube-scheduler's HTTP extender: filter, prioritize, preempt and bind by this agent's picture.

Must not read Kubernetes' objects itself: what reads pods and what binds them is passed in.

- ``extender``: the four verbs of an extender, from the bytes of a request to the bytes of its
  answer
- ``server``: the extender's HTTP server: paths, limits, TLS, and errors as kube-scheduler takes
  them
- ``verdicts``: a judgement as an extender's answers: who is kept, who is not and why, points,
  victims
- ``wire``: what kube-scheduler posts to an extender and takes from it
"""
