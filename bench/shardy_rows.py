"""What ``python -m bench shardy`` compares: passes, the random modules they run on, and how results are compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.shardy.clean_up.features import ALL, FEATURES, REGIONS
from tests.shardy.modules import random_module

Features = dict[str, Any]

#: jaxlib's passes that turn explicit reshards into collectives, and those before them.
CANONICAL = "canonicalize{enable-patterns=sdy-collective}"
COLLECTIVES = f"func.func(sdy-reshard-to-collectives),{CANONICAL}"
IMPORT = "sdy-import-pipeline{dedup-functions-fully=true}"
PROPAGATE = (
    f"{IMPORT},sdy-user-priority-propagate,func.func(sdy-sink-data-flow-edges),sdy-remove-sharding-groups,"
    "func.func(sdy-sharding-constraint-to-reshard),sdy-close-shardings"
)
#: Ours that price what they decide for the whole program.
GLOBAL = "reshard-to-collectives{mode=global},canonicalize-collectives"
#: Ops without exchanges between neighbours, which the collectives would not show.
ALIGNED = ("elementwise", "transpose", "broadcast", "dot", "reduce", "reshape")
RULED = (
    *ALIGNED, "slice", "pad", "concatenate", "reverse", "dynamic_slice", "dynamic_update_slice", "iota", "gather",
    "sort", "cholesky", "reduce_window", "convolution", "custom_call",
)  # fmt: skip
CLOSED: Features = dict(families=ALIGNED, stated=1.0, open=0.0, all_used=True)


@dataclass(frozen=True)
class Row:
    """passes: ours, with options; peer: jaxlib's where its names differ.

    compare: ``text`` of the module, ``shardings`` of its values, or ``bytes`` of its collectives. before: jaxlib's
    passes that make the random module what the pass expects. after: ours and jaxlib's that make collectives of results.
    """

    passes: str
    features: tuple[Features, ...]
    compare: str = "text"
    peer: str = ""
    before: str = ""
    after: tuple[str, str] = ("", "")
    note: str = ""

    @property
    def name(self) -> str:
        return f"{self.passes} {self.note}".strip()

    def module(self, seed: int) -> str:
        """The module of a seed."""
        return random_module(seed, **self.features[seed % len(self.features)])


def rows() -> Iterator[Row]:
    """All rows; those of passes that are not registered do not run."""
    for passes, features in FEATURES.items():
        yield Row(passes, tuple(features))
    ruled: Features = dict(families=RULED, length=12, uneven=True)
    yield Row("populate-op-sharding-rules", (ruled,))
    yield Row("drop-sharding-rules", (ruled,), before="func.func(sdy-populate-op-sharding-rules)")
    yield from _propagation()
    yield from _reshards()
    for name in ("canonicalize-reshards", "canonicalize-collectives"):
        before = "" if name.endswith("reshards") else "func.func(sdy-reshard-to-collectives)"
        peer = CANONICAL.replace("sdy-collective", f"sdy-{name.removeprefix('canonicalize-')[:-1]}")
        yield Row(name, (CLOSED | dict(reshards=True),), "bytes", peer, before, _priced(name))


def _propagation() -> Iterator[Row]:
    module: Features = ALL | dict(named=False, regions=REGIONS[:4], calls=False, functions=0, reshards=False)
    module.pop("named")
    yield Row("add-data-flow-edges", (module,))
    yield Row("apply-sharding-constraints", (module,), before="sdy-add-data-flow-edges")
    yield Row("sharding-group-import", (dict(groups=True, stated=0.2),))
    flat = module | dict(families=RULED, groups=False)
    for name in ("basic", "aggressive", "op-priority", "user-priority"):
        kinds = (flat, flat | dict(uneven=True), flat | dict(sub_axes=False, priorities=0.0))
        yield Row(f"{name}-propagate", kinds, "shardings", before=IMPORT)


def _reshards() -> Iterator[Row]:
    kinds = (CLOSED, CLOSED | dict(sub_axes=True), CLOSED | dict(uneven=True, families=ALIGNED[:5]))
    spread = (dict(families=ALIGNED, stated=0.3, length=12, all_used=True),
              dict(families=ALIGNED, stated=0.5, sub_axes=True, all_used=True))
    full = "insert-explicit-reshards{enable-full-version=true}"
    everywhere = "insert-explicit-reshards{enable-full-version=true mode=global}"
    theirs = f"func.func(sdy-{full})"
    for note, features, before in (("", kinds, ""), ("(propagated)", spread, PROPAGATE)):
        yield Row(full, features, "bytes", theirs, before, (f"jaxlib:{COLLECTIVES}", COLLECTIVES), note)
        yield Row(everywhere, features, "bytes", theirs, before, (GLOBAL, COLLECTIVES), note)
    yield Row("temp-explicit-reshards-for-optimizations", kinds, "bytes", "func.func(sdy-insert-explicit-reshards)",
              after=(f"jaxlib:{COLLECTIVES}", COLLECTIVES))
    for mode in ("", "{mode=global}"):
        moved = (CLOSED | dict(reshards=True, families=("elementwise",), length=16),
                 CLOSED | dict(reshards=True, families=("elementwise",), sub_axes=True, uneven=True, length=16))
        yield Row(f"reshard-to-collectives{mode}", moved, "bytes", "func.func(sdy-reshard-to-collectives)",
                  after=("canonicalize-collectives", CANONICAL))


def _priced(name: str) -> tuple[str, str]:
    """canonical reshards are priced as the collectives that they come to."""
    return (f"jaxlib:{COLLECTIVES}", COLLECTIVES) if name.endswith("reshards") else ("", "")


#: Programs whose best bytes are known (per device, after compiling), on eight devices in a row.
EXAMPLES = {
    "A: a chain of sums": (458_752, """
      func.func @main(%a: tensor<1024x1024xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>},
                      %b: tensor<1024x1024xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>},
                      %c: tensor<1024x1024xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>})
          -> (tensor<1024x1024xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>}) {
        %0 = stablehlo.add %a, %b : tensor<1024x1024xf32>
        %1 = stablehlo.add %0, %c : tensor<1024x1024xf32>
        return %1 : tensor<1024x1024xf32>
      }"""),
    "B: a product by rows": (1_605_632, """
      func.func @main(%a: tensor<512x1024xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>},
                      %b: tensor<1024x768xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})
          -> (tensor<512x768xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) {
        %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
          : (tensor<512x1024xf32>, tensor<1024x768xf32>) -> tensor<512x768xf32>
        return %0 : tensor<512x768xf32>
      }"""),
    "C: a sum of products": (7_340_032, """
      func.func @main(%a: tensor<1024x1024xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>},
                      %b: tensor<1024x1024xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>},
                      %c: tensor<1024x1024xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>},
                      %d: tensor<1024x1024xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})
          -> (tensor<1024x1024xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {
        %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
          : (tensor<1024x1024xf32>, tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
        %1 = stablehlo.dot_general %c, %d, contracting_dims = [1] x [0]
          : (tensor<1024x1024xf32>, tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
        %2 = stablehlo.add %0, %1 : tensor<1024x1024xf32>
        return %2 : tensor<1024x1024xf32>
      }"""),
}


def example(body: str) -> str:
    """The module of an example."""
    return (
        "module attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {\n"
        f'  sdy.mesh @mesh = <["x"=8]>{body}\n}}\n'
    )
