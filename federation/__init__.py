"""The control plane of fedsched.

Must stay empty of imports: agents pay for whatever is imported here.
"""
