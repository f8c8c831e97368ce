"""Model of XLA's CPU back end as far as memory depends on it: simplification, fusion, buffers and their packing.

In: a device program. Out: bytes of temporaries. The rules were found from optimised modules, and the memory bench
holds them against the compiler's own analysis.
"""
