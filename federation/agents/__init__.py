"""The agents' streams: who is connected, what was asked, what was answered.

Must not store anything: reports go to the services.
"""
