"""Shardy's pass pipelines, in Shardy's order and under jaxlib's names and options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Steps = Callable[..., list[str]]


@dataclass(frozen=True)
class Named:
    """A function by a name; its arguments with defaults are the options, with underscores for dashes."""

    name: str
    run: Callable[..., Any]

    @property
    def options(self) -> dict[str, Any]:
        """The options and their defaults, spelled with dashes."""
        parameters = inspect.signature(self.run).parameters.values()
        return {p.name.replace("_", "-"): p.default for p in parameters if p.default is not p.empty}

    @property
    def summary(self) -> str:
        """The first line of its documentation."""
        return (inspect.getdoc(self.run) or "").partition("\n")[0]


class Pipeline(Named):
    """A pipeline: a function that lists its passes with their options, in order."""

    @property
    def steps(self) -> Steps:
        """The passes for given options."""
        return self.run


PIPELINES: dict[str, Pipeline] = {}


def pipeline(name: str) -> Callable[[Steps], Steps]:
    """Register a function as the pipeline of that name."""

    def add(steps: Steps) -> Steps:
        PIPELINES[name] = Pipeline(name, steps)
        return steps

    return add


@pipeline("import")
def import_steps(dedup_functions_fully: bool = False) -> list[str]:
    """What propagation needs: named meshes, no axes of size one, a constant per use, data-flow edges.

    dedup-functions-fully: constraints and sharding groups are applied as well, as no call graph is flattened before.
    """
    late = ["apply-sharding-constraints", "sharding-group-import"] if dedup_functions_fully else []
    return [
        "symbol-dce", "lift-inlined-meshes", "remove-size-one-axes", "propagate-sharding-from-func-to-call",
        "constant-or-scalar-splitter", "symbol-dce", "manual-axes-cleanup", "add-data-flow-edges", *late,
    ]  # fmt: skip


@pipeline("propagation")
def propagation_steps(
    dedup_functions_fully: bool = False, debug_sharding_origins: bool = False,
    debug_propagation_edge_sharding: bool = False, mode: str = "shardy", cost_model: str = "",
) -> list[str]:
    """From annotations to a module that is sharded throughout: import, propagation by priorities, export.

    dedup-functions-fully: calls of a function are all of one sharding, by edges between functions; otherwise each call
    has a copy of its own, until it turns out like another. debug-sharding-origins, debug-propagation-edge-sharding:
    note where each axis came from, and along which edges. mode, cost-model: those of export.
    """
    notes = _given(
        {"debug-sharding-origins": debug_sharding_origins,
         "debug-propagation-edge-sharding": debug_propagation_edge_sharding}
    )  # fmt: skip
    constraints = [f"apply-sharding-constraints{notes}", "sharding-group-import"]
    copies = ["flatten-call-graph", "symbol-dce", "import-func-calls", "symbol-dce", *constraints]
    one_each = [*constraints, "add-func-data-flow-edges"]
    return [
        *import_steps(), *(one_each if dedup_functions_fully else copies), "pre-order-funcs",
        f"user-priority-propagate{notes}",
        *(["propagate-to-func-results", "sink-func-data-flow-edges"] if dedup_functions_fully else
          ["export-named-computations", "propagate-to-func-results"]),
        "unflatten-call-graph", "symbol-dce", "insert-func-call-reshards",
        *export_steps(mode=mode, cost_model=cost_model, keep_notes=True, dump_sharding_origins=debug_sharding_origins,
                      dump_propagation_edges=debug_propagation_edge_sharding),
    ]  # fmt: skip


@pipeline("export")
def export_steps(
    keep_sharding_rules: bool = False,
    avoid_export_for_partitioning: bool = False,
    update_non_divisible_input_output_shardings: bool = True,
    enable_insert_explicit_collectives: bool = False,
    remove_all_gather_reduce_scatter_for_cmv1: bool = False,
    dump_sharding_origins: bool = False,
    dump_propagation_edges: bool = False,
    keep_notes: bool = False,
    inline_meshes: bool = False,
    mode: str = "shardy",
    cost_model: str = "",
) -> list[str]:
    """What propagation leaves behind is tidied up, shardings are closed, and reshards are explicit.

    enable-insert-explicit-collectives: reshards of every op, and collectives for them; mode: who decides on both,
    ``shardy`` op by op or ``global`` for the whole program, by ``cost-model``.
    remove-all-gather-reduce-scatter-for-cmv1: gathers before products, and scatters after them, are left to the
    compiler's collective products.
    avoid-export-for-partitioning: constraints, groups and communication stay for another round of propagation.
    update-non-divisible-input-output-shardings: functions' arguments and results are sharded evenly, by whole axes.
    dump-sharding-origins, dump-propagation-edges: what propagation noted on edges is sunk; keep-notes: and kept.
    inline-meshes: meshes are written in full. keep-sharding-rules: as stated on ops.
    """
    sunk = _given(
        {"sink-debug-sharding-origins": dump_sharding_origins,
         "sink-debug-propagation-edge-sharding": dump_propagation_edges}
    )  # fmt: skip
    partitioning = not avoid_export_for_partitioning
    explicit = enable_insert_explicit_collectives
    chosen, decided = _chosen(mode), _decided(mode, cost_model)
    steps = [
        ("constant-or-scalar-merger", True),
        (f"sink-data-flow-edges{sunk}", True),
        ("remove-sharding-groups", partitioning),
        ("sharding-constraint-to-reshard", partitioning),
        ("update-non-divisible-input-output-shardings", update_non_divisible_input_output_shardings),
        ("remove-sub-axes-in-input-output-shardings", update_non_divisible_input_output_shardings),
        ("close-shardings", True),
        ("verify-unreduced-axes", partitioning),
        (f"insert-explicit-reshards{_given({'enable-full-version': explicit, **decided})}", partitioning),
        ("canonicalize-reshards{common=false}", partitioning and explicit),
        (f"reshard-to-collectives{_given(chosen)}", partitioning and explicit),
        ("canonicalize-collectives{reshards=false}", partitioning),
        ("remove-all-gather-reduce-scatter-for-cmv1", partitioning and explicit
         and remove_all_gather_reduce_scatter_for_cmv1),
        ("remove-propagation-debug-info", (dump_sharding_origins or dump_propagation_edges) and not keep_notes),
        ("drop-sharding-rules", not keep_sharding_rules),
        ("inline-meshes", partitioning and inline_meshes),
    ]  # fmt: skip
    return [step for step, wanted in steps if wanted]


@pipeline("partition")
def partition_steps(enable_halo_exchange: bool = True, mode: str = "shardy", cost_model: str = "") -> list[str]:
    """From closed shardings to the program of one device: explicit reshards, collectives, padding, local shapes.

    Before, reductions of several operands, such as argmax, are split, so that every device reduces what it holds, and
    slices of padded tensors become one op.

    enable-halo-exchange: neighbours exchange rows where ops look at them, instead of gathering. mode: who decides on
    reshards, ``shardy`` op by op or ``global`` for the whole program, by ``cost-model``.
    """
    return [
        "split-reductions", "fold-slices-of-pads",
        f"insert-explicit-reshards{_given({'enable-full-version': True, **_decided(mode, cost_model)})}",
        "resolve-permutation-factors" if enable_halo_exchange else
        "resolve-permutation-factors{enable-halo-exchange=false}",
        f"reshard-to-collectives{_given(_chosen(mode))}",
        "pad-for-divisibility", "resolve-single-device-sharding", "convert-global-to-local", "drop-sharding-and-mesh",
    ]  # fmt: skip


def _chosen(mode: str) -> dict[str, str]:
    return {"mode": mode} if mode != "shardy" else {}


def _decided(mode: str, cost_model: str) -> dict[str, str]:
    """The options of whatever decides on reshards."""
    return _chosen(mode) | ({"cost-model": cost_model} if cost_model else {})


def _given(options: Mapping[str, bool | str]) -> str:
    """Options in braces, without those that are off."""
    shown = [f"{name}={'true' if value is True else value}" for name, value in options.items() if value]
    return f"{{{' '.join(shown)}}}" if shown else ""
