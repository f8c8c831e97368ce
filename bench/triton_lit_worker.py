"""Plans one module of a test file, or has Triton remove its conversions, in a process of its own: libtriton may end it.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import eggshard.triton
from bench.worker import serve
from eggshard.errors import EggshardError, FallbackWarning
from eggshard.triton.frontend import load
from eggshard.triton.frontend.libtriton import module_of, read
from eggshard.triton.kernels.ir import Kernel, TensorType
from eggshard.triton.layout_costs import default_costs
from eggshard.triton.pricing import cost


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """``text``: the module. ``way``: ``read`` it, have ``triton`` remove its conversions, or plan it: ``ours``."""
    ways = {"read": _read, "triton": _by_triton, "ours": _by_ours}
    return ways[request["way"]](request["text"])


def _read(text: str) -> dict[str, Any]:
    """Whether libtriton reads the module, and what it costs as it is."""
    try:
        kernel, _ = read(text)
    except EggshardError as error:
        return {"unread": str(error)}
    return {"cost": _cost(kernel), "laid": any(_laid(kernel))}


def _by_triton(text: str) -> dict[str, Any]:
    from triton._C.libtriton import ir, passes

    module = module_of(load(text))
    manager = ir.pass_manager(module.context)
    passes.ttgpuir.add_remove_layout_conversions(manager)
    began = time.perf_counter()
    manager.run(module, "remove_layout_conversions")
    seconds = time.perf_counter() - began
    return {"cost": _cost(load(module)), "seconds": seconds}


def _by_ours(text: str) -> dict[str, Any]:
    began = time.perf_counter()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            plan = eggshard.triton.optimize(text)
    except EggshardError as error:
        return {"refused": str(error), "kind": type(error).__name__}
    kept = [str(w.message) for w in caught if issubclass(w.category, FallbackWarning)]
    return {"cost": plan.cost, "gap": plan.gap, "kept": "; ".join(kept), "seconds": time.perf_counter() - began}


def _cost(kernel: Kernel) -> float:
    return cost(kernel, default_costs(kernel.target))


def _laid(kernel: Kernel) -> Any:
    return (isinstance(v.type, TensorType) and v.type.encoding is not None for op in kernel.walk() for v in op.results)


if __name__ == "__main__":
    serve(answer)
