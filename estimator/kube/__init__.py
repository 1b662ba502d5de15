"""Reading Kubernetes: its JSON, dumps of it, and the live API.

- ``access``: the API server as the official client reaches it: kubeconfig or in-cluster, no
  hidden retries
- ``calls``: calls to one API server from threads: with fresh credentials, and failures as the error
  tree
- ``discovery``: which APIs a cluster serves: two requests where the server aggregates, else one
  per group
- ``dump``: a cluster from a file: what ``kubectl get nodes,pods -A -o json`` prints
- ``incoming``: Kubernetes' pods as the extender and the binder judge them
- ``leases``: a lease of the API server, by which one of several processes is the one that works
- ``live``: a member cluster read from its API server: three watchers, and the loop they report to
- ``loop``: watchers and the loop they report to: threads that are started, started anew and
  stopped
- ``objects``: Kubernetes' JSON as structs with only the fields that are needed; msgspec skips the
  others
- ``origins``: whom pods run for, found without reading any object but the pods themselves
- ``pending``: the pods of one scheduler, bound or not, told to a binder as they come and go
- ``quotas``: Kubernetes' ResourceQuotas as what they leave
- ``reading``: reads one resource of the API server: all there is, and the changes after a version
- ``secret``: a Secret that keeps one value: what an agent in a pod must not lose
- ``shapes``: what pods ask for, worked out once for all pods that ask for the same
- ``translate``: Kubernetes' nodes and pods as the values capacity depends on
- ``watch``: follows one resource of the API server in a thread of its own: list, then watch, for
  ever
- ``writing``: what is written to the API server: bindings, events at pods, their condition, the
  binder's lease
"""
