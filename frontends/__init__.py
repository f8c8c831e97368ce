"""Front ends, each of which reads one kind of source into a `Program`.

*In*: whatever holds a sharded tensor program: a Program built by hand (`builder`), StableHLO with Shardy's or GSPMD's
shardings (`stablehlo/`), what JAX lowers or exports (`jax/`), and any other source whose front end was registered::

    class Tuples(Frontend):
        name = "a nested tuple"

        def accepts(self, source):
            return isinstance(source, tuple)

        def read(self, source):
            ...  # a Program, e.g. by ProgramBuilder

    register(Tuples())

From then on `eggshard.optimize`, `Plan.require` and everything else that takes a program takes nested tuples.
`protocol` says what a front end is, and `registry` finds the one for a source, asking each in turn. Neither imports a
framework that programs are written in: a front end tells its sources by their class's name, and imports on reading.

*Out*: a Program, which means what the source does and states the shardings that it states, and no others; and how the
source is called (`CallingConvention`), for those who run plans. Regions are in normal form (`normalization/`), which
front ends share. Shardings that a program leaves open are found by Shardy's own propagation (`propagation`), in a
process of its own (`jaxlib_passes`).

*Not here*: what an op means (`ops/`), which programs are equal (`rewrites/`), and everything that costs. A front end
neither chooses nor improves; what it cannot read it refuses, naming the place and the remedy.

`python -m bench dense stencil` shows what a change of its constants does.
"""

from eggshard.frontends.protocol import (
    CallingConvention as CallingConvention,
    Frontend as Frontend,
    is_of_class as is_of_class,
)
from eggshard.frontends.registry import frontend_of as frontend_of, load as load, register as register
