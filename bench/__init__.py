"""Benchmarks: eggshard's plans beside XLA's SPMD partitioner and Shardy's own pass pipeline.

Run from the repository's root: ``python -m bench.peers reshard`` or ``dense`` shows what the peers do today.
"""
