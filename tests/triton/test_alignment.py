"""No op but conversions moves data between threads; types that say so and lie are found."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from tests.testing.kernel_interpreter.test_judging import SOURCES, compiled, elsewhere  # noqa: E402

from eggshard.errors import ProgramError  # noqa: E402
from eggshard.triton.alignment import check_layouts  # noqa: E402

#: Ops that put their results wherever they are to be.
FREE = ("ttg.convert_layout", "tt.make_range", "tt.splat", "ttg.local_load", "arith.constant", "tt.histogram", "tt.cat")


@pytest.mark.parametrize("name", SOURCES)
def test_types_that_lie_about_layouts_are_found(name: str) -> None:
    """One value at a time is said to lie elsewhere; the kernel runs all the same."""
    kernel = compiled(name, "sm80")["last"]
    values = [v for op in kernel.walk() if op.name not in FREE for v in op.results
              if v.tensor is not None and v.tensor.encoding is not None]
    for value in values[::1 + len(values) // 30]:
        kept = value.tensor
        assert kept is not None
        value.type = elsewhere(kept)
        with pytest.raises(ProgramError, match="different threads|encodings|registers of one thread|lies as"):
            check_layouts(kernel)
        value.type = kept
