"""Reading Kubernetes: its JSON, dumps of it, and the live API."""
