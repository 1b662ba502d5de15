"""Callers that others vouch for: who they are, by what somebody else has signed.

Must not know tokens of our own, nor what a role may do.

- ``certificates``: callers by client certificates, which the TLS handshake has verified
- ``configured``: the authenticators that the settings ask for
- ``fetching``: documents of identity providers over HTTP: bounded in bytes and time, never
  redirected
- ``keys``: the keys that an issuer signs with: fetched off the event loop, kept, and rotated
- ``oidc``: callers by the JWTs of one issuer
- ``subjects``: who others vouch for, as a caller; and those that were found to be so lately
- ``token_review``: callers by tokens of a Kubernetes cluster's service accounts: its API server
  says whose they are
"""
