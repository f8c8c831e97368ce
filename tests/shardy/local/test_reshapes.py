import itertools
import math
import random

import numpy as np
import pytest
from tests.shardy.local.meaning import assert_same_meaning

from eggshard import shardy
from eggshard.shardy.local.reshapes import local_axes

SIZES = {"a": 2, "b": 3, "c": 2}


def held(shape, axes, position):
    """The flat indices of a shard, in order; None if a dimension is cut unevenly."""
    cuts = []
    for n, names in zip(shape, axes, strict=True):
        place, count = 0, 1
        for name in names:
            place, count = place * SIZES[name] + position[name], count * SIZES[name]
        if n % count:
            return None
        cuts.append(slice(place * n // count, (place + 1) * n // count))
    return np.arange(math.prod(shape)).reshape(shape)[tuple(cuts)].reshape(-1).tolist()


def random_axes(rng, shape):
    names, out = rng.sample(sorted(SIZES), rng.randint(1, 3)), [[] for _ in shape]
    for name in names:
        out[rng.randrange(len(shape))].append(name)
    return [tuple(dim) for dim in out]


@pytest.mark.parametrize("seed", range(200))
def test_devices_hold_the_same_elements(seed):
    rng = random.Random(seed)
    flat = rng.choice([12, 24, 36, 60])
    shapes = []
    for _ in range(2):
        first = rng.choice([n for n in range(1, flat + 1) if flat % n == 0])
        second = rng.choice([n for n in range(1, flat // first + 1) if flat // first % n == 0])
        shapes.append(rng.sample([first, second, flat // first // second], 3))
    axes = [random_axes(rng, shape) for shape in shapes]
    kept = local_axes(tuple(shapes), tuple(axes), SIZES)
    for side in (0, 1):
        for stays, given in zip(kept[side], axes[side], strict=True):
            assert stays == given[: len(stays)]
    used = [sorted(name for dim in kept[side] for name in dim) for side in (0, 1)]
    assert used[0] == used[1]
    for position in itertools.product(*(range(n) for n in SIZES.values())):
        shards = [held(shapes[side], kept[side], dict(zip(SIZES, position, strict=True))) for side in (0, 1)]
        assert None in shards or shards[0] == shards[1]


def test_what_agrees_stays():
    axes = [("a",), ("b",), ()], [("a",), ("b",)]
    assert local_axes(((2, 6, 5), (2, 30)), axes, SIZES) == axes
    axes = [("a",), ("b",)], [("a", "b")]
    assert local_axes(((2, 6), (12,)), axes, SIZES) == axes
    assert local_axes(((4, 6), (24,)), axes, SIZES) == ([("a",), ()], [("a",)])
    assert local_axes(((7, 5), (35,)), ([("a",), ()], [("a",)]), SIZES) == ([("a",), ()], [("a",)])


def test_what_does_not_agree_is_made_whole():
    text = """sdy.mesh @mesh = <["x"=4, "y"=2]>
    func.func @main(%a: tensor<11x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"y"}]>}) -> tensor<2x22xf32> {
      %0 = stablehlo.reshape %a {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"y"}, {}]>]>}
        : (tensor<11x4xf32>) -> tensor<2x22xf32>
      return %0 : tensor<2x22xf32>
    }"""
    ours = shardy.transform(text, "resolve-permutation-factors")
    assert ours.count("sdy.reshard") == 2
    assert "reshape %0 {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}, {}]>" in ours
    assert_same_meaning(text, ours)
