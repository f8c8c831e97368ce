"""Tactics for the step of a training loop, by what its arguments are there (`leaves`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eggshard.errors import ShardingError
from eggshard.planner.choosing.narrowing import End, Restriction, Tactic
from eggshard.program.mesh import Mesh
from eggshard.tactics.leaves import Of, batch, carried, chosen_by, matrices, parameters, state
from eggshard.tactics.primitives import checked, sharded, unsharded, written

_BATCH = "of the batch: an argument that is not fed back, where others are"
_MATRIX = "fed back and has two dimensions or more"


def data_parallel(axis: str, *, of: Of = None) -> Tactic:
    """Shard the first dimension of the batch along a mesh axis.

    The batch is what is not fed back, and has the size of the first dimension that most of that has. Where parameters
    lie is left open: `zero` says that, at level 0 that the axis shards none of them. of: other leaves.
    """
    def restrictions(ends: Sequence[End], mesh: Mesh) -> Iterator[Restriction]:
        return sharded(chosen_by(of, ends, batch(ends), _BATCH), checked(axis, mesh), 0)

    return Tactic(written("data_parallel", axis, of=of), restrictions)


def zero(level: int, axis: str, *, of: Of = None) -> Tactic:
    """Shard what is fed back along a data-parallel mesh axis, by the levels of ZeRO (arXiv:1910.02054).

    Level 0: nothing. 1: the state of the optimizer, but not parameters. 2: as 1, since gradients are neither arguments
    nor results, and the plan scatters them where that is cheaper. 3: state and parameters. What has one dimension is
    left open. of: what is sharded instead of the state (1, 2) or of all (3), or is not sharded (0).

    Parameters are what is called ``params``, ``parameters`` or ``model`` in a leaf's name, else the first argument that
    is fed back; the rest of what is fed back is state. ShardingError for another level.
    """
    if level not in (0, 1, 2, 3):
        raise ShardingError(f"tactic zero has levels 0, 1, 2 and 3, not {level!r}")

    def restrictions(ends: Sequence[End], mesh: Mesh) -> Iterator[Restriction]:
        axes = checked(axis, mesh)
        if level == 0:
            yield from unsharded(chosen_by(of, ends, carried(ends), "fed back"), axes)
            return
        usual, what = (matrices(carried(ends)), _MATRIX) if level == 3 else (
            matrices(state(ends)), f"state of an optimizer, which is {_MATRIX}")
        chosen = chosen_by(of, ends, usual, what)
        yield from sharded(chosen, axes)
        if level < 3:
            yield from unsharded([end for end in parameters(ends) if end not in chosen], axes)

    return Tactic(written("zero", level, axis, of=of), restrictions)


def megatron(axis: str, *, of: Of = None) -> Tactic:
    """Shard every matrix that is fed back along a mesh axis, in the dimension that the search finds, and the first
    dimension of the batch not (arXiv:1909.08053).

    of: what is sharded instead of what is fed back and has two dimensions or more.
    """
    def restrictions(ends: Sequence[End], mesh: Mesh) -> Iterator[Restriction]:
        axes = checked(axis, mesh)
        chosen = chosen_by(of, ends, matrices(carried(ends)), _MATRIX)
        yield from sharded(chosen, axes)
        yield from unsharded([end for end in batch(ends) if end not in chosen], axes, 0)

    return Tactic(written("megatron", axis, of=of), restrictions)


def sequence_parallel(axis: str, dim: int = 1, *, of: Of = None) -> Tactic:
    """Shard the batch's dimension of positions along a mesh axis. of: other leaves than the batch's of that many
    dimensions."""
    def restrictions(ends: Sequence[End], mesh: Mesh) -> Iterator[Restriction]:
        usual = [end for end in batch(ends) if end.type.rank > dim]
        return sharded(chosen_by(of, ends, usual, f"{_BATCH}, and has a dimension {dim}"), checked(axis, mesh), dim)

    return Tactic(written("sequence_parallel", axis, *([] if dim == 1 else [dim]), of=of), restrictions)


def expert_parallel(axis: str, experts: int, *, of: Of = None) -> Tactic:
    """Shard along a mesh axis the first dimension whose size is the number of experts, of everything that is fed back,
    has such a dimension, and two or more others.

    What routes to experts has one other dimension, and is left open. of: other leaves that have such a dimension.
    """
    def restrictions(ends: Sequence[End], mesh: Mesh) -> Iterator[Restriction]:
        axes = checked(axis, mesh)
        those = [end for end in ends if experts in end.type.shape]
        usual = [end for end in carried(those) if end.type.rank > 2]
        what = f"fed back and has a dimension of {experts} experts, and two others"
        for end in chosen_by(of, those, usual, what):
            yield from sharded([end], axes, end.type.shape.index(experts))

    return Tactic(written("expert_parallel", axis, experts, of=of), restrictions)
