"""Memory: the bytes per device that a compiled device program takes, and plans that take fewer.

In: a device program. Out: predicted bytes (`prediction`), as XLA's back end for CPUs allocates them (`xla_cpu`), and
the cheapest plan within a limit (`search`), by prices on bytes or by loops over strips of arrays (`strips`).

What engines allocate themselves is laid out by `engines.workspace`.

`python -m bench memory` shows what a change of its constants does.
"""
