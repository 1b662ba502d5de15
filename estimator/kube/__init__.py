"""Kubernetes' API server over one session, its JSON, and dumps of it.

- ``access``: the address and the credentials: a service account's, or those of a kubeconfig
- ``client``: requests over one session, and errors as the error tree
- ``decoding``: lists and events as values; an unreadable object harms no other
- ``discovery``: which APIs a cluster serves: two requests where the server aggregates
- ``dump``: a cluster from a file: what ``kubectl get nodes,pods -A -o json`` prints
- ``events``: events at objects, as binder and bridge write them
- ``incoming``: pods of one scheduler as the extender and the binder judge them
- ``informer``: follows one resource in one task: list, then watch, for ever
- ``lease``: the lease by which one of several processes works
- ``objects``: Kubernetes' JSON as structs with only the fields that are needed
- ``quotas``: ResourceQuotas as what they leave
- ``secret``: a Secret that keeps one value: what an agent in a pod must not lose
- ``translate``: nodes and pods as values: whom pods run for, and their requests, shared by shape
- ``writes``: what is written to the API server: bindings, events at pods, their condition
"""
