"""The front-end protocol, and the calling convention that a plan keeps of its source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from eggshard.program.program import Program
from eggshard.program.types import TensorType


class CallingConvention(Protocol):
    """How the arguments and results of a source relate to the inputs and outputs of its Program.

    A plan carries it and asks no more of it than this; an engine that runs plans within the framework that the source
    is of knows the class, and may ask it for anything. It is no part of a plan's JSON: `Plan.from_json` takes it from
    the source that it is given.
    """

    @property
    def name(self) -> str:
        """The name of the function, for messages."""

    @property
    def device_ids(self) -> tuple[int, ...]:
        """The numbers of the devices that the source was written for, in the order of its mesh; () if it says none."""

    def flattened(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
        """The arrays that are the Program's inputs; LoweringError for arguments that the source does not take."""

    def rebuilt(self, outputs: Sequence[Any]) -> Any:
        """What the caller gets, from the arrays that are the Program's outputs."""

    def resized(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> CallingConvention:
        """The convention on other devices, where inputs and outputs have these types and lie as a plan has them.

        LoweringError where it cannot be, as with constants of another size.
        """


@runtime_checkable
class Frontend(Protocol):
    """One kind of source, and how it is read. Derive from it: ``name``, ``accepts`` and ``read`` are yours to give.

    name: what the sources are, for messages, such as "StableHLO text".
    """

    name: str

    def accepts(self, source: Any) -> bool:
        """Whether ``source`` is of this kind. Any object is asked about, so nothing heavy may be imported to tell."""

    def read(self, source: Any) -> Program:
        """The Program that it means, its inputs and outputs being those of the calling convention.

        The ``location`` of an op says where its author wrote it. ProgramError for malformed sources, ShardingError for
        shardings that do not fit.
        """

    def calling_convention(self, source: Any) -> CallingConvention | None:
        """How it is called; None: with one array for each input, and gives a tuple of the outputs."""
        return None

    def devices(self, source: Any) -> Sequence[Any]:
        """The devices that it was lowered for, as JAX has them; () if it names none."""
        return ()


def is_of_class(source: Any, package: str, *names: str) -> bool:
    """Whether an object's class, or one that this derives from, is so named in a package, told without importing it."""
    return any(c.__name__ in names and c.__module__.partition(".")[0] == package for c in type(source).__mro__)
