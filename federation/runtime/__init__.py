"""What both programs need of their process: settings, waiting, files, logs, the terminal.

- ``addresses``: HOST:PORT, where a server listens or is reached
- ``allocator``: how the C library keeps memory that was freed: it gives back what a burst of big
  calls needed
- ``backoff``: waiting between tries: exponential, with full jitter, up to a cap
- ``batching``: writes together what several callers bring within a moment
- ``bounded_calls``: calls of functions of others that must not keep their caller for ever
- ``connections``: which connections of a server are open, and that no address has many
- ``database_url``: addresses of databases: which are taken, and how they are shown without their
  secrets
- ``files``: directories of our own, and files that appear whole, with their mode from the first
  moment on
- ``flags``: the flags of a command, one for every setting of its program
- ``interruptions``: ctrl-C and its kin: let in where a program can stop, kept for later where it
  must not
- ``logs``: how log records look: one line of text or one JSON object, fields beside the message
- ``native_libraries``: what libraries below Python are told: gRPC's core writes no lines, OpenBLAS
  starts no threads
- ``options``: settings of a program as one table: flags, environment, file, default, and where each
  value came from
- ``measures``: how often things took how long: plain numbers that cost next to nothing to add to
- ``settings``: settings of the control plane, each declared once, and the rules between them
- ``terminal``: what the programs print: the one place where it leaves them, and where it is made
  printable
- ``tokens``: bearer tokens as they are written in files and variables, before they go into a header
- ``typed_values``: typed values from JSON, and from what JSON was read into, in any thread
- ``yaml_texts``: values as YAML that people can read
"""

from __future__ import annotations
