"""Planning of programs of many equal layers: found, planned by two of them, and lifted back to all.

In: a program of hundreds of ops. Out: its plan, or None where layers do not repeat (`planning`).
"""
