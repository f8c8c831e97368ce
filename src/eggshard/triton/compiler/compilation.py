"""Compilation of TritonGPU IR by Triton's own stages, without a GPU: to PTX and cubin, or to amdgcn and hsaco."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from eggshard.errors import ProgramError
from eggshard.triton.compiler.pipeline import Compilation
from eggshard.triton.frontend.libtriton import parse
from eggshard.triton.kernels.ir import Kernel
from eggshard.triton.kernels.text import write_generic
from eggshard.triton.layouts.machine import Machine


@dataclass(frozen=True)
class Compiled:
    """What Triton's stages made of a kernel: ``llir``, then ``ptx`` and ``cubin`` or ``amdgcn`` and ``hsaco``.

    shared: bytes of shared memory per thread block, scratch of conversions and reductions included. noted: what each
    stage added to the compilation's metadata.
    """

    target: str
    stages: dict[str, str | bytes]
    shared: int
    num_warps: int
    noted: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def machine(self) -> Machine:
        """What a block of it runs on; warps of its own partitions included."""
        if self.target.startswith("sm"):
            return Machine(f"cuda:{self.target[2:]}", self.num_warps)
        return Machine(f"hip:{self.target}", self.num_warps, 64 if self.target.startswith("gfx9") else 32)

    @property
    def ptx(self) -> str:
        return self._text("ptx")

    @property
    def amdgcn(self) -> str:
        return self._text("amdgcn")

    @property
    def cubin(self) -> bytes:
        found = self.stages.get("cubin")
        if not isinstance(found, bytes):
            raise ProgramError(f"no cubin for {self.target}")
        return found

    def _text(self, stage: str) -> str:
        found = self.stages.get(stage)
        if not isinstance(found, str):
            raise ProgramError(f"no {stage} for {self.target}")
        return found


def compile_kernel(kernel: Kernel | str, target: str, options: dict[str, Any] | None = None) -> Compiled:
    """Compile TTGIR, as a kernel or as text in either form, for ``sm80``, ``sm90``, ``gfx942``.

    options: Triton's; warps and thread blocks of a cluster are the module's own. Raises `ProgramError` where the kernel
    does not verify, was made for another target, or Triton cannot compile it.
    """
    text = kernel if isinstance(kernel, str) else write_generic(kernel)
    compilation = Compilation.of(target, options)
    module = parse(text, compilation.context)
    if not module.verify():
        raise ProgramError("the kernel does not verify")
    own = {name: module.get_int_attr(f"ttg.{name.replace('_', '-')}") for name in ("num_warps", "num_ctas")}
    if any(value is not None and getattr(compilation.options, name) != value for name, value in own.items()):
        given = {name: value for name, value in own.items() if value is not None}
        compilation = Compilation.of(target, {**(options or {}), **given})
        module = parse(text, compilation.context)
    return lower(compilation, module)


def lower(compilation: Compilation, module: Any) -> Compiled:
    """Run the stages that follow TritonGPU IR on libtriton's module, which is used up."""
    name = str(compilation.backend.target.arch)
    target = name if name.startswith("gfx") else f"sm{name}"
    stages = compilation.stages()
    following = list(stages)[list(stages).index("ttgir") + 1:]
    made: dict[str, str | bytes] = {}
    noted: dict[str, dict[str, Any]] = {}
    current, metadata = module, compilation.metadata
    for stage in following:
        before = dict(metadata)
        try:
            current = made[stage] = stages[stage](current, metadata)
        except Exception as error:
            raise ProgramError(f"Triton's stage {stage} for {target} failed: {error}") from error
        noted[stage] = {k: v for k, v in metadata.items() if k not in before or before[k] is not v}
    return Compiled(target, made, int(metadata["shared"] or 0), int(metadata["num_warps"]), noted)
