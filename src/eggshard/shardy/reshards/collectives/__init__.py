"""Reshards as Shardy's collectives: chosen as Shardy does (`greedy`) or planned (`planned`), then simplified.

In: a module with `sdy.reshard`. Out: the module with collectives in their place (`conversion`). What each collective
does to a sharding stands in `kinds`.
"""
