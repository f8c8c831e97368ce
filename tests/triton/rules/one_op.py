"""Kernels of one op on values of which the compiler knows nothing, and the op's elements where threads hold them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eggshard.triton.frontend.libtriton import module_of
from eggshard.triton.kernels.ir import Kernel, Operation, TensorType, Value
from eggshard.triton.kernels.text import read_generic, read_type
from eggshard.triton.layouts.encodings import Encoding
from eggshard.triton.layouts.families import linear_layout
from eggshard.triton.layouts.machine import Machine
from eggshard.triton.rules import Option, with_option

SM80 = Machine("cuda:80", 4, 32)
SM90 = Machine("cuda:90", 4, 32)
GFX942 = Machine("hip:gfx942", 4, 64)
CLUSTER = Machine("cuda:90", 4, 32, 2)

@dataclass(frozen=True)
class Sample:
    """An op by its generic form: types of operands and results without encodings, properties and regions as text."""

    name: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    properties: str = ""
    regions: str = ""
    machines: tuple[Machine, ...] = (SM80, SM90, GFX942)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.operands)})"


def combine(kind: str, count: int = 1, element: str = "f32") -> str:
    """The region of a reduction or scan that adds, of so many tensors at once."""
    arguments = ", ".join(f"%x{i}: {element}" for i in range(2 * count))
    add = "arith.addf" if element.startswith("f") else "arith.addi"
    fast = " <{fastmath = #arith.fastmath<none>}>" if element.startswith("f") else (
        " <{overflowFlags = #arith.overflow<none>}>")
    lines = [f'%s{i} = "{add}"(%x{i}, %x{i + count}){fast} : ({element}, {element}) -> {element}' for i in range(count)]
    names, types = ", ".join(f"%s{i}" for i in range(count)), ", ".join([element] * count)
    return f"({{\n^bb0({arguments}):\n" + "\n".join(lines) + f'\n"tt.{kind}.return"({names}) : ({types}) -> ()\n}})'


def typed(text: str, encoding: Encoding | None) -> str:
    """A type at an encoding, spelled."""
    type_ = read_type(text)
    return str(type_._replace(encoding=str(encoding))) if isinstance(type_, TensorType) and encoding else text


def kernel_at(sample: Sample, given: Option, option: Option, machine: Machine) -> tuple[Kernel, Operation]:
    """A kernel of the op as given (its results at ``given``), put at ``option`` by `with_option`."""
    lines = ['%one = "arith.constant"() <{value = 1 : i64}> {mark} : () -> i64']
    names = [_produced(text, encoding, i, machine, lines)
             for i, (text, encoding) in enumerate(zip(sample.operands, option.operands, strict=True))]
    operand_types = [typed(t, e) for t, e in zip(sample.operands, option.operands, strict=True)]
    result_types = [typed(t, e) for t, e in zip(sample.results, given.results, strict=True)]
    properties = sample.properties
    for text, encoding in zip(sample.results, given.results, strict=True):
        properties = properties.replace("RESULT", typed(text, encoding))
    made = f"%o:{len(result_types)} = " if result_types else ""
    lines.append(f'{made}"{sample.name}"({", ".join(names)})' + (f" <{{{properties}}}>" if properties else "")
                 + (f" {sample.regions}" if sample.regions else "")
                 + f" : ({', '.join(operand_types)}) -> ({', '.join(result_types)})")
    for i, (text, encoding) in enumerate(zip(sample.results, option.results, strict=True)):
        _consumed(text, encoding, i, machine, lines)
    attributes = (f'"ttg.num-ctas" = {machine.num_ctas} : i32, "ttg.num-warps" = {machine.num_warps} : i32, '
                  f'ttg.target = "{machine.target}", "ttg.threads-per-warp" = {machine.threads_per_warp} : i32')
    scalars = "i32, i64, !tt.ptr<f32>, !tt.ptr<f16>"
    body = "\n".join(lines)
    kernel = read_generic(f"""
"builtin.module"() ({{
  "tt.func"() <{{arg_attrs = [{{}}, {{}}, {{tt.divisibility = 16 : i32}},
                {{tt.divisibility = 16 : i32}}], function_type = ({scalars}) -> (),
                sym_name = "kernel", sym_visibility = "public"}}> ({{
  ^bb0(%r: i32, %l: i64, %p: !tt.ptr<f32>, %h: !tt.ptr<f16>):
{body}
"tt.return"() : () -> ()
  }}) {{noinline = false}} : () -> ()
}}) {{{attributes}}} : () -> ()
""")
    return kernel, _replaced(kernel, sample, option)


def _replaced(kernel: Kernel, sample: Sample, option: Option) -> Operation:
    (function,) = kernel.functions
    block = function.regions[0].blocks[0]
    place = next(i for i, op in enumerate(block.operations) if op.name == sample.name and not op.attributes)
    old = block.operations[place]
    new = with_option(old, option, old.operands)
    new.parent = block
    block.operations[place] = new
    mapped = dict(zip(old.results, new.results, strict=True))
    for op in block.operations:
        op.operands = [mapped.get(v, v) for v in op.operands]
    return new


def _letter(element: str) -> tuple[str, str]:
    return ("i64", "l") if element in ("i64", "f64") or "ptr" in element else ("i32", "r")


def _assembly(letter: str, machine: Machine) -> str:
    if machine.vendor == "hip":
        text, constraints = "; $0 $1", "=v,v"
    else:
        text, constraints = f"mov.b{32 if letter == 'r' else 64} $0, $1;", f"={letter},{letter}"
    return (f'<{{asm_string = "{text}", constraints = "{constraints}", packed_element = 1 : i32, pure = false}}>'
            ' {mark}')


def _produced(text: str, encoding: Encoding | None, i: int, machine: Machine, lines: list[str]) -> str:
    type_ = read_type(text)
    if not isinstance(type_, TensorType):
        if text.startswith("!ttg.memdesc"):
            lines.append(f'%b{i} = "ttg.local_alloc"() {{mark}} : () -> {text}')
            return f"%b{i}"
        if text.startswith("!tt.tensordesc"):
            lines.append(f'%d{i} = "tt.make_tensor_descriptor"(%h, %r, %r, %l, %one) <{{operandSegmentSizes = '
                         f'array<i32: 1, 2, 2>, padding = 1 : i32}}> {{mark}} : '
                         f'(!tt.ptr<f16>, i32, i32, i64, i64) -> {text}')
            return f"%d{i}"
        return {"i32": "%r", "i64": "%l", "!tt.ptr<f32>": "%p"}[text]
    integer, letter = _letter(type_.element)
    wide = str(type_._replace(element=integer, encoding=str(encoding)))
    final = str(type_._replace(encoding=str(encoding)))
    lines.append(f'%m{i} = "tt.splat"(%{letter}) {{mark}} : ({integer}) -> {wide}')
    lines.append(f'%n{i} = "tt.elementwise_inline_asm"(%m{i}) {_assembly(letter, machine)} : ({wide}) -> {wide}')
    if type_.element == integer:
        return f"%n{i}"
    if "ptr" in type_.element:
        lines.append(f'%t{i} = "tt.int_to_ptr"(%n{i}) {{mark}} : ({wide}) -> {final}')
        return f"%t{i}"
    digits = int("".join(c for c in type_.element.partition("E")[0] if c.isdigit()))
    source = f"%n{i}"
    if digits < 32:
        narrow = str(type_._replace(element=f"i{digits}", encoding=str(encoding)))
        lines.append(f'%u{i} = "arith.trunci"(%n{i}) {{mark}} : ({wide}) -> {narrow}')
        if type_.element == f"i{digits}":
            return f"%u{i}"
        source, wide = f"%u{i}", narrow
    lines.append(f'%t{i} = "tt.bitcast"({source}) {{mark}} : ({wide}) -> {final}')
    return f"%t{i}"


def _consumed(text: str, encoding: Encoding | None, i: int, machine: Machine, lines: list[str]) -> None:
    type_ = read_type(text)
    if not isinstance(type_, TensorType):
        return
    integer, letter = _letter(type_.element)
    wide = str(type_._replace(element=integer, encoding=str(encoding)))
    given = str(type_._replace(encoding=str(encoding)))
    source = f"%o#{i}"
    if "ptr" in type_.element:
        lines.append(f'%w{i} = "tt.ptr_to_int"({source}) {{mark}} : ({given}) -> {wide}')
        source = f"%w{i}"
    elif type_.element != integer:
        digits = int("".join(c for c in type_.element.partition("E")[0] if c.isdigit()))
        same = str(type_._replace(element=f"i{digits}", encoding=str(encoding)))
        if same != given:
            lines.append(f'%v{i} = "tt.bitcast"({source}) {{mark}} : ({given}) -> {same}')
            source = f"%v{i}"
        if digits < 32:
            lines.append(f'%w{i} = "arith.extui"({source}) {{mark}} : ({same}) -> {wide}')
            source = f"%w{i}"
    lines.append(f'%z{i} = "tt.elementwise_inline_asm"({source}) {_assembly(letter, machine)} : ({wide}) -> {wide}')


def verify(kernel: Kernel) -> None:
    """Raises `ProgramError` where libtriton refuses the kernel."""
    module_of(kernel)


def held(value: Value, encoding: Encoding, machine: Machine) -> tuple[np.ndarray, ...]:
    """The elements that each thread of a cluster holds of a tensor: their indices, ``[threads, registers]`` each."""
    assert value.tensor is not None
    layout = linear_layout(encoding, value.tensor.shape)
    assert layout is not None
    vectors = _sums([*layout.lane, *layout.warp, *layout.block])[:, None] ^ _sums(layout.register)[None, :]
    found = []
    for n in layout.shape:
        found.append(vectors & (n - 1))
        vectors = vectors >> (n.bit_length() - 1)
    return tuple(found)


def _sums(vectors: Sequence[int]) -> np.ndarray:
    """The sums over GF(2) of all subsets, the first vector the fastest to come and go."""
    total = np.zeros(1, dtype=np.int64)
    for vector in vectors:
        total = np.concatenate([total, total ^ vector])
    return total
