"""Passes that jaxlib runs itself, in this process, on the module as it is.

They move annotations and decide nothing, and none of them aborts on a module that verifies and whose functions do not
call themselves. All other passes of Shardy's are written here, because jaxlib's abort on ordinary modules, leave what
does not verify, or are to choose otherwise (`docs/shardy.md`).
"""

from __future__ import annotations

from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _stablehlo
from jaxlib.mlir.passmanager import PassManager

from eggshard.errors import ProgramError, ShardingError
from eggshard.shardy.module import ShardyModule, first_complaint
from eggshard.shardy.passes import PREFIX, shardy_pass
from eggshard.shardy.propagation.calls import CallGraph

#: What each does, by name and by the op that it is anchored on.
PASSES_ON = {
    "builtin.module": {
        "add-data-flow-edges": "Put an op ``sdy.data_flow_edge`` behind the owner of every data-flow edge, with the "
                               "sharding stated for it.",
        "constant-or-scalar-splitter": "Compute constants, and broadcasts of scalars, anew for each of their users; "
                                       "scalars themselves are not split.",
        "export-named-computations": "Replace named computations by calls of functions, with the shardings of their "
                                     "data-flow edges.",
        "flatten-call-graph": "Give every call a function of its own: all calls of a function but the first get "
                              "copies.",
        "insert-func-call-reshards": "Shard the results of calls as the function says, and reshard them to what the "
                                     "calls said.",
        "propagate-sharding-from-func-to-call": "State for the results of calls what is stated for those of the "
                                                "function, if nothing is stated for them.",
        "remove-propagation-debug-info": "Remove what propagation noted about origins and edges, of ops, arguments "
                                         "and results.",
        "remove-sharding-groups": "Remove every sharding group; propagation has sharded its members alike.",
        "sharding-group-import": "Number sharding groups anew, as one where they share a value, and drop what is said "
                                 "twice.",
    },
    "func.func": {
        "drop-sharding-rules": "Take away the stated sharding rules, but for users' own.",
        "sharding-constraint-to-reshard": "Turn every sharding constraint into a reshard, one for one; other "
                                          "attributes stay.",
    },
}
#: Those that copy functions with all that they call, so that recursion would never end.
_COPYING = ("constant-or-scalar-splitter", "flatten-call-graph")


def _register(name: str, on: str, summary: str) -> None:
    pipeline = f"func.func({PREFIX}{name})" if on == "func.func" else PREFIX + name

    def run(module: ShardyModule) -> None:
        if name in _COPYING:
            CallGraph(module).refuse_recursion()
        try:
            run_by_jaxlib(module, pipeline)
        except ir.MLIRError as error:
            raise ShardingError(f"jaxlib's {PREFIX}{name} refuses the module: {first_complaint(error)}") from None

    run.__doc__ = summary
    shardy_pass(name, on)(run)


def run_by_jaxlib(module: ShardyModule, pipeline: str) -> None:
    """Run passes of jaxlib's pass manager on a module; MLIRError where one fails."""
    PassManager.parse(f"builtin.module({pipeline})").run(module.module.operation)


for _on, _passes in PASSES_ON.items():
    for _name, _summary in _passes.items():
        _register(_name, _on, _summary)


@shardy_pass("symbol-dce", on="")
def symbol_dce(module: ShardyModule) -> None:
    """Erase private functions that nothing refers to (MLIR's own pass). All stay where ops may refer to any."""
    try:
        run_by_jaxlib(module, "symbol-dce")
    except ir.MLIRError:  # an op that MLIR does not know may refer to any function
        return


@shardy_pass("chlo-legalize-to-stablehlo", on="")
def legalize_chlo(module: ShardyModule) -> None:
    """Write CHLO's ops out in StableHLO, as XLA does before it considers shardings.

    Shardy has no sharding rules for them, so that shardings do not propagate through them, and nothing reshards around
    them. Programs of JAX that have some (``square``, ``erf``, ``top_k``) begin with this.
    """
    _stablehlo.register_stablehlo_passes()
    try:
        run_by_jaxlib(module, "func.func(chlo-legalize-to-stablehlo)")
    except ir.MLIRError as error:
        raise ProgramError(f"CHLO's ops cannot be written in StableHLO: {first_complaint(error)}") from None
