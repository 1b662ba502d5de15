"""``fedctl``, the person's tool. One module per group of verbs.

Must not compute answers: the API, or the same pure code it runs, does.
"""
