"""Propagation passes: by one strategy, by the schedule of ops, and by the priorities of dimensions.

Options of all of them: keep-sharding-rules leaves on ops the rules by which shardings flowed through them;
conservative-propagation adds no sub-axes, and takes rules along which no shard needs padding;
debug-sharding-origins and debug-propagation-edge-sharding note where axes came from (`origins.py`).
propagation-strategy: ``basic``, ``aggressive``, or ``basic-then-aggressive`` in every phase.
run-op-priority-propagation=false skips the schedule by kinds of op.
"""

from __future__ import annotations

from collections.abc import Callable

from jaxlib.mlir import ir

from eggshard.errors import ProgramError, ShardingError
from eggshard.planner.propagation.convergence import Propagation
from eggshard.planner.propagation.flows import Flow
from eggshard.planner.propagation.graph import Node
from eggshard.planner.propagation.projection import Projection
from eggshard.planner.propagation.schedule import ANYTHING
from eggshard.planner.propagation.strategies import Strategy, aggressive, basic
from eggshard.program.mesh import Mesh
from eggshard.shardy.by_jaxlib import run_by_jaxlib
from eggshard.shardy.module import RULE, ShardyModule
from eggshard.shardy.passes import shardy_pass
from eggshard.shardy.propagation.graph import ModuleGraph
from eggshard.shardy.propagation.groups import sync_groups
from eggshard.shardy.propagation.origins import Notes
from eggshard.shardy.traits import is_static

STRATEGIES: dict[str, tuple[Strategy, ...]] = {
    "basic": (basic,), "aggressive": (aggressive,), "basic-then-aggressive": (basic, aggressive)}


@shardy_pass("basic-propagate")
def basic_propagate(
    module: ShardyModule, keep_sharding_rules: bool = False, conservative_propagation: bool = False,
    debug_sharding_origins: bool = False, debug_propagation_edge_sharding: bool = False,
) -> None:
    """Propagate shardings where no tensor of an op objects."""
    _run(module, keep_sharding_rules, conservative_propagation, debug_sharding_origins,
         debug_propagation_edge_sharding, lambda propagation: propagation.converge(basic, ANYTHING))


@shardy_pass("aggressive-propagate")
def aggressive_propagate(
    module: ShardyModule, keep_sharding_rules: bool = False, conservative_propagation: bool = False,
    debug_sharding_origins: bool = False, debug_propagation_edge_sharding: bool = False,
    propagation_strategy: str = "aggressive",
) -> None:
    """Propagate shardings, conflicts between factors resolved: those of larger tensors go first."""
    strategies = _strategies(propagation_strategy)
    _run(module, keep_sharding_rules, conservative_propagation, debug_sharding_origins,
         debug_propagation_edge_sharding, lambda propagation: propagation.in_phases(strategies, scheduled=False))


@shardy_pass("op-priority-propagate")
def op_priority_propagate(
    module: ShardyModule, keep_sharding_rules: bool = False, conservative_propagation: bool = False,
    debug_sharding_origins: bool = False, debug_propagation_edge_sharding: bool = False,
    propagation_strategy: str = "aggressive", run_op_priority_propagation: bool = True,
) -> None:
    """Propagate shardings through some kinds of op before others: what is elementwise first."""
    strategies = _strategies(propagation_strategy)
    _run(module, keep_sharding_rules, conservative_propagation, debug_sharding_origins,
         debug_propagation_edge_sharding,
         lambda propagation: propagation.in_phases(strategies, run_op_priority_propagation))


@shardy_pass("user-priority-propagate")
def user_priority_propagate(
    module: ShardyModule, keep_sharding_rules: bool = False, conservative_propagation: bool = False,
    debug_sharding_origins: bool = False, debug_propagation_edge_sharding: bool = False,
    propagation_strategy: str = "aggressive", run_op_priority_propagation: bool = True,
) -> None:
    """Propagate the dimensions of priority 0 to convergence, then with them those of 1, and so on."""
    strategies = _strategies(propagation_strategy)

    _run(module, keep_sharding_rules, conservative_propagation, debug_sharding_origins,
         debug_propagation_edge_sharding,
         lambda propagation: propagation.by_priorities(strategies, run_op_priority_propagation))


def _strategies(name: str) -> tuple[Strategy, ...]:
    if name not in STRATEGIES:
        raise ProgramError(f"option propagation-strategy is one of {', '.join(STRATEGIES)}, not {name!r}")
    return STRATEGIES[name]


def _run(
    module: ShardyModule, keep_rules: bool, conservative: bool, debug_origins: bool, debug_edges: bool,
    run: Callable[[Propagation], None],
) -> None:
    _check_shapes(module)
    notes = Notes(module, debug_origins, debug_edges) if debug_origins or debug_edges else None
    sync_groups(module)
    graph = ModuleGraph(module, conservative)

    def noted(node: Node, flow: Flow, old: Projection, new: Projection, mesh: Mesh) -> None:
        values = [graph.values[number] for number in flow.values]
        if notes:
            notes.take(graph.ops[node.number], values, flow.rule, old, new, mesh, graph.function_result(node, flow))

    run(Propagation(graph, noted if notes else None))
    if notes:
        notes.forget(graph.ops[node.number] for node in graph.nodes if node.erased)
    graph.write()
    if notes:
        notes.write()
    if keep_rules:
        for node in graph.nodes:
            rule = graph.stated_rule(node)
            if not node.erased and rule is not None:
                graph.ops[node.number].attributes[RULE] = ir.Attribute.parse(str(rule))
    else:
        run_by_jaxlib(module, "func.func(sdy-drop-sharding-rules)")


def _check_shapes(module: ShardyModule) -> None:
    for op in module.walk():
        for result in op.results:
            if isinstance(result.type, ir.TupleType):
                raise ProgramError(f"{op.name} has a result of type {result.type}; propagation takes no tuples")
            if isinstance(result.type, (ir.RankedTensorType, ir.UnrankedTensorType)) and not is_static(result):
                raise ShardingError(
                    f"{op.name} has a result of type {result.type}; propagation takes tensors of known shapes only")
