"""Generated stubs of Karmada's estimator protocol; ``estimator.servers.karmada`` serves it."""
