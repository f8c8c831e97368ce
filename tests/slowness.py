"""Which parameters of a test `make test` leaves to `make test-all`."""

from collections.abc import Iterable
from typing import Any

import pytest


def some(values: Iterable[Any], fast: int, *, rows: bool = False) -> list[Any]:
    """The values as parameters, of which so many, evenly spread, stay in `make test`; the others are marked slow.

    With ``rows`` each value is a tuple of one value per name of the parametrization.
    """
    given = list(values)
    if not 0 < fast < len(given):
        raise ValueError(f"{fast} of {len(given)} values are not some of them")
    kept = {(2 * i + 1) * len(given) // (2 * fast) for i in range(fast)}
    return [pytest.param(*(value if rows else (value,)), marks=() if i in kept else pytest.mark.slow)
            for i, value in enumerate(given)]
