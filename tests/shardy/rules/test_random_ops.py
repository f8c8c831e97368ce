from __future__ import annotations

import pytest
from tests.shardy.differential import assert_agrees
from tests.shardy.rules import rich_ops, simple_ops
from tests.shardy.rules.body import Body

FAMILIES = {
    family.__name__: family
    for family in (
        simple_ops.pointwise, simple_ops.batch_norm, simple_ops.movement, simple_ops.reshape, simple_ops.slicing,
        simple_ops.concatenate, simple_ops.collectives, rich_ops.dot, rich_ops.dot_general, rich_ops.convolution,
        rich_ops.reduce, rich_ops.reduce_window, rich_ops.select_and_scatter, rich_ops.sort, rich_ops.gather,
        rich_ops.scatter, rich_ops.linalg, rich_ops.fft, rich_ops.rng_bit_generator, rich_ops.custom_calls)
}


def assert_rules_agree(family: str, seed: int, count: int) -> None:
    """A module of ``count`` random draws has the same rules here and in jaxlib, conservative ones too."""
    body = Body(seed)
    for _ in range(count):
        FAMILIES[family](body)
    for option in ("", "{conservative-propagation=true}"):
        assert_agrees(body.module(), f"populate-op-sharding-rules{option}")


@pytest.mark.parametrize("family", FAMILIES)
def test_rules_of_random_ops_are_shardys(family: str) -> None:
    assert_rules_agree(family, 1, 60)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
@pytest.mark.parametrize("family", FAMILIES)
def test_rules_of_many_random_ops_are_shardys(family: str, seed: int) -> None:
    assert_rules_agree(family, seed, 300)
