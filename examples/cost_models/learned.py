"""A learned cost model: scikit-learn's gradient boosting on what steps were measured to take.

It learns the logarithm of seconds from what a step says of itself, and prices many steps in one call: one call per step
would spend its time in scikit-learn. Predictions of trees go up and down a little, so it learns under the constraint
that more bytes, messages and flops never cost less. Here it is trained on a machine's prices with noise, so that the
example runs anywhere; `eggshard.calibration.measuring` times the devices that you have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import program

from eggshard.calibration.samples import samples as steps_to_time
from eggshard.costmodel import Measured, StepColumns, StepInfo, preset

KINDS = ("local", "all-gather", "reduce-scatter", "all-reduce", "all-to-all", "collective-permute")


class Learned:
    """A cost model around a regressor with ``predict``."""

    def __init__(self, regressor: Any):
        self.regressor = regressor

    @classmethod
    def trained(cls, measured: Sequence[Measured]) -> Learned:
        from sklearn.ensemble import HistGradientBoostingRegressor

        steps = StepColumns.of([step for step, _ in measured])
        seconds = np.array([s for _, s in measured])
        grows = [1, 1, 1, 1, *[0] * (len(KINDS) + 2)]
        regressor = HistGradientBoostingRegressor(monotonic_cst=grows, min_samples_leaf=3, random_state=0)
        return cls(regressor.fit(features(steps), np.log(seconds)))

    def seconds_many(self, steps: StepColumns) -> np.ndarray:
        nothing = (steps.messages == 0) & (steps.flops == 0) & (steps.memory_bytes == 0)
        return np.where(nothing, 0.0, np.exp(self.regressor.predict(features(steps))))

    def seconds(self, step: StepInfo) -> float:
        return float(self.seconds_many(StepColumns.of([step]))[0])


def features(steps: StepColumns) -> np.ndarray:
    """``[steps, features]``: logarithms of the figures, the kind, the group's size, whether it is a product."""
    heads = np.array([
        [*(head.kind == kind for kind in KINDS), np.log2(head.group), head.op == "dot_general"] for head in steps.heads
    ], float)
    figures = [np.log1p(c) for c in (steps.wire_bytes, steps.messages, steps.flops, steps.memory_bytes)]
    return np.column_stack([*figures, heads[steps.head]])


def samples() -> list[Measured]:
    """What a calibration measures, with a machine's prices and noise for its times."""
    machine, rng = preset("h100-node"), np.random.default_rng(0)
    steps = [sample.step for sample in steps_to_time(8, [1 << p for p in range(10, 27)])]
    return [(step, machine.seconds(step) * float(np.exp(0.05 * rng.normal()))) for step in steps if step.kind in KINDS]


def main() -> None:
    try:
        model = Learned.trained(samples())
    except ImportError:
        print("this example learns with scikit-learn: pip install eggshard[examples]")
        return
    errors = [abs(model.seconds(step) / seconds - 1) for step, seconds in samples()]
    print(f"median error on what it learnt from: {100 * np.median(errors):.0f} %")
    program.compare(model, "as learned")


if __name__ == "__main__":
    main()
