"""Kernels as they are where Triton removes layout conversions.

``python -m bench.kernel_corpus FOLDER`` writes the texts ``<kernel>_<target>_<position>_{before,after}.ttgir`` and
``<kernel>_<target>_final.ttgir``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.programs.kernels import PROGRAMS, TARGETS, KernelProgram, variants
from eggshard.triton.compiler.pipeline import Compilation


@dataclass(frozen=True)
class Snapshots:
    """Texts of one compilation: before and after each removal of conversions, and at the end."""

    removals: tuple[tuple[str, str], ...]
    final: str


def snapshots(program: KernelProgram, target: str, locations: bool = False) -> Snapshots:
    """Run Triton's pipeline to the final TritonGPU IR and keep what its removals of conversions see and leave."""
    found: list[tuple[str, str]] = []

    def text(module: Any) -> str:
        return str(module) if locations else str(module.str_nodebug())

    def observe(position: int, module: Any, remove: Callable[[Any], None]) -> Any:
        before = text(module)
        remove(module)
        found.append((before, text(module)))
        return module

    compilation = Compilation.of(target, program.options)
    final = compilation.gpu_ir(compilation.tensor_ir(program.source()), observe)
    return Snapshots(tuple(found), text(final))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.kernel_corpus", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="kernels whose name contains this")
    parser.add_argument("--variants", type=int, default=0, help="how many kernels to draw beside the table")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    for i, program in enumerate([*PROGRAMS, *variants(options.seed, options.variants)]):
        if options.only not in program.name:
            continue
        name = program.name.split("[")[0] + (f"_{options.seed}_{i}" if "[" in program.name else "")
        for target in TARGETS:
            found = snapshots(program, target)
            for position, texts in enumerate(found.removals):
                for when, text in zip(("before", "after"), texts, strict=True):
                    (options.folder / f"{name}_{target}_{position}_{when}.ttgir").write_text(text)
            (options.folder / f"{name}_{target}_final.ttgir").write_text(found.final)


if __name__ == "__main__":
    main()
