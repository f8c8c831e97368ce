"""Generated programs after jaxlib's steps, localised by us and by jaxlib: run as the unsharded program.

Nothing of ours fails or differs. jaxlib's pass fails on some of them, and some of what it makes computes something
else, by what `test_ops.py` and `test_collectives.py` pin down: those programs tell nothing of it.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.shardy.local.programs import localised_by_peer, ready
from tests.shardy.modules import random_module
from tests.shardy.running import assert_runs_equal

from eggshard import shardy
from eggshard.errors import ShardingError

KINDS: dict[str, dict[str, Any]] = {
    "ops": {},
    "sub-axes": {"sub_axes": True, "stated": 0.7},
    "regions": {"regions": ("while", "case", "barrier")},
    "manual": {"regions": ("manual",), "length": 4},
    "calls": {"functions": 2, "calls": True},
    "device orders": {"functions": 2, "calls": True, "meshes": 2},
    "odd": {"constants": True, "scalars": True, "empty": True, "size_one_axes": True},
    "lookups": {"families": ("gather", "dynamic_slice", "dynamic_update_slice", "sort", "iota", "elementwise")},
    "windows": {"families": ("convolution", "reduce_window", "reverse", "pad", "dot", "elementwise")},
}
#: Programs in which jaxlib's pass does something that is known to be wrong.
KNOWN = (
    r'sdy\.all_slice[^\n]*"\w+":\(\d+\)', r'sdy\.collective_permute[^\n]*"\w+":\(\d+\)',
    r"applies stablehlo\.(maximum|minimum|multiply)", r"stablehlo\.dynamic_update_slice",
)


#: What jaxlib's steps leave in some programs, which no local program computes.
LEFT_OVER = "run resolve-permutation-factors|must be replicated; reshard it first|only a permute changes the mesh"


def check(kind: str, seed: int) -> str:
    """What became of one program."""
    text = random_module(seed, **KINDS[kind])
    whole = ready(text)
    if whole.failure:
        return "jaxlib's steps fail"
    try:
        local = shardy.transform(whole.text, "convert-global-to-local")
    except ShardingError as error:
        assert re.search(LEFT_OVER, str(error)), error
        return "jaxlib's steps leave what needs other shards"
    assert_runs_equal(whole.text, local, text, seed)
    peer = localised_by_peer(whole.text)
    if peer.failure:
        return "jaxlib's pass fails"
    if any(re.search(pattern, whole.text) for pattern in KNOWN):
        return "jaxlib's pass is known to differ"
    assert_runs_equal(whole.text, peer.text, text, seed, nans=(False,))
    return "equal"


@pytest.mark.parametrize("kind", KINDS)
def test_generated_programs(kind: str) -> None:
    found = [check(kind, seed) for seed in range(6)]
    assert sum(not f.startswith("jaxlib's steps") for f in found) >= 4


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_more_generated_programs(kind: str) -> None:
    found = [check(kind, seed) for seed in range(6, 60)]
    assert sum(not f.startswith("jaxlib's steps") for f in found) >= 35
