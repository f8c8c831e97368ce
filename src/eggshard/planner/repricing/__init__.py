"""Searches under several prices, where what plans cost is no sum of prices of steps.

In: the stages of planning under given prices. Out: the cheapest plan found, with a bound of all. Machines that compute
while they communicate weigh what steps hold (`overlapped`); all-reduces that share a latency pay none (`buckets`).
"""
