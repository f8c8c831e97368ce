"""Choosing the shardings of a program's inputs and outputs, where its author leaves them open.

*In*: a program, of whose ends some are open (`ends`). *Out*: the same program with all of them stated, which is then
planned like any other; and a bound of what any choice costs.

The choice is part of the selection problem (`stores`): an open input is a class that may be had at any of its
placements, and what is fed back is needed where it comes from.
"""
