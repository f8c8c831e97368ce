"""One op at a time: kernels in generic form around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from testing.kernel_interpreter.execution import Program
from testing.kernel_interpreter.memory import Memory
from testing.kernel_interpreter.running import entry

from eggshard.triton.kernels.ir import Kernel
from eggshard.triton.kernels.text import read_generic


def module(*functions: str) -> Kernel:
    return read_generic('"builtin.module"() ({\n' + "\n".join(functions) + "\n}) : () -> ()")


def function(arguments: Sequence[str], body: str, name: str = "f", visibility: str = "public") -> str:
    """A function whose arguments are ``%a0``, ``%a1``, ... of the types; the body ends with ``tt.return``."""
    listed = ", ".join(f"%a{i}: {t}" for i, t in enumerate(arguments))
    return (f'"tt.func"() <{{function_type = ({", ".join(arguments)}) -> (), sym_name = "{name}", '
            f'sym_visibility = "{visibility}"}}> ({{\n^bb0({listed}):\n{body}\n}}) : () -> ()')


def call(kernel: Kernel, arguments: Sequence[Any], memory: Memory | None = None, undefined: int = 0) -> list[Any]:
    """What the function returns."""
    program = Program(kernel, memory or Memory(), (1, 1, 1), undefined)
    with np.errstate(all="ignore"):
        return list(program.call(entry(kernel, None), [np.asarray(a) for a in arguments]))


def apply(name: str, operands: Sequence[tuple[str, Any]], results: Sequence[str], properties: str = "",
          region: str = "", undefined: int = 0) -> list[Any]:
    """The results of one op for operands of the types."""
    types = [t for t, _ in operands]
    uses = ", ".join(f"%a{i}" for i in range(len(types)))
    head = f"%r:{len(results)} = " if results else ""
    inner = f" ({{\n{region}\n}})" if region else ""
    op = f'{head}"{name}"({uses}) <{{{properties}}}>{inner} : ({", ".join(types)}) -> ({", ".join(results)})'
    returned = ", ".join(f"%r#{i}" for i in range(len(results)))
    body = f'{op}\n"tt.return"({returned}) : ({", ".join(results)}) -> ()'
    return call(module(function(types, body)), [np.asarray(v) for _, v in operands], undefined=undefined)
