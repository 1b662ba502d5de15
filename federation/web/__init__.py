"""Plain HTTP beside gRPC: the CA certificate, liveness and readiness, and the page for people.

- ``server``: the HTTP ports of a control plane, as guests on a loop that belongs to somebody else
- ``site``: the addresses of the plain HTTP side: /ca.pem, /healthz, /readyz, and what else is to
  be there
- ``ui``: the page: what people look at when they would rather look than type
"""
