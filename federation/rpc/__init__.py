"""The gRPC face: servicers, who may call what, deadlines, errors as statuses.

Must not decide anything: a servicer reads a message, calls one service and writes the answer.
"""
