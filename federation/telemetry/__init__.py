"""Metrics as Prometheus reads them.

Must not count anything: it reads what others count.

- ``families``: the families of metrics, out of what is counted
- ``measured``: what is counted where, in one control plane
- ``page``: the page of metrics, made when it is asked for, and not more often than once a second
"""
