"""Assignment of the halo regions (slabs) of several exchanges to collective-permutes.

Exchanges along the same axes are a bipartite multigraph: an edge is what one device sends to another of one value. A
collective-permute is a matching, and is as long as the longest of its messages. If slabs are grouped by equal device
pairs, a permute carries one list of pairs; but values that go between different devices can share one, too, each
device sending its own. Where all messages have one length, an edge colouring needs no more permutes than the busiest
device has messages (König's theorem), and so no more bytes than that device has to send or receive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from eggshard.placement.edge_colouring import colour_edges
from eggshard.placement.slabs import Slab
from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType
from eggshard.steps.window_steps import HaloExchange, JointExchange, Loads, Move, WindowExchange, moves_of

#: Fraction of the bytes that sharing permutes must save, so that rounding alone is no reason.
SAVING = 1e-12

Price = Callable[..., float]


def cheapest_joint(
    mesh: Mesh, parts: Sequence[HaloExchange], operands: Sequence[TensorType], price: Price
) -> JointExchange:
    """Exchanges of several values, one per operand, as one, in the permutes that the model prices lowest."""
    apart = JointExchange(tuple(parts))
    if not can_share(mesh, parts, operands):
        return apart
    options = [apart, *(JointExchange(tuple(parts), rounds) for rounds in _ways(apart, operands))]
    return min(options, key=lambda action: (price(action, *operands), action.messages))


def can_share(mesh: Mesh, parts: Sequence[HaloExchange], operands: Sequence[TensorType]) -> bool:
    """Whether a permute for every list of pairs is more than what the busiest device must send or receive."""
    sent, received = ([0.0] * len(parts[0].offsets) for _ in range(2))
    for move, size in _moves(parts, operands):
        sent[move.sender] += size
        received[move.receiver] += size
    apart = JointExchange(tuple(parts)).serial_bytes(mesh, tuple(operands))
    return max(*sent, *received) < apart * (1 - SAVING)


def _moves(parts: Iterable[HaloExchange], operands: Sequence[TensorType]) -> list[tuple[Move, int]]:
    """Everything that devices send to others, with its bytes."""
    out = []
    for i, part in enumerate(parts):
        shape = operands[i].shape
        for slab in part.rounds:
            size = operands[i].with_shape((*shape[: part.dim], slab.width, *shape[part.dim + 1 :])).bytes
            out += [(move, size) for move in moves_of(i, slab)]
    return out


def _ways(apart: WindowExchange, operands: Sequence[TensorType]) -> list[tuple[Loads, ...]]:
    """Ways to put all messages into permutes, each of the fewest bytes in some case."""
    parts = apart.exchanges
    count = len(parts[0].offsets)
    moves = _moves(parts, operands)
    by_size: dict[int, list[Move]] = {}
    by_pair: dict[tuple[int, int], list[tuple[Move, int]]] = {}
    for move, size in moves:
        by_size.setdefault(size, []).append(move)
        by_pair.setdefault((move.sender, move.receiver), []).append((move, size))
    coloured: list[list[list[Move]]] = []
    for _, same in sorted(by_size.items(), reverse=True):
        colours = colour_edges([m.sender for m in same], [m.receiver for m in same], count).tolist()
        for colour in range(max(colours) + 1):
            coloured.append([[m] for m, c in zip(same, colours, strict=True) if c == colour])
    sizes = dict(moves)
    together = sorted(by_pair.values(), key=lambda messages: -sum(size for _, size in messages))
    options = (
        _packed(coloured, sizes),
        _packed([[[m]] for m, _ in sorted(moves, key=lambda pair: -pair[1])], sizes),
        _packed([[[m for m, _ in messages]] for messages in together], sizes),
    )
    return [tuple(_loads(round_, count) for round_ in rounds) for rounds in options]


def _packed(rounds: Iterable[list[list[Move]]], sizes: dict[Move, int]) -> list[list[list[Move]]]:
    """Rounds of messages, longest first, each put into the first permute in which its devices are free."""

    def longest(round_: list[list[Move]]) -> int:
        return max(sum(sizes[m] for m in message) for message in round_)

    out: list[tuple[set[int], set[int], list[list[Move]]]] = []
    for round_ in sorted(rounds, key=longest, reverse=True):
        senders, receivers = {message[0].sender for message in round_}, {message[0].receiver for message in round_}
        for taken, given, messages in out:
            if not (taken & senders or given & receivers):
                taken |= senders
                given |= receivers
                messages.extend(round_)
                break
        else:
            out.append((senders, receivers, list(round_)))
    return [messages for _, _, messages in out]


def _loads(messages: Iterable[Sequence[Move]], count: int) -> Loads:
    """The messages of one permute, those with slabs of the same operands and widths as one load."""
    alike: dict[tuple[tuple[int, int], ...], list[Sequence[Move]]] = {}
    for message in messages:
        alike.setdefault(tuple((m.operand, m.width) for m in message), []).append(message)
    return tuple(
        tuple((operand, _slab([message[k] for message in group], count)) for k, (operand, _) in enumerate(key))
        for key, group in alike.items()
    )


def _slab(moves: Sequence[Move], count: int) -> Slab:
    """What several devices send of one operand, as one slab."""
    starts = [[0] * count for _ in range(2)]
    for m in moves:
        starts[0][m.sender], starts[1][m.receiver] = m.source_start, m.target_start
    pairs = tuple(sorted((m.sender, m.receiver) for m in moves))
    return Slab(pairs, moves[0].width, tuple(starts[0]), tuple(starts[1]))


