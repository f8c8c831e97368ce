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


#: Functions that are measured: of all topics, in as many seconds as a machine with few cores has.
MEASURED = (
    "step of layers", "step with momentum", "cross entropy", "tied embeddings", "k-means", "power iteration",
    "step of a scan", "poisson in the plane", "diffusion in a loop", "shallow water", "graph network", "attention",
    "mixture of experts", "transformer of 1", "step of a vision transformer", "denoising step",
)  # fmt: skip


def little(name: str, seed: int) -> Open:
    """The function of this name, at sizes such as a machine with few cores runs in a second."""
    return next(program for program in programs(seed, little=True) if program.name == name)
