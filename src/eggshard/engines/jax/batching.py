"""Planned functions under `jax.vmap`: the batched program is planned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.custom_batching import custom_vmap

from eggshard.engines.jax.caches import LruCache
from eggshard.engines.jax.gradient import Planned


def with_batching(function: Planned, static: Any, tree: Any) -> Callable[..., Any]:
    """The function of the dynamic leaves, some of which are batched."""
    planned: LruCache[Planned] = LruCache(function.cache_size)

    def program(*leaves: Any) -> Any:
        args, kwargs = function.rebuild(static, jax.tree.unflatten(tree, leaves))
        return function.fun(*args, **kwargs)

    def batched(axes: tuple[int | None, ...]) -> Planned:
        made = jax.vmap(program, axes)
        made.__name__ = f"{function.__name__}_batched"
        return function.derived(made, {})

    def call(*leaves: Any) -> Any:
        trees: list[Any] = []  # of the results; they may hold what was traced, as pullbacks do, so the latest is meant

        def flat(results: Any) -> list[Any]:
            found: list[Any]
            found, out_tree = jax.tree.flatten(results)
            trees.append(out_tree)
            return found

        def rule(_: int, which: Sequence[bool], *leaves: Any) -> tuple[list[Any], list[bool]]:
            axes = tuple(0 if each else None for each in which)
            found = flat(planned.get(axes, lambda: batched(axes))(*leaves))
            return found, [True] * len(found)

        unbatched = custom_vmap(lambda *leaves: flat(program(*leaves)))
        unbatched.def_vmap(rule)
        found = unbatched(*leaves)
        return jax.tree.unflatten(trees[-1], found)

    return call
