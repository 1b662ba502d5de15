"""The border: documents, messages of the wire, and the model's values, turned into each other.

Checks everything that comes in and names every broken rule; must not decide or store anything.
"""
