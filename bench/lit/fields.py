"""The field codes of Enzyme-JAX's communication tests: planned, beside XLA and the pipelines that the tests are of.

Each function of a file is a program. Ops of Enzyme's own dialect are lowered by the wheel ``enzyme_ad`` first, so that
everybody gets the same slices and concatenations; without the wheel (`bench.enzyme`) such programs have no peers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from jax.interpreters import mlir as jax_mlir
from jaxlib.mlir import ir
from rich.table import Table

from bench import enzyme
from bench.lit.comparing import Compared, compared, totals
from bench.lit.programs import devices_of, partitioned

#: The folder of the tests in Enzyme-JAX's repository.
FOLDER = "test/lit_tests"
#: How far elements of results may be apart, of the largest: no sums of many are taken.
_ROUNDING = 1e-12

_DIALECT = "enzymexla."
_LOWER = enzyme.named(
    "lower_extend", "lower_wrap", "lower_rotate", "lower_multirotate", "lower_multislice", "lower_multipad",
    "lower_updatewithoutcorners",
)  # fmt: skip


def functions(path: Path) -> Iterator[tuple[str, str]]:
    """Names and texts of a file's functions that are sharded: each as ``main``, with the meshes that it names.

    MLIRError for a file with ops of dialects that are unknown here and not written generically.
    """
    code = re.sub(r"//.*", "", path.read_text())
    with jax_mlir.make_ir_context() as context, ir.Location.unknown():
        context.allow_unregistered_dialects = True
        module = ir.Module.parse(code)
        listed = list(module.body.operations)
        modules = [list(op.regions[0].blocks[0]) for op in listed if op.operation.name == "builtin.module"] or [listed]
        for number, ops in enumerate(modules):
            meshes = [str(op) for op in ops if op.operation.name == "sdy.mesh"]
            for op in (op for op in ops if op.operation.name == "func.func"):
                name, text = ir.StringAttr(op.attributes["sym_name"]).value, str(op)
                used = [mesh for mesh in meshes if re.search(rf"{re.escape(mesh.split()[1])}\b", text)]
                text = "\n".join([*used, re.sub(rf'@({re.escape(name)}\b|"{re.escape(name)}")', "@main", text)])
                if "sdy.sharding" in text and used:
                    yield f"{path.name}:{name}" + (f"#{number}" if number else ""), text


def judged(root: Path, only: str = "") -> Iterator[Compared]:
    """The sharded functions of the files below a folder; files that cannot be read are left out."""
    for path in sorted(root.rglob("*.mlir")):
        if "sdy.sharding" not in path.read_text():
            continue
        try:
            found = list(functions(path))
        except ir.MLIRError:
            continue
        for name, text in found:
            if only in name and devices_of(text) > 1:
                yield judge(name, text)


def judge(name: str, text: str) -> Compared:
    """Plan one function, and partition it by all peers."""
    wire, why = {}, ""
    if _DIALECT in text:
        text, why = _lowered(text)
    if not why:
        whole = partitioned(text, devices_of(text))
        found = {"XLA": enzyme.plain(whole), "XLA with its flag": enzyme.flagged(whole), **enzyme.peer(whole).settings}
        wire = {who: result.wire_bytes for who, result in found.items() if result.wire_bytes is not None}
        why = "" if wire else found["XLA"].reason
    return compared(name, text, wire, why, rounding=_ROUNDING)


def _lowered(text: str) -> tuple[str, str]:
    """The program without ops of Enzyme's dialect, and why that could not be."""
    python = enzyme.interpreter()
    if python is None:
        return text, "enzyme_ad, which lowers its dialect, is not installed"
    (answer,) = enzyme.passes(python, text, (_LOWER,)) or [{"error": "the passes took too long"}]
    if "error" in answer:
        return text, answer["error"]
    with jax_mlir.make_ir_context(), ir.Location.unknown():
        module = ir.Module.parse(answer["text"])
        return "\n".join(str(op) for op in module.body.operations), ""


def table(found: Sequence[Compared]) -> Table:
    """How many there are of each outcome, and how they were checked."""
    return totals(
        {"all": found},
        "the sharded functions of Enzyme-JAX's tests: bytes of the busiest device beside the best peer's",
        "peers: XLA, XLA with xla_enable_enzyme_comms_opt, and enzyme_ad's pipelines with and without it",
    )
