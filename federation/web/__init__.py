"""Plain HTTP beside gRPC: the CA certificate, liveness and readiness.

Must not answer anything that needs a credential.

- ``connections``: HTTP connections that do not last
- ``server``: an HTTP server as a guest on a loop that belongs to somebody else
- ``site``: the pages of the plain HTTP side: /ca.pem, /healthz and /readyz
"""
