"""Running a kernel's function: blocks and regions op by op, one program instance after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from eggshard.errors import ProgramError
from eggshard.triton.kernels.ir import Block, Kernel, Operation, Region, Value
from testing.kernel_interpreter import elements
from testing.kernel_interpreter.memory import Memory
from testing.kernel_interpreter.registry import MEANINGS, PURE

#: Turns of one loop whose number nothing bounds (``scf.while``, branches back) before the run is given up.
MOST_TURNS = 100_000


#: What is told of every op that has run.
Watch = Callable[[Operation], None]
#: What waits: called with a test, it comes back once the test is true.
Wait = Callable[[Callable[[], bool]], None]


class _Step(NamedTuple):
    """An op made ready: what it does, and the shape and type that each result must have (None: no numbers)."""

    op: Operation
    act: Callable[..., Any]
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    specs: tuple[tuple[tuple[int, ...], np.dtype[Any]] | None, ...]


class Program:
    """One run of a kernel: its memory, and where in the grid the instance at hand stands.

    ``undefined``: the byte of which values consist that the kernel leaves undefined (elements masked off without an
    ``other``, fresh shared memory, poison). A kernel that means something gives the same outputs for any.
    ``values``: of the function that runs. ``state``: what ops remember of the instance (barriers, descriptors).
    """

    def __init__(self, kernel: Kernel, memory: Memory, grid: tuple[int, int, int], undefined: int = 0,
                 watch: Watch | None = None) -> None:
        self.kernel = kernel
        self.memory = memory
        self.grid = grid
        self.undefined = undefined
        self.watch = watch
        self.instance = (0, 0, 0)
        self.functions = {(op.attribute("sym_name") or "").strip('"'): op for op in kernel.functions}
        self.values: dict[Value, Any] = {}
        self.state: dict[Any, Any] = {}
        self._steps: dict[Block, list[_Step]] = {}
        self._wait: Wait | None = None

    def run(self, function: Operation, arguments: Sequence[Any]) -> None:
        """All instances, the first dimension of the grid fastest."""
        with np.errstate(all="ignore"):
            for z, y, x in product(*(range(n) for n in reversed(self.grid))):
                self.instance = (x, y, z)
                self.state = {}
                self.call(function, arguments)

    def wait(self, ready: Callable[[], bool]) -> None:
        """Waits for what other warps of the instance do; without such, it has happened or never will."""
        if self._wait is not None:
            self._wait(ready)
        elif not ready():
            raise ProgramError("waits for a barrier that nobody completes")

    def beside(self, wait: Wait) -> Program:
        """For other warps of the same instance: the same memory and values so far, values of its own from here on."""
        found = Program(self.kernel, self.memory, self.grid, self.undefined, self.watch)
        found.instance, found.state, found.values, found._wait = self.instance, self.state, dict(self.values), wait
        return found

    def call(self, function: Operation, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """The results of a function for its arguments."""
        kept, self.values = self.values, {}
        try:
            return self.region(function.regions[0], arguments)
        finally:
            self.values = kept

    def region(self, region: Region, arguments: Sequence[Any] = (), batched: bool = False) -> tuple[Any, ...]:
        """The operands of the terminator that leaves the region. ``batched``: for arrays of the arguments' scalars."""
        if not region.blocks:
            return ()
        if len(region.blocks) == 1:
            return self.block(region.blocks[0], arguments, batched)
        block, turns = region.blocks[0], 0
        while True:
            found = self.block(block, arguments, batched)
            target = self._branch(block.terminator, found)
            if target is None:
                return found
            number, arguments = target
            block = region.blocks[number]
            turns += 1
            if turns > MOST_TURNS:
                raise block.terminator.error(f"no end after {MOST_TURNS} branches")

    @staticmethod
    def _branch(op: Operation, values: tuple[Any, ...]) -> tuple[int, tuple[Any, ...]] | None:
        """Block and arguments that a branch goes to; None of an op that leaves the region."""
        if op.name == "cf.br":
            return int(op.successors[0][1:]), values
        if op.name != "cf.cond_br":
            return None
        first = int((op.attribute("operandSegmentSizes") or "").split(",")[1])
        if values[0]:
            return int(op.successors[0][1:]), values[1:1 + first]
        return int(op.successors[1][1:]), values[1 + first:]

    def block(self, block: Block, arguments: Sequence[Any] = (), batched: bool = False) -> tuple[Any, ...]:
        """The operands of a block's terminator."""
        values = self.values
        for argument, value in zip(block.arguments, arguments, strict=True):
            values[argument] = value
        steps = self._steps.get(block)
        if steps is None:
            steps = self._steps[block] = [self._step(op) for op in block.operations]
        for op, act, operands, results, specs in steps[:-1]:
            try:
                found = act(op, *[values[v] for v in operands])
            except ProgramError as error:
                if error.located:
                    raise
                raise op.error(str(error)) from error
            except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
                raise op.error(f"the interpreter fails: {error!r}") from error
            if self.watch is not None:
                self.watch(op)
            if len(results) == 1 and not isinstance(found, (tuple, list)):
                found = (found,)
            elif not results:
                continue
            for value, array, expected in zip(results, found, specs, strict=True):
                if expected is not None:
                    array = np.asarray(array)
                    shape, dtype = expected
                    if array.dtype != dtype or (array.shape != shape and not batched):
                        raise op.error(f"the interpreter got {array.dtype}{list(array.shape)}")
                values[value] = array
        return tuple(values[v] for v in block.terminator.operands)

    def _step(self, op: Operation) -> _Step:
        terminator = op.parent is not None and op is op.parent.operations[-1]
        act = _nothing if terminator else self._meaning(op)
        try:
            specs = tuple(elements.spec(v.type) for v in op.results)
        except ProgramError as error:
            raise op.error(str(error)) from error
        return _Step(op, act, tuple(op.operands), tuple(op.results), specs)

    def _meaning(self, op: Operation) -> Callable[..., Any]:
        """``f(op, *operands)`` of an op. Raises `ProgramError` for one without a meaning."""
        if op.name in PURE:
            return PURE[op.name]
        if op.name in MEANINGS:
            return partial(MEANINGS[op.name], self)
        raise op.error("the interpreter does not know what this op means")

    def fill(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> elements.Array:
        """An array of undefined elements, fresh."""
        if dtype == np.bool_:
            return np.full(shape, bool(self.undefined & 1))
        return np.full((*shape, dtype.itemsize), self.undefined, np.uint8).view(dtype).reshape(shape)


def _nothing(op: Operation, *operands: Any) -> tuple[()]:
    return ()
