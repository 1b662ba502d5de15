"""Reading Kubernetes: its JSON, dumps of it, and the live API.

- ``client``: the API server: credentials, requests, calls from threads, errors as the error tree
- ``discovery``: which APIs a cluster serves: two requests where the server aggregates
- ``dump``: a cluster from a file: what ``kubectl get nodes,pods -A -o json`` prints
- ``incoming``: pods of one scheduler as the extender and the binder judge them, and their watch
- ``leases``: a lease of the API server, by which one of several processes is the one that works
- ``objects``: Kubernetes' JSON as structs with only the fields that are needed
- ``quotas``: ResourceQuotas as what they leave
- ``reading``: reads one resource: all there is, and the changes after a version
- ``secret``: a Secret that keeps one value: what an agent in a pod must not lose
- ``translate``: nodes and pods as values: whom pods run for, and their requests, shared by shape
- ``watch``: follows one resource in a thread: list, then watch, for ever; started anew and stopped
- ``writing``: what is written to the API server: bindings, events at pods, their condition
"""
