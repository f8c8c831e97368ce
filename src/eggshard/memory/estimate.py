from eggshard.memory.buffers import temporaries
from eggshard.memory.instructions import instructions
from eggshard.memory.reading import nodes_of


def inside(block, types, carried):
    full = dict(types)
    block.types = {**full, **block.types}
    return temporaries(nodes_of(block, inside), carried)


def estimate(program):
    return temporaries(nodes_of(instructions(program), inside))
