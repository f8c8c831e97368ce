"""Functions whose shardings are to be chosen, with the specs that users write by hand.

Sizes are drawn by a seed; names stay. Specs are of a mesh of 4 x 2 devices.
"""

from __future__ import annotations

from bench.programs.choices import dense, fields, images, irregular, loops, sequences
from bench.programs.choices.definition import Open, Sizes


def programs(seed: int = 0, little: bool = False) -> list[Open]:
    """The functions, at sizes drawn by the seed; little: such as a machine with few cores runs in a second."""
    sizes = Sizes.drawn(seed, little)
    topics = (dense, sequences, images, fields, loops, irregular)
    return [program for topic in topics for program in topic.programs(sizes)]
