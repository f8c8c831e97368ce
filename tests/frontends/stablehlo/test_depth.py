"""Modules whose regions or calls are nested deeply: planned, or refused by name."""

from __future__ import annotations

import numpy as np
import pytest

import eggshard as es
from eggshard.errors import ProgramError


def nested(levels: int) -> str:
    lines = ["func.func @main(%c: tensor<i1>, %x: tensor<8xf32>) -> tensor<8xf32> {"]
    lines += [f'%r{i} = "stablehlo.if"(%c) ({{' for i in range(levels)]
    lines += ["%z = stablehlo.add %x, %x : tensor<8xf32>", "stablehlo.return %z : tensor<8xf32>"]
    for i in reversed(range(levels)):
        lines += ["}, { stablehlo.return %x : tensor<8xf32> }) : (tensor<i1>) -> tensor<8xf32>",
                  f"{'stablehlo.' if i else ''}return %r{i} : tensor<8xf32>"]
    return "\n".join([*lines, "}"])


@pytest.mark.parametrize("levels", [65, 300, 2000])
def test_deep_nests_are_refused(levels: int) -> None:
    with pytest.raises(ProgramError, match="nested"):
        es.optimize(nested(levels))


def test_nests_of_usual_depth_are_planned() -> None:
    plan, x = es.optimize(nested(30)), np.ones(8, np.float32)
    np.testing.assert_array_equal(plan.run(np.array(True), x)[0], 2 * x)
