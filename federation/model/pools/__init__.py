"""What an agent's report says of free nodes: pools, cells, and the bounds they prove.

Pure; standard library and numpy only. Import the modules: this package offers no names itself.
"""
