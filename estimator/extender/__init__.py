"""kube-scheduler's HTTP extender: filter, prioritize, preempt and bind by this agent's picture.

Must not read Kubernetes' objects itself: what reads pods and what binds them is passed in.
"""
