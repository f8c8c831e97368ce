"""The cache that forgets what was asked for longest ago."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from eggshard.engines.jax.caches import LruCache


def test_what_was_asked_for_longest_ago_goes_first() -> None:
    cache: LruCache[int] = LruCache(2)
    made = []

    def make(key: int) -> int:
        made.append(key)
        return -key

    for key in (1, 2, 1, 3, 1, 2):
        assert cache.get(key, lambda key=key: make(key)) == -key
        assert len(cache) <= 2
    assert made == [1, 2, 3, 2]
    assert cache.peek(3, 0) == 0 and cache.peek(1, 0) == -1
    cache.get(4, lambda: -4)
    assert cache.peek(1, 0) == 0, "looking makes nothing younger"
    cache.clear()
    assert len(cache) == 0


def test_threads_share_it() -> None:
    cache: LruCache[int] = LruCache(3)

    def ask(i: int) -> bool:
        return cache.get(i % 7, lambda: i % 7) == i % 7

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(2000)))
    assert len(cache) == 3
