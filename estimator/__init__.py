"""The estimator agent of fedsched, one per member cluster.

Must stay empty of imports.
"""
