"""The context of one planning task: a program, its mesh, prices, routes and limits."""

from __future__ import annotations

import copy
from functools import cached_property

from eggshard.costmodel.pricing import Pricer
from eggshard.costmodel.protocol import CostModel
from eggshard.limits import Deadline, Limits
from eggshard.program.attributes import Attributes
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement, replicated
from eggshard.program.program import Program
from eggshard.program.sharding import Sharding
from eggshard.program.types import TensorType, is_float
from eggshard.reshard.routes import Router
from eggshard.reshard.submesh import SubmeshRouter
from eggshard.reshard.window_routes import WindowRouter
from eggshard.spmd.boundaries import evenly
from eggshard.spmd.manual import free_mesh

#: Reductions whose result depends on the order for floating-point numbers, or, of a maximum or minimum, on whether a
#: back end's collective keeps NaN (XLA's all-reduce on CPU does not).
_INEXACT = ("add", "mul", "max", "min")


class Context:
    """The fixed part of planning a program, or the body of a manual computation in it.

    mesh: what steps run on. free: the mesh of the axes that placements may name: all of them, except inside a manual
    computation, whose own axes its author has used. outer: of such a body, the context around it, whose prices hold.
    deadline: when all of the planning ends; unless given, after the limits' seconds.
    """

    def __init__(self, program: Program, model: CostModel, limits: Limits, exact: bool,
                 outer: Context | None = None, free: Mesh | None = None, deadline: Deadline | None = None):
        self.program, self.model, self.limits, self.exact = program, model, limits, exact
        self.mesh: Mesh = program.mesh
        self.free: Mesh = program.mesh if free is None else free
        self.outer = outer
        self.deadline = Deadline(limits.seconds) if deadline is None else deadline
        self.pricer: Pricer = outer.pricer if outer else Pricer(model, self.mesh)
        self.router = self._router()

    def _router(self) -> Router:
        if self.outer:
            return SubmeshRouter(self.mesh, self.free, self.pricer, max_rounds=self.limits.permutes)
        return WindowRouter(self.mesh, self.pricer, max_rounds=self.limits.permutes)

    def of(self, program: Program) -> Context:
        """The context of another program on the same mesh, under the same cost model and limits."""
        return Context(program, self.model, self.limits, self.exact, deadline=self.deadline)

    def priced_by(self, pricer: Pricer) -> Context:
        """This context under other prices."""
        other = copy.copy(self)
        other.pricer = pricer
        other.router = other._router()
        return other

    def within(self, attributes: Attributes) -> Context:
        """The context of the body of a manual computation with these attributes."""
        return Context(
            self.program, self.model, self.limits, self.exact, self, free_mesh(self.free, attributes), self.deadline)

    def resolve(self, sharding: Sharding | None, type_: TensorType) -> Placement:
        """The placement that a stated sharding asks for; replicated where nothing is stated."""
        return replicated(type_.shape) if sharding is None else sharding.to_placement(self.free, type_)

    def boundary(self, sharding: Sharding | None, type_: TensorType) -> Placement:
        """The placement of an input or output, which lies evenly: axes that do not divide a dimension are dropped."""
        placement = self.resolve(sharding, type_)
        if placement.partial:
            placement = Placement(placement.dims)
        return evenly(self.mesh, type_, placement)

    @cached_property
    def inputs(self) -> tuple[Placement, ...]:
        """Where the program's inputs lie."""
        p = self.program
        return tuple(self.boundary(s, t) for s, t in zip(p.input_shardings, p.input_types, strict=True))

    def partial_allowed(self, dtype: str, monoid: str) -> bool:
        """Whether partial values may stay on different devices: under ``exact`` not where that may show."""
        return not (self.exact and monoid in _INEXACT and is_float(dtype))
