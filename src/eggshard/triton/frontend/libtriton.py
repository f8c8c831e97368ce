"""The only interface to libtriton: contexts, text in both forms, verification. Needs the extra ``eggshard[triton]``."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from eggshard.errors import ProgramError
from eggshard.extras import named_extras
from eggshard.triton.frontend import parsing
from eggshard.triton.kernels.ir import Kernel
from eggshard.triton.kernels.text import read_generic, write_generic

_NO_LAYOUTS = f"the module has no {parsing.WARPS}: only TritonGPU IR, after layouts are assigned, is planned"


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

    Raises `ProgramError` where libtriton does not parse it. Some texts end the process: `read` those of others.
    """
    where = context() if inside is None else inside
    from triton._C.libtriton import ir

    try:
        return parsing.parse_text(ir, text, where)
    except RuntimeError as error:
        raise ProgramError(f"libtriton does not parse the kernel: {error}") from error


def generic_text(module: Any, locations: bool = True) -> str:
    """A module's text in generic form. Raises `ProgramError` for modules without layouts."""
    from triton._C.libtriton import ir

    if module.get_int_attr(parsing.WARPS) is None:
        raise ProgramError(_NO_LAYOUTS)
    return parsing.generic_text(ir, module, locations)


def load(source: Any, *, layouts: bool = True) -> Kernel:
    """The kernel of TTGIR text (either form) or of a libtriton module.

    layouts: whether the kernel must have them; if not, TTIR is read too.
    Raises `DependencyError` without libtriton, `ProgramError` for text that it refuses and modules without layouts.
    """
    module = parse(source) if isinstance(source, str) else source
    # Where a text says no locations, libtriton says the file that it was parsed from, which is none of the user's.
    located = not isinstance(source, str) or "loc(" in source
    if layouts:
        return read_generic(generic_text(module, located))
    from triton._C.libtriton import ir

    return read_generic(parsing.generic_text(ir, module, located))


@named_extras()
def read(text: str) -> tuple[Kernel, Kernel]:
    """The kernel of TTGIR text (either form), as it is and as Triton's canonicalizer leaves it: constants folded, what
    nothing needs left out.

    libtriton runs in another process, so that none of its messages is printed, and no text ends this one. Raises
    `DependencyError` without libtriton, `ProgramError` for text that it refuses or fails on, and modules without
    layouts.
    """
    library = importlib.util.find_spec("triton._C.libtriton")
    if library is None or library.origin is None:
        raise ModuleNotFoundError("No module named 'triton'", name="triton")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "kernel.mlir")
        file.write_text(text)
        command = [sys.executable, "-I", "-S", parsing.__file__, library.origin, str(file), folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == parsing.GOOD:
            given, simplified = (read_generic(Path(folder, name).read_text()) for name in ("given", "simplified"))
            return given, simplified
    if done.returncode == parsing.WITHOUT_LAYOUTS:
        raise ProgramError(_NO_LAYOUTS)
    said = done.stderr.replace(f"{folder}/", "").splitlines()
    error = next((line for line in said if "error:" in line), said[-1] if said else "it does not say why")
    what = "does not parse" if done.returncode == parsing.REFUSED else "fails on"
    raise ProgramError(f"libtriton {what} the kernel: {error}")


def module_of(kernel: Kernel, inside: Any = None) -> Any:
    """libtriton's module of a kernel, verified. Raises `ProgramError` if it does not verify."""
    module = parse(write_generic(kernel), inside)
    if not module.verify():
        raise ProgramError("the kernel does not verify")
    return module
