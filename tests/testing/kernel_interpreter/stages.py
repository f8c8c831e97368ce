"""A Triton kernel at the stages of its compilation, without a GPU."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

from eggshard.triton.frontend import load
from eggshard.triton.frontend.libtriton import parse
from eggshard.triton.kernels.ir import Kernel

TARGETS = ("sm80", "sm90", "gfx942")


def _target(name: str) -> Any:
    from triton.backends.compiler import GPUTarget

    return GPUTarget("hip", name, 64) if name.startswith("gfx") else GPUTarget("cuda", int(name[2:]), 32)


@cache
def _compiled(function: Any, signature: str, constants: tuple[tuple[str, Any], ...], target: str, aligned: bool) -> Any:
    import triton
    from triton.compiler import ASTSource

    types = dict(part.split(":") for part in signature.split())
    types |= {name: "constexpr" for name, _ in constants}
    known = [["tt.divisibility", 16]] + ([["tt.pointer_range", 32]] if target.startswith("gfx") else [])
    attributes = {(i,): known for i, t in enumerate(types.values()) if t.startswith("*") and aligned}
    ordered = {name: types[name] for name in function.arg_names}
    source = ASTSource(fn=function, signature=ordered, constexprs=dict(constants), attrs=attributes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return triton.compile(source, target=_target(target))


def stages(function: Any, signature: str, target: str, aligned: bool = True, **constants: Any) -> dict[str, Kernel]:
    """TTIR; TTGIR as layouts are first assigned; TTGIR at the end. ``signature``: ``x:*fp32 n:i32`` and so on;
    ``aligned``: pointers and sizes are multiples of 16, which is what lets loops be pipelined."""
    from triton._C.libtriton import ir, passes

    made = _compiled(function, signature, tuple(sorted(constants.items())), target, aligned)
    first = parse(made.asm["ttir"])
    manager = ir.pass_manager(first.context)
    where = _target(target)
    name = where.arch if where.backend == "hip" else f"cuda:{where.arch}"
    prefix = "hip:" if where.backend == "hip" else ""
    passes.ttir.add_convert_to_ttgpuir(manager, f"{prefix}{name}", 4, where.warp_size, 1)
    manager.run(first, "layouts")
    return {"ttir": load(made.asm["ttir"], layouts=False), "first": load(first), "last": load(made.asm["ttgir"])}
