"""Convolutions in bodies of loops and branches, as XLA:CPU has fast code for them.

XLA:CPU calls its library for convolutions whose features come last. It brings others into that form in a program's
entry computation alone (its ``ConvCanonicalization``, JAX 0.10.2): in a loop they run as plain loops, 10 times slower
where features come first, and 80 times where filters' gradients are computed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eggshard.emit.body_text import Value
from eggshard.emit.indexed_text import IndexedText
from eggshard.program.attributes import Attributes
from eggshard.steps.steps import Local


def features_last(text: IndexedText, action: Local, operands: Sequence[Value]) -> list[Value]:
    """Append a convolution as one with batch first and features last, between transposes."""
    given = action.attributes["dimension_numbers"]

    def dims(side: str, first: Sequence[str], then: Sequence[str]) -> list[int]:
        named = [[given[f"{side}_{name}_dimension"] for name in names] for names in (first, then)]
        return [*named[0], *given[f"{side}_spatial_dimensions"], *named[1]]

    images, results = (dims(side, ["batch"], ["feature"]) for side in ("input", "output"))
    filters = dims("kernel", [], ["input_feature", "output_feature"])
    last = len(results) - 1
    numbers: dict[str, int | tuple[int, ...]] = {
        "kernel_spatial_dimensions": tuple(range(last - 1)), "kernel_input_feature_dimension": last - 1,
        "kernel_output_feature_dimension": last}
    for side in ("input", "output"):
        numbers |= {f"{side}_batch_dimension": 0, f"{side}_spatial_dimensions": tuple(range(1, last)),
                    f"{side}_feature_dimension": last}
    (type_,) = action.result_types
    like = Local(action.name, action.attributes.updated(dimension_numbers=Attributes(numbers)),
                 (type_.with_shape(tuple(type_.shape[d] for d in results)),))
    x, kernel = operands
    (made,) = text.local(like, [text.transpose(x, images), text.transpose(kernel, filters)])
    return [text.transpose(made, np.argsort(results).tolist())]
