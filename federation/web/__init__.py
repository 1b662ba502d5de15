"""Plain HTTP beside gRPC: the CA certificate, liveness and readiness.

Must not answer anything that needs a credential.
"""
