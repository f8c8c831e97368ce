"""Labels of the values and steps of a device program, for people."""

from __future__ import annotations

from typing import NamedTuple

from eggshard.program.placement import Placement
from eggshard.program.types import TensorType


class Held(NamedTuple):
    """What the shards of a plan value are to people: a tensor of the program, and how it lies on the mesh.

    cls: the class of the selection problem (-1: of none). value: the number of a value of the program's region that
    it equals (-1: the algebra made it). type: of the whole tensor.
    """

    cls: int
    value: int
    type: TensorType
    placement: Placement


class Origin(NamedTuple):
    """What a step was chosen for: a class of a selection problem.

    problem: 0 is that of the program, others are those of bodies of loops, branches and manual computations; -1: there
    was nothing to choose. cls: the class there. op: of a body, by which op and where its author wrote that.
    """

    problem: int
    cls: int = -1
    op: str = ""
