"""Kernels through the rest of Triton's compiler, in processes of their own: what it does not lower may end one."""

from __future__ import annotations

import os
import tempfile

from eggshard.triton.frontend.libtriton import parse
from eggshard.triton.kernels.ir import Kernel
from eggshard.triton.kernels.text import write_generic
from eggshard.triton.layouts.machine import Machine


def compile_kernel(kernel: Kernel, machine: Machine) -> str | None:
    """None if the kernel becomes PTX or LLVM IR for AMD, else what the compiler said."""
    text = write_generic(kernel)
    with tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if child == 0:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            try:
                _compile(text, machine)
            except BaseException as error:  # whatever it is, this process must not go on as the test's
                print(error, flush=True)
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status == 0:
            return None
        said.seek(0)
        return said.read()[-2000:] or f"status {status}"


def _compile(text: str, machine: Machine) -> None:
    from triton._C.libtriton import ir, nvidia
    from triton.backends.compiler import GPUTarget, Language
    from triton.compiler.compiler import make_backend

    architecture = machine.capability or machine.architecture
    backend = make_backend(GPUTarget(machine.vendor, architecture, machine.threads_per_warp))
    clusters = {"num_ctas": machine.num_ctas} if machine.num_ctas > 1 else {}
    options = backend.parse_options({"num_warps": machine.num_warps, **clusters})
    stages: dict[str, object] = {}
    backend.add_stages(stages, options, Language.TRITON)
    metadata = dict(vars(options))
    module = parse(text)
    if machine.vendor == "cuda":
        passes = ir.pass_manager(module.context)
        nvidia.passes.ttnvgpuir.add_tma_lowering(passes)
        passes.run(module, "tma_lowering")
    code = stages["llir"](module, metadata)  # type: ignore[operator]
    if machine.vendor == "cuda":
        stages["ptx"](code, metadata)  # type: ignore[operator]
