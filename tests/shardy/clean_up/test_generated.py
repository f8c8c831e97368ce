"""The clean-up passes leave the text that jaxlib's leave, on generated modules."""

from __future__ import annotations

from typing import Any

import pytest
from tests.shardy.clean_up.features import FEATURES
from tests.shardy.differential import assert_agrees
from tests.shardy.modules import random_module

MODULES = 16


@pytest.mark.parametrize("name, features", FEATURES.items(), ids=FEATURES.keys())
def test_agrees_on_generated_modules(name: str, features: list[dict[str, Any]]) -> None:
    for seed in range(MODULES):
        assert_agrees(random_module(seed, **features[seed % len(features)]), name)


@pytest.mark.slow
@pytest.mark.parametrize("name, features", FEATURES.items(), ids=FEATURES.keys())
def test_agrees_on_more_generated_modules(name: str, features: list[dict[str, Any]]) -> None:
    for seed in range(MODULES, 300):
        for kind in features:
            assert_agrees(random_module(seed, **kind), name)
