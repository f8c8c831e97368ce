"""The only interface to libtriton: contexts, text in both forms, verification. Needs the extra ``eggshard[triton]``."""

from __future__ import annotations

import os
import re
import tempfile
from functools import cache
from typing import Any

from eggshard.errors import ProgramError
from eggshard.extras import named_extras
from eggshard.triton.kernels.ir import Kernel
from eggshard.triton.kernels.text import read_generic, write_generic

_GENERIC = re.compile(r'^"builtin\.module"\(', re.MULTILINE)
_SPOILING = "spoiled_to_print_generically"


@cache
@named_extras()
def context() -> Any:
    """One context with the dialects of Triton and of both vendors."""
    from triton._C.libtriton import amd, ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import make_backend

    found = ir.context()
    ir.load_dialects(found)
    make_backend(GPUTarget("cuda", 90, 32)).load_dialects(found)
    amd.load_dialects(found)
    return found


def parse(text: str, inside: Any = None) -> Any:
    """libtriton's module of a text in either form; ``inside``: the context, by default the shared one.

    Raises `ProgramError` where libtriton does not parse it.
    """
    where = context() if inside is None else inside
    from triton._C.libtriton import ir

    with tempfile.NamedTemporaryFile("w", suffix=".mlir", delete=False) as file:
        file.write(text)
    try:
        module = ir.parse_mlir_module(file.name, where)
    except RuntimeError as error:
        raise ProgramError(f"libtriton does not parse the kernel: {error}") from error
    finally:
        os.unlink(file.name)
    module.context = where  # the module does not keep its context alive
    return module


def generic_text(module: Any, locations: bool = True) -> str:
    """A module's text in generic form. The printer hides nothing of a module that does not verify: one is made."""
    from triton._C.libtriton import ir

    name = "ttg.num-warps"
    warps = module.get_int_attr(name)
    if warps is None:
        raise ProgramError("the module has no ttg.num-warps: only TritonGPU IR, after layouts are assigned, is planned")
    builder = ir.builder(module.context)
    module.set_attr(name, builder.get_int32_attr(2 * warps))
    text: str = str(module) if locations else module.str_nodebug()
    module.set_attr(name, builder.get_int32_attr(warps))
    if not _GENERIC.search(text):  # without tensors nothing depends on the number of warps
        return _spoiled(module, locations)
    return text.replace(f'"{name}" = {2 * warps} : i32', f'"{name}" = {warps} : i32')


def _spoiled(module: Any, locations: bool) -> str:
    """The generic text of any module, by way of a copy that gets an attribute of a name that modules do not take."""
    from triton._C.libtriton import ir

    copy = parse(str(module), module.context)
    copy.set_attr(_SPOILING, ir.builder(copy.context).get_unit_attr())
    text: str = str(copy) if locations else copy.str_nodebug()
    head, _, tail = text.rpartition(_SPOILING)
    if head.endswith(", "):
        return head.removesuffix(", ") + tail
    return head + tail.removeprefix(", ")


def load(source: Any, *, layouts: bool = True) -> Kernel:
    """The kernel of TTGIR text (either form) or of a libtriton module.

    layouts: whether the kernel must have them; if not, TTIR is read too.
    Raises `DependencyError` without libtriton, `ProgramError` for text that it refuses and modules without layouts.
    """
    module = parse(source) if isinstance(source, str) else source
    # Where a text says no locations, libtriton says the file that it was parsed from, which is none of the user's.
    located = not isinstance(source, str) or "loc(" in source
    if not layouts and module.get_int_attr("ttg.num-warps") is None:
        return read_generic(_spoiled(module, located))
    return read_generic(generic_text(module, located))


def module_of(kernel: Kernel, inside: Any = None) -> Any:
    """libtriton's module of a kernel, verified. Raises `ProgramError` if it does not verify."""
    module = parse(write_generic(kernel), inside)
    if not module.verify():
        raise ProgramError("the kernel does not verify")
    return module
