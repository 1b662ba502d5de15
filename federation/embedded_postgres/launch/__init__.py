"""A program of its own: starts PostgreSQL so that it cannot outlive who asked for it.

Must not import anything of ours: it runs alone, before and outside the application.
"""
