"""Searches under several prices, where what plans cost is no sum of prices of steps, or is not all that matters.

In: the stages of planning under given prices. Out: the cheapest plan found, with a bound of all. Machines that compute
while they communicate weigh what steps hold (`overlapped`); all-reduces that share a latency pay none (`buckets`);
plans that compute much for little pay more (`thrift`). What plans hold at least is bounded (`memory_bound`), and
`tradeoff` finds the front of time and memory.
"""
