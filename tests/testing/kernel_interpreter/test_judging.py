"""The judge of rewritten kernels: it accepts what means the same, and finds what does not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("triton")

from testing.kernel_interpreter import judge  # noqa: E402
from tests.testing.kernel_interpreter import kernels  # noqa: E402
from tests.testing.kernel_interpreter.stages import TARGETS, stages  # noqa: E402

from eggshard.errors import ProgramError, VerificationError  # noqa: E402
from eggshard.triton.alignment import check_layouts  # noqa: E402
from eggshard.triton.frontend import load
from eggshard.triton.kernels.ir import Kernel, Operation, TensorType  # noqa: E402

SOURCES: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "softmax": (kernels.softmax, "x:*fp32 y:*fp32 n:i32", {"B": 128}),
    "layer_norm": (kernels.layer_norm, "x:*fp16 w:*fp32 b:*fp32 y:*fp32 n:i32 eps:fp32", {"B": 16}),
    "attention": (kernels.attention, "q:*fp16 k:*fp16 v:*fp16 o:*fp32 n:i32 scale:fp32",
                  {"BM": 64, "BN": 32, "D": 64, "CAUSAL": True}),
    "matmul": (kernels.matmul,
               "a:*fp16 b:*fp16 bias:*fp32 c:*fp32 M:i32 N:i32 K:i32 lda:i32 ldb:i32 ldc:i32",
               {"BM": 64, "BN": 64, "BK": 32}),
    "transpose": (kernels.transpose, "x:*fp16 y:*fp16 M:i32 N:i32", {"BM": 32, "BN": 32}),
    "exchanges": (kernels.exchanges, "x:*i32 y:*i32", {"N": 64}),
    "arranged": (kernels.arranged, "x:*fp32 indices:*i32 y:*fp32 z:*fp32 w:*fp32 g:*fp32", {"N": 128}),
}


def compiled(name: str, target: str) -> dict[str, Kernel]:
    function, signature, constants = SOURCES[name]
    return stages(function, signature, target, **constants)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SOURCES)
def test_stages_of_one_kernel_mean_the_same_and_line_up(name: str, target: str) -> None:
    found = compiled(name, target)
    for stage in ("first", "last"):
        check_layouts(found[stage])
        judgement = judge(found["ttir"], found[stage], grid=(2, 2, 1))
        assert judgement.pages and not judgement.unreached


#: Ops whose operands change places, or that become others, for the kernel to mean something else.
OTHERS = {
    "arith.addf": "arith.subf", "arith.subf": "arith.addf", "arith.mulf": "arith.addf", "arith.addi": "arith.subi",
    "arith.maxnumf": "arith.minnumf", "arith.muli": "arith.addi", "math.exp": "math.exp2", "math.exp2": "math.exp",
    "arith.divf": "arith.mulf",
}
REDUCTIONS = {"arith.addf": "arith.mulf", "arith.maxnumf": "arith.addf"}


@contextmanager
def changed(op: Operation) -> Iterator[str]:
    """What is changed about the op while the context lasts; empty if nothing."""
    inner = op.body.operations[0] if op.name == "tt.reduce" else None
    kept, names = list(op.operands), (op.name, inner.name if inner else "")
    what = ""
    if op.name in OTHERS:
        op.name = OTHERS[op.name]
        what = f"{names[0]} to {op.name}"
    elif op.name == "arith.select":
        op.operands[1], op.operands[2] = kept[2], kept[1]
        what = "select"
    elif inner is not None and inner.name in REDUCTIONS:
        inner.name = REDUCTIONS[inner.name]
        what = f"reduce by {names[1]}"
    try:
        yield what
    finally:
        op.operands[:] = kept
        op.name = names[0]
        if inner is not None:
            inner.name = names[1]


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "transpose", "exchanges"])
def test_changed_ops_are_found(name: str) -> None:
    kernel, other = (compiled(name, "sm80")["last"] for _ in range(2))
    missed, tried = [], 0
    for op in list(other.walk()):
        with changed(op) as what:
            if what:
                tried += 1
                try:
                    judge(kernel, other, grid=(2, 2, 1))
                    missed.append(what)
                except (VerificationError, ProgramError):
                    pass
    assert tried > 2 and not missed, missed


def test_ops_with_effects_that_are_gone_are_found() -> None:
    for name in ("tt.store", "tt.atomic_rmw"):
        kernel, other = (compiled("exchanges", "sm80")["last"] for _ in range(2))
        op = next(o for o in other.walk() if o.name == name)
        assert op.parent is not None
        op.parent.operations.remove(op)
        with pytest.raises(VerificationError, match="computes something else: buffer"):
            judge(kernel, other)


def test_masks_that_are_gone_are_found() -> None:
    kernel, other = (compiled("layer_norm", "sm80")["last"] for _ in range(2))
    next(o for o in other.walk() if o.name == "tt.store").operands.pop()
    with pytest.raises(VerificationError):
        judge(kernel, other)


def test_kernels_of_other_arguments_are_refused() -> None:
    with pytest.raises(ProgramError, match="take different arguments"):
        judge(compiled("softmax", "sm80")["last"], compiled("transpose", "sm80")["last"])


def test_numbers_may_be_given() -> None:
    kernel = compiled("layer_norm", "sm80")["last"]
    assert judge(kernel, kernel, numbers={4: 0}).unreached  # the loops do not run
    assert not judge(kernel, kernel, numbers={4: 40}).unreached


def test_reorderings_keep_their_encodings() -> None:
    kernel, other = (compiled("arranged", "sm80")["last"] for _ in range(2))
    for k in (kernel, other):
        next(op for op in k.walk() if op.name == "tt.reshape").properties["allow_reorder"] = "unit"
    judge(kernel, other)
    value = next(op for op in other.walk() if op.name == "tt.reshape").results[0]
    assert value.tensor is not None
    value.type = elsewhere(value.tensor)
    with pytest.raises(VerificationError, match="orders elements otherwise: tt.reshape"):
        judge(kernel, other)


def test_reshapes_that_keep_the_order_may_lie_elsewhere() -> None:
    fields = "threadsPerWarp = [32], warpsPerCTA = [4], order = [0]"
    layouts = [f"#ttg.blocked<{{sizePerThread = [{n}], {fields}}}>" for n in (1, 2)]
    texts = [f"""module attributes {{"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32}} {{
      tt.func public @f(%p: !tt.ptr<i32>) {{
        %r = tt.make_range {{start = 0 : i32, end = 256 : i32}} : tensor<256xi32, {layout}>
        %s = tt.reshape %r allow_reorder : tensor<256xi32, {layout}> -> tensor<256xi32, {layout}>
        %b = tt.splat %p : !tt.ptr<i32> -> tensor<256x!tt.ptr<i32>, {layout}>
        %a = tt.addptr %b, %r : tensor<256x!tt.ptr<i32>, {layout}>, tensor<256xi32, {layout}>
        tt.store %a, %s : tensor<256x!tt.ptr<i32>, {layout}>
        tt.return
      }}
    }}""" for layout in layouts]
    assert judge(*map(load, texts)).pages > 0


def elsewhere(type_: TensorType) -> TensorType:
    """The type at a layout that no compiler chooses: all elements in registers of every thread."""
    bases = [tuple(1 << k if d == e else 0 for e in range(len(type_.shape)))
             for d, n in enumerate(type_.shape) for k in range(n.bit_length() - 1)]
    registers = ", ".join(str(list(v)) for v in bases)
    zeros = ", ".join(str([0] * len(type_.shape)) for _ in range(5))
    warps = ", ".join(str([0] * len(type_.shape)) for _ in range(2))
    return type_._replace(encoding=f"#ttg.linear<{{register = [{registers}], lane = [{zeros}], warp = [{warps}], "
                                   "block = []}>")
