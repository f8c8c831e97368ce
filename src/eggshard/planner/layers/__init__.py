"""Planning of programs of many equal parts: found, planned by two of each row, and lifted back to all.

In: a program of hundreds of ops. Out: its plan, or None where too little of it repeats (`planning`).
"""
