"""Passes that pad every tensor that a sharding divides unevenly, so that all shards are equal."""

from __future__ import annotations

from typing import Any

from jaxlib.mlir import ir

from eggshard.errors import ProgramError, ShardingError
from eggshard.shardy.local.emission import channels, typed
from eggshard.shardy.local.padding import indices as padding_indices
from eggshard.shardy.local.padding.rules import MOVES, Labels, Rule, rule_of
from eggshard.shardy.local.padding.values import PaddedValues, Sizes
from eggshard.shardy.local.permutation.factors import exchange_in_place
from eggshard.shardy.local.permutation.permuted import PERMUTED
from eggshard.shardy.module import BODIES, ShardyModule, rank, shape, symbol
from eggshard.shardy.passes import shardy_pass

assert padding_indices  # which adds its rules to the others


#: What to do about uneven shards, of functions and of computations inside of them.
OUTSIDE = "run update-non-divisible-input-output-shardings first"
INSIDE = "leave the axes that do not divide it out of the computation's shardings, and reshard the value inside"


@shardy_pass("pad-for-divisibility", on="func.func")
def pad_for_divisibility(module: ShardyModule) -> None:
    """Give tensors padding up to equal shards.

    What is behind a tensor is masked where an op would see it, and cut off where sizes must be the tensor's own. Ops
    along whose uneven dimensions elements still move fetch them from neighbours.
    ShardingError for function arguments and results, and operands, results and arguments of manual computations, whose
    shards are not equal to begin with.
    """
    channel = channels(module)
    values = PaddedValues(module, channel)
    for op in module.walk(*PERMUTED):
        if any(isinstance(x.type, ir.RankedTensorType) and values.even(x, shape(x)) != shape(x)
               for x in (*op.operands, *op.results)):
            exchange_in_place(module, op, channel)
    for function in module.functions:
        if function.regions[0].blocks:
            _Function(module, PaddedValues(module, channel)).pad(function)


class _Function:
    def __init__(self, module: ShardyModule, values: PaddedValues) -> None:
        self.module = module
        self.values = values

    def pad(self, function: Any) -> None:
        """Pad the values of a function; its arguments and results stay as they are."""
        name, block = symbol(function), function.regions[0].blocks[0]
        for i, argument in enumerate(block.arguments):
            self._check(f"argument {i} of @{name}", argument, OUTSIDE)
        stated = self.module.function_result_shardings(function)
        for i, (value, sharding) in enumerate(zip(list(block.operations)[-1].operands, stated, strict=True)):
            if sharding is not None and sharding.sharding.device is None:
                self.values.must_be_even(f"result {i} of @{name}", shape(value), sharding, OUTSIDE)
        self._block(block)
        self._returned(block, None)

    def _check(self, name: str, value: Any, remedy: str) -> None:
        self.values.must_be_even(name, shape(value), self.values.sharding(value), remedy)

    def _block(self, block: Any) -> None:
        ops = [op.operation for op in block.operations]
        for op, following in zip(ops, ops[1:], strict=False):
            self._op(op, following)

    def _op(self, op: Any, following: Any) -> None:
        if op.name in ("stablehlo.while", "stablehlo.case", "stablehlo.if"):
            self._regions(op)
        elif op.name in BODIES:
            self._body(op)
        elif self._concerned(op):
            try:
                self._apply(op, rule_of(self.values, op) or self._exact(op), following)
            except ProgramError as error:
                raise ProgramError(f"{op.name} has uneven shards: {error}") from None

    def _concerned(self, op: Any) -> bool:
        """Whether padding is anywhere near."""
        if any(self.values.is_padded(x) for x in op.operands):
            return True
        seen = (*op.operands, *op.results) if op.name in MOVES else op.results
        return any(self.values.even(x, shape(x)) != shape(x) for x in seen)

    def _exact(self, op: Any) -> Rule:
        """Operands and results of their own sizes. ShardingError for ops whose regions hold sharded tensors."""
        for inner in self.module.walk(root=op):
            if inner != op and (any(self.values.is_padded(x) for x in inner.operands) or any(
                    self.values.sharding(result) is not None for result in inner.results)):
                raise ShardingError(
                    f"{op.name} has uneven shards, and a region of tensors that pad-for-divisibility does not know; "
                    "shard what it takes and gives evenly: sdy.reshard it before and behind the op")
        return Rule([[None] * rank(x) for x in op.operands], [[None] * rank(x) for x in op.results])

    def _apply(self, op: Any, rule: Rule, following: Any) -> None:
        sizes = self._sizes(op, rule)
        own = [self.values.own(x) for x in op.results]
        targets = [self.values.even(x, n) for x, n in zip(op.results, own, strict=True)]
        for i, labels in enumerate(rule.operands):
            x = op.operands[i]
            if isinstance(x.type, ir.RankedTensorType):
                x = self.values.resized(x, self._labelled(labels, sizes, self.values.own(x)), op)
                if i in rule.masks:
                    x = self.values.masked(x, *rule.masks[i], op)
                op.operands[i] = x
        if rule.adjust:
            rule.adjust()
        kinds = rule.kinds() if rule.kinds else [None] * len(own)
        for i, (result, labels) in enumerate(zip(op.results, rule.results, strict=True)):
            if not isinstance(result.type, ir.RankedTensorType):
                continue
            natural = self._labelled(labels, sizes, own[i])
            result.set_type(typed(result, natural))
            self.values.record(result, own[i], kinds[i] if natural != own[i] else None)
            self._finish(result, targets[i], following)

    def _sizes(self, op: Any, rule: Rule) -> dict[int, int]:
        sizes: dict[int, int] = dict(rule.fixed)
        for result, labels in zip(op.results, rule.results, strict=True):
            if isinstance(result.type, ir.RankedTensorType):
                for label, size in zip(labels, self.values.even(result, self.values.own(result)), strict=True):
                    if label is not None and label not in rule.fixed:
                        sizes[label] = max(size, sizes.get(label, 0))
        chosen = set(sizes)
        for operand, labels in zip(op.operands, rule.operands, strict=True):
            for label, size in zip(labels, shape(operand), strict=False):
                if label is not None and label not in chosen:
                    sizes[label] = max(size, sizes.get(label, 0))
        return sizes

    @staticmethod
    def _labelled(labels: Labels, sizes: dict[int, int], own: Sizes) -> Sizes:
        return tuple(n if label is None else sizes[label] for label, n in zip(labels, own, strict=True))

    def _finish(self, result: Any, target: Sizes, following: Any) -> None:
        """Give a result the sizes that its sharding asks for; until then it is whole where its shards are uneven."""
        if shape(result) == target:
            return
        sharding = self.module.sharding(result)
        assert sharding is not None
        counts = self.values.shards(self.values.sharding(result), len(target))
        uneven = [d for d, count in enumerate(counts) if shape(result)[d] % count]
        uses = [(use.owner.operation, use.operand_number) for use in result.uses]
        if uneven:
            self.module.set_sharding(
                result, sharding.with_axes(() if d in uneven else axes for d, axes in enumerate(sharding.axes)))
        out, partial = self.values.resized(result, target, following), sharding
        for i, d in enumerate(uneven):
            later = uneven[i + 1 :]
            partial = sharding.with_axes(() if k in later else axes for k, axes in enumerate(sharding.axes))
            out = self.values.cut(out, d, partial, following)
        for user, number in uses:
            user.operands[number] = out

    def _returned(self, block: Any, targets: list[Sizes] | None) -> None:
        """Give what a block returns these sizes, or their own."""
        last = list(block.operations)[-1].operation
        for i, value in enumerate(last.operands):
            if isinstance(value.type, ir.RankedTensorType):
                target = self.values.own(value) if targets is None else targets[i]
                last.operands[i] = self.values.resized(value, target, last)

    def _regions(self, op: Any) -> None:
        """A loop or branches: what they carry has the sizes that the op's shardings ask for."""
        own = [shape(result) for result in op.results]
        targets = [self.values.even(result, n) for result, n in zip(op.results, own, strict=True)]
        loop = op.name == "stablehlo.while"
        for i, target in enumerate(targets):
            if loop and isinstance(op.operands[i].type, ir.RankedTensorType):
                op.operands[i] = self.values.resized(op.operands[i], target, op)
        for number, region in enumerate(op.regions):
            for block in region.blocks:
                for argument, target, n in zip(block.arguments, targets, own, strict=False):
                    self._set(argument, target, n)
                self._block(block)
                self._returned(block, None if loop and number == 0 else targets)
        for result, target, n in zip(op.results, targets, own, strict=True):
            self._set(result, target, n)

    def _set(self, value: Any, sizes: Sizes, own: Sizes) -> None:
        if isinstance(value.type, ir.RankedTensorType) and sizes != own:
            value.set_type(typed(value, sizes))
            self.values.record(value, own)

    def _body(self, op: Any) -> None:
        """A computation on shards: it takes and gives tensors of their own sizes, whose shards must be equal."""
        for i, x in enumerate(op.operands):
            if isinstance(x.type, ir.RankedTensorType):
                op.operands[i] = self.values.resized(x, self.values.own(x), op)
        block = op.regions[0].blocks[0]
        for i, argument in enumerate(block.arguments):
            self._check(f"argument {i} of {op.name}", argument, INSIDE)
        for i, result in enumerate(op.results):
            self._check(f"result {i} of {op.name}", result, INSIDE)
        self._block(block)
        self._returned(block, None)


