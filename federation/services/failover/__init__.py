"""Moving workloads off clusters that are lost, or that people want emptied.

- ``control``: how it stands, and the brake that people have
- ``evicting``: ends graceful evictions, or takes them back
- ``moving``: moves bindings off clusters, the most urgent first, no faster than may be
- ``running``: failover of one control plane: built of its settings, run, and left to others at
  its end
- ``watching``: looks who is silent, says who is lost and who is back, and has the rest done
"""
