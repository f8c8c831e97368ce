from __future__ import annotations

from typing import Any

import pytest
from tests.shardy.differential import canonical
from tests.shardy.module_ops import FAMILIES
from tests.shardy.modules import random_module

REGIONS = ("while", "case", "barrier", "manual", "named")
WRITTEN = (*REGIONS, "constraint", "reshard", "group", "constant", "expansion", "call")

FEATURES: dict[str, dict[str, Any]] = {
    "ops": dict(families=tuple(f for f in FAMILIES if f not in WRITTEN), length=12, uneven=True),
    "shardings": dict(sub_axes=True, replicated=True, priorities=0.3, unreduced=True, size_one_axes=True),
    "Shardy's ops": dict(constraints=True, reshards=True, groups=True, constants=True),
    "regions": dict(regions=REGIONS, constants=True),
    "edges": dict(regions=REGIONS, edges=True, sdy_constants=True),
    "functions": dict(functions=2, calls=True, scalars=True, meshes=2),
    "odd": dict(tokens=True, scalars=True, empty=True, inlined_meshes=True, functions=1, main="other"),
}


@pytest.mark.parametrize("features", FEATURES.values(), ids=FEATURES.keys())
def test_random_modules_verify(features: dict[str, Any]) -> None:
    for seed in range(8):
        assert canonical(random_module(seed, **features))


def test_a_seed_is_one_module() -> None:
    assert random_module(5, regions=REGIONS) == random_module(5, regions=REGIONS)
    assert random_module(5) != random_module(6)
