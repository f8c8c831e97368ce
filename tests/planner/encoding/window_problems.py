"""Stencils along a line, and what the search looks at for them."""

from __future__ import annotations

from eggshard.costmodel import AlphaBeta, CostModel
from eggshard.egraph.graph import EGraph
from eggshard.egraph.saturate import saturate
from eggshard.frontends.builder import ProgramBuilder, Tensor
from eggshard.limits import Limits
from eggshard.planner.bodies import plans_of
from eggshard.planner.context import Context
from eggshard.planner.encoding.encode import Encoder, Encoding
from eggshard.planner.encoding.views import find_views
from eggshard.planner.encoding.widening import Widener
from eggshard.planner.encoding.windows import WindowDemand
from eggshard.planner.op_plans import OpPlans
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Dim, Placement, place
from eggshard.program.program import Program
from eggshard.rewrites import default_rules, select

LINE = Mesh({"x": 4})


def window(n: int, count: int, low: int, high: int, wrapped: bool = False) -> Placement:
    return Placement((Dim(("x",), n // count, low, high, (low, n + high) if wrapped else None),))


def line_program(steps: int, *, wrapped: bool, n: int = 16, mesh: Mesh = LINE) -> Program:
    """Sums of the neighbours on either side, along a line of n over x; doubled."""
    b = ProgramBuilder(dict(mesh.axes))
    u = b.input((n,), "f32", ("x",))

    def part(v: Tensor, start: int, stop: int) -> Tensor:
        return b.slice(v, (start,), (stop,))

    for _ in range(steps):
        if wrapped:
            left = b.concatenate([part(u, n - 1, n), part(u, 0, n - 1)], 0)
            right = b.concatenate([part(u, 1, n), part(u, 0, 1)], 0)
            u = left + right
        else:
            p = b.pad(u, (1,), (1,), 0.0)
            u = part(p, 0, n) + part(p, 2, n + 2)
    b.output(u * 2, ("x",))
    return b.build()


def plans_for(program: Program, model: CostModel | None = None) -> OpPlans:
    return plans_of(Context(program, model or AlphaBeta(), Limits(), False), ())


def pinned(program: Program, graph: EGraph, mesh: Mesh
           ) -> tuple[list[tuple[int, Placement]], list[tuple[int, Placement]]]:
    """Where inputs and outputs lie: their first dimensions over x."""
    def lies(v: int) -> Placement:
        shape = program.region.types[v].shape
        return place(mesh, shape, (("x",), *[()] * (len(shape) - 1)))

    return tuple(  # type: ignore[return-value]
        [(graph.values[v], lies(v)) for v in values] for values in (program.region.inputs, program.region.outputs)
    )


def demand_of(program: Program, *, mesh: Mesh = LINE, limit: int = 8) -> tuple[WindowDemand, EGraph]:
    plans = plans_for(program)
    graph = saturate(program.region, select(default_rules(), False), Limits())

    def transfer(c: int, node: object) -> object:
        if node.op in ("input", "result"):  # type: ignore[attr-defined]
            return None
        types = tuple(graph.type_of(a) for a in node.children)  # type: ignore[attr-defined]
        return plans.window_transfer(node, types, graph.classes[c].types)  # type: ignore[arg-type]

    inputs, outputs = pinned(program, graph, mesh)
    demand = WindowDemand(graph, find_views(graph), plans.mesh, transfer, inputs, outputs, limit)  # type: ignore[arg-type]
    return demand.close(), graph


def encoding_of(program: Program, model: CostModel, limit: int = 8) -> tuple[Encoding, OpPlans, EGraph]:
    plans = plans_for(program, model)
    graph = saturate(program.region, select(default_rules(), False), Limits())
    inputs, outputs = pinned(program, graph, plans.mesh)
    widen = Widener(plans, limit, inputs, outputs)
    encoder = Encoder(graph, plans.strategies, plans.context.router, plans.context.limits)
    encoding = encoder.encode({0: inputs[0][1]}, [(c, [p]) for c, p in outputs], widen=widen)
    return encoding, plans, graph
