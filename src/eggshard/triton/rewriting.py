"""Rewriting of a kernel by a selection: every op at its chosen encodings, with the conversions that are paid.

Ops keep their places. An op chosen at several encodings is written several times, at the same place; a conversion
follows what it converts, or is at the start of the block whose view it converts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from eggshard.errors import ProgramError
from eggshard.triton.candidates import encoding_of
from eggshard.triton.classes import CONVERT
from eggshard.triton.control import Tie, ties
from eggshard.triton.kernels.ir import Block, Kernel, Operation, Type, Value
from eggshard.triton.layouts.encodings import Encoding
from eggshard.triton.problem import KernelProblem
from eggshard.triton.rules import Option, current, with_option
from eggshard.triton.rules.cloning import with_encoding
from eggshard.triton.spelling import Layouts


def rewrite(problem: KernelProblem, layouts: Layouts) -> Kernel:
    """The problem's kernel at these layouts. The kernel given stays as it is."""
    kernel = problem.kernel
    return Kernel(_Rewriter(problem, layouts).module(kernel.module), dict(kernel.aliases))


class _Rewriter:
    def __init__(self, problem: KernelProblem, layouts: Layouts) -> None:
        self.classes, self.problem, self.layouts = problem.classes, problem, layouts
        #: Tensors by class (or view) and encoding; other values.
        self.at: dict[tuple[int, Encoding], Value] = {}
        self.other: dict[Value, Value] = {}
        self.views: dict[Block, list[tuple[int, int]]] = {}
        for (block, c), view in problem.views.items():
            self.views.setdefault(block, []).append((c, view))

    def module(self, op: Operation) -> Operation:
        """A module, function or any op that holds blocks of no known meaning, with its blocks rewritten."""
        clone = op.bare([self._same(v, op) for v in op.operands])
        for result in op.results:
            self._define(result, clone.add_result(result.type, result.location))
        for block, new_block in clone.add_blocks_like(op):
            for argument in block.arguments:
                self._define(argument, new_block.add_argument(argument.type, argument.location))
            self._block(block, new_block)
        return clone

    # -- values ------------------------------------------------------------------------------------------------------

    def _define(self, old: Value, new: Value) -> None:
        c = self.classes.of.get(old)
        if c is None:
            self.other[old] = new
        else:
            self.at[c, encoding_of(new)] = new

    def _same(self, value: Value, op: Operation) -> Value:
        """A value as an op takes it whose operands keep their encodings."""
        return self.other[value] if value not in self.classes.of else self._fetch(value, encoding_of(value), op.parent)

    def _fetch(self, value: Value, encoding: Encoding, at: Block | None) -> Value:
        """A tensor at an encoding, as it is there in a block: itself, or its view in that or one around it."""
        c, block = self.classes.of[value], self.problem.view_block(value, at)
        view = c if block is None else self.problem.views.get((block, c), c)
        found = self.at.get((view, encoding)) or self.at.get((c, encoding))
        if found is None:
            raise ProgramError(f"a value of type {value.type} is not there at {encoding}")
        return found

    def _convert(self, c: int, block: Block, location: str) -> None:
        """The conversions of a class, after what they convert."""
        for source, target in self.layouts.converted.get(c, ()):
            value = self.at.get((c, source))
            if value is None or (c, target) in self.at:
                continue
            assert value.tensor is not None
            op = Operation(CONVERT, [value], parent=block, location=location)
            block.operations.append(op)
            self.at[c, target] = op.add_result(value.tensor._replace(encoding=str(target)))

    # -- blocks and ops ----------------------------------------------------------------------------------------------

    def _block(self, old: Block, new: Block) -> None:
        """Rewrite a block's ops into ``new``, whose arguments are defined."""
        location = old.operations[0].location if old.operations else ""
        for argument in old.arguments:
            if argument in self.classes.of:
                self._convert(self.classes.of[argument], new, location)
        for c, view in sorted(self.views.get(old, ())):  # operands before what is computed of them
            for encoding in self.layouts.viewed.get(view, ()):
                self.at[view, encoding] = self.at[c, encoding]
            for op, option in self.layouts.again.get(view, ()):
                (result,) = self._clone(op, option, new, old).results
                self.at[view, encoding_of(result)] = result
            self._convert(view, new, location)
        for op in old.operations:
            self._operation(op, new)

    def _operation(self, op: Operation, block: Block) -> None:
        if op.name == CONVERT:
            return
        if op in self.classes.same:
            self._repeat(op)
            return
        tied = ties(op)
        if tied is not None:
            self._put(self._control(op, tied), block)
        elif op.parent is not None and op is op.parent.terminator and ties(op.parent_op or op) is not None:
            return  # written by the op that it ends
        elif op.regions and any(v in self.classes.of for inner in op.walk() if inner is not op
                                for v in (*inner.operands, *inner.results)):
            self._put(self.module(op), block)
        elif any(v in self.classes.of for v in (*op.operands, *op.results)):
            for option in self.layouts.runs.get(op, ()):
                self._defined(op, self._clone(op, option, block, op.parent))
        else:
            self._defined(op, self._clone(op, current(op), block, op.parent))
        for result in op.results:
            if result in self.classes.of:
                self._convert(self.classes.of[result], block, op.location)

    def _clone(self, op: Operation, option: Option, block: Block, at: Block | None) -> Operation:
        """The op at an option, at the end of a block, on what is there in ``at``. What its regions take from outside is
        taken from what is written."""
        clone = with_option(op, option, self._operands(op, option, at))
        for inner in clone.walk():
            if inner is not clone:
                inner.operands = [self.other.get(v, v) for v in inner.operands]
        self._put(clone, block)
        return clone

    def _defined(self, op: Operation, clone: Operation) -> None:
        for old, new in zip(op.results, clone.results, strict=True):
            self._define(old, new)

    def _put(self, op: Operation, block: Block) -> None:
        op.parent = block
        block.operations.append(op)

    def _repeat(self, op: Operation) -> None:
        for old, new in zip(self.classes.same[op].results, op.results, strict=True):
            if old in self.other:
                self.other[new] = self.other[old]

    def _operands(self, op: Operation, option: Option, at: Block | None) -> list[Value]:
        found = []
        for value, encoding in zip(op.operands, option.operands, strict=True):
            if value not in self.classes.of:
                found.append(self.other[value])
            elif encoding is not None:
                found.append(self._fetch(value, encoding, at))
            else:
                found.append(self._any(value))
        return found

    def _any(self, value: Value) -> Value:
        """A tensor at whatever encoding it is there."""
        c = self.classes.of[value]
        return next(found for (other, _), found in self.at.items() if other == c)

    # -- loops and branches ------------------------------------------------------------------------------------------

    def _control(self, op: Operation, tied: list[Tie]) -> Operation:
        """A loop or branch with what it carries at the encodings chosen, several where a branch delivers several."""
        at = {tie: self._carried(tie) for tie in tied}
        numbers = {(use.op, use.operand): tie for tie in tied for use in (*tie.sources, *tie.back)}

        def expanded(user: Operation) -> list[Value]:
            found = []
            for i, value in enumerate(user.operands):
                tie = numbers.get((user, i))
                if tie is None or value not in self.classes.of:
                    if tie is None or at[tie]:
                        found.append(self._same(value, user))
                else:
                    found += [self._fetch(value, encoding, user.parent) for encoding in at[tie] if encoding is not None]
            return found

        def defined(values: Iterable[Value], add: Callable[[Type, str], Value]) -> None:
            for value in values:
                tie = next((t for t in tied if value in t.targets), None)
                for encoding in at[tie] if tie is not None else (None,):
                    self._define(value, add(with_encoding(value.type, encoding), value.location))

        clone = op.bare(expanded(op))
        for block, new_block in clone.add_blocks_like(op):
            defined(block.arguments, new_block.add_argument)
            self._block(block, new_block)
            self._put(block.terminator.bare(expanded(block.terminator)), new_block)
        defined(op.results, clone.add_result)
        return clone

    def _carried(self, tie: Tie) -> tuple[Encoding | None, ...]:
        """The encodings of a tie, none of one that nothing needs; (None,) for what is no tensor."""
        return tuple(self.layouts.carried.get(tie, ())) if tie.targets[0] in self.classes.of else (None,)
