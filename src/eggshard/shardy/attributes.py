"""Shardy's attributes as values, which read and write the text of Shardy's own printer.

Shardings are `Sharding` values paired with the mesh that their text names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from eggshard.program.axes import Axes
from eggshard.program.codec import split_top_level
from eggshard.program.cursor import read_axes, read_exchanges
from eggshard.program.sharding import read_dimensions
from eggshard.program.tensor_sharding import TensorSharding


def read_per_value(text: str) -> tuple[TensorSharding, ...]:
    """The entries of ``#sdy.sharding_per_value<[<@mesh, [...]>, ...]>``."""
    return tuple(TensorSharding.parse(part) for part in split_top_level(text[text.index("[") + 1 : text.rindex("]")]))


def per_value_text(shardings: Iterable[TensorSharding]) -> str:
    """``#sdy.sharding_per_value<[...]>``."""
    return f"#sdy.sharding_per_value<[{', '.join(s.body() for s in shardings)}]>"


def axes_text(axes: Axes) -> str:
    """``{"x", "y":(1)2}``."""
    return f"{{{', '.join(map(str, axes))}}}"


def axis_list_text(axes: Axes) -> str:
    """The attribute of an all-reduce's axes."""
    return f"#sdy<axis_ref_list{axes_text(axes)}>"


def axis_lists_text(dims: Iterable[Axes]) -> str:
    """The attribute of axes per dimension, of gathers, slices and reduce-scatters."""
    return f"#sdy<list_of_axis_ref_lists[{', '.join(map(axes_text, dims))}]>"


@dataclass(frozen=True, slots=True)
class Exchange:
    """One parameter of an all-to-all: these axes move from the end of dimension ``source`` to that of ``target``."""

    axes: Axes
    source: int
    target: int

    def __str__(self) -> str:
        return f"{axes_text(self.axes)}: {self.source}->{self.target}"


def exchanges_text(exchanges: Sequence[Exchange]) -> str:
    """The attribute of an all-to-all's parameters."""
    return f"#sdy<all_to_all_param_list[{', '.join(map(str, exchanges))}]>"


def read_axis_list(text: str) -> Axes:
    """The axes of ``#sdy<axis_ref_list{...}>`` or ``#sdy<manual_axes{...}>``."""
    return read_axes(text[text.index("{") : text.rindex("}") + 1])


def read_axis_lists(text: str) -> tuple[Axes, ...]:
    """The axes per dimension of ``#sdy<list_of_axis_ref_lists[...]>``."""
    return tuple(d.axes for d in read_dimensions(text[text.index("[") : text.rindex("]") + 1]))


def read_all_to_all(text: str) -> tuple[Exchange, ...]:
    """The parameters of ``#sdy<all_to_all_param_list[...]>``."""
    return tuple(Exchange(*found) for found in read_exchanges(text[text.index("[") : text.rindex("]") + 1]))
