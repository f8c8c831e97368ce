"""Lists the kernels of a file, and compiles one as ever and with layouts planned, in a process of its own."""

from __future__ import annotations

import gc
import os
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import triton
from testing.kernel_interpreter import judge
from triton.compiler import ASTSource
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction

import eggshard.triton
from bench.kernels.guessing import Guess, guesses
from bench.kernels.packages import module_of
from bench.programs.kernels import PROGRAMS
from bench.worker import serve
from eggshard.errors import ProgramError, VerificationError
from eggshard.triton.compiler import replacement
from eggshard.triton.compiler.choosing import Code
from eggshard.triton.compiler.compilation import Compiled
from eggshard.triton.compiler.pipeline import target_of
from eggshard.triton.frontend import load

#: How often a compilation from the cache is repeated, after one that fills it.
WARM = 5
#: Seconds that Triton's own compilation may take: others are left out.
LONGEST = 15.0


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """``root``, ``file``: of a package. Without ``kernel`` and ``target``: the names of its kernels. ``guess``: whether
    Triton compiles the kernel for some guess, by itself; otherwise what becomes of it with us, too."""
    module = module_of(Path(request["root"]), Path(request["file"]))
    if "kernel" not in request:
        return {"kernels": [name for name, value in vars(module).items() if _is_kernel(value, module)]}
    kernel = _inner(getattr(module, request["kernel"]))
    found = first(kernel, request["target"])
    if "guess" in request:
        return {"good": found is not None}
    assert found is not None
    return _judged(kernel, found[0], target_of(request["target"]), found[1])


@cache
def first(kernel: Any, target: str) -> tuple[Guess, Any] | None:
    """The first guess that Triton compiles to code that leaves something in memory, and its result."""
    for guess in guesses(kernel):
        try:
            found, seconds = compiled(kernel, guess, target_of(target))
        except Exception:  # the guess is wrong, or the kernel is none for this target
            continue
        if seconds <= LONGEST and _code(found, target_of(target)).timing.executed.global_stores:
            return guess, found
    return None


def _judged(kernel: Any, guess: Guess, target: Any, theirs: Any) -> dict[str, Any]:
    """What becomes of a kernel that Triton compiles; by now it has done so once, which counts for neither time."""
    replacement._remembered.clear()
    _, own = compiled(kernel, guess, target)
    with eggshard.triton.install():
        try:
            ours, seconds = compiled(kernel, guess, target)
        except Exception as error:
            return {"outcome": "fails", "why": f"{type(error).__name__}: {error}"}
    last = eggshard.triton.statistics().outcomes[-1]
    found = {"outcome": "refused" if last.result == "fallback" else last.result, "why": last.reason,
             "converts": "ttg.convert_layout" in theirs.asm["ttgir"], "ratio": seconds / own, "seconds": own,
             "given": last.given_cost, "cost": last.cost, "warm": _warm(kernel, guess, target)}
    if last.result == "improved":
        before, after = (_code(one, target) for one in (theirs, ours))
        found["cycles"] = after.cycles / before.cycles
        try:
            judge(load(theirs.asm["ttgir"]), load(ours.asm["ttgir"]))
            found["judged"] = "equal"
        except VerificationError as error:
            found.update(outcome="wrong", why=str(error))
        except ProgramError as error:
            found["judged"] = str(error)
    return found


def _code(found: Any, target: Any) -> Code:
    """What Triton compiled, as the planner compares it."""
    name = target.arch if target.backend == "hip" else f"sm{target.arch}"
    return Code.of(Compiled(name, dict(found.asm), found.metadata.shared, found.metadata.num_warps))


def _warm(kernel: Any, guess: Guess, target: Any) -> float:
    """What a compilation takes that finds its result in Triton's cache, with us over without."""
    seconds = [0.0, 0.0]

    def timed() -> float:
        began = time.perf_counter()
        compiled(kernel, guess, target)
        return time.perf_counter() - began

    gc.collect()
    triton.knobs.compilation.always_compile = False
    try:
        for turn in range(WARM + 1):
            found = [timed()]
            with eggshard.triton.install():
                found.append(timed())
            if turn:
                seconds = [a + b for a, b in zip(seconds, found, strict=True)]
    finally:
        triton.knobs.compilation.always_compile = True
    return seconds[1] / seconds[0]


def compiled(kernel: Any, guess: Guess, target: Any) -> tuple[Any, float]:
    """Triton's compilation, and the processor seconds that it took, of processes that it starts too."""
    attributes = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(guess.signature.values())
                  if kind.startswith("*") or kind == "i32"}
    source = ASTSource(fn=kernel, signature=guess.signature, constexprs=guess.constants, attrs=attributes)
    before = sum(os.times()[:4])
    found = triton.compile(source, target=target, options={})
    return found, sum(os.times()[:4]) - before


def _inner(value: Any) -> Any:
    """The kernel under autotuning and heuristics."""
    while isinstance(value, (Autotuner, Heuristics)):
        value = value.fn
    return value


def _is_kernel(value: Any, module: Any) -> bool:
    """Whether a module's value is a kernel of its own, which returns nothing."""
    kernel = _inner(value)
    return isinstance(kernel, JITFunction) and kernel.fn.__module__ == module.__name__ and "store" in kernel.src


@cache
def prepare() -> None:
    """Compile always, and leave nothing behind. What is imported once, by the first plan, counts for no kernel."""
    triton.knobs.compilation.always_compile = True
    triton.knobs.cache.dir = tempfile.mkdtemp()
    program = next(p for p in PROGRAMS if p.name == "layer_norm")
    with eggshard.triton.install():
        triton.compile(program.source(), target=target_of("sm80"), options=program.options)


if __name__ == "__main__":
    prepare()
    serve(answer)
