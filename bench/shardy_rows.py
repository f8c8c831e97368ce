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
GATHERED = "func.func(sdy-reshard-to-collectives)"
FULL = "insert-explicit-reshards{enable-full-version=true}"
EXPLICIT = f"func.func(sdy-{FULL})"
EVEN = "sdy-update-non-divisible-input-output-shardings,sdy-remove-sub-axes-in-input-output-shardings"
#: Ours that price what they decide for the whole program.
GLOBAL = "reshard-to-collectives{mode=global},canonicalize-collectives"
#: Ops without exchanges between neighbours, which the collectives would not show.
ALIGNED = ("elementwise", "transpose", "broadcast", "dot", "reduce", "reshape")
RULED = (
    *ALIGNED, "slice", "pad", "concatenate", "reverse", "dynamic_slice", "dynamic_update_slice", "iota", "gather",
    "sort", "cholesky", "reduce_window", "convolution", "custom_call",
)  # fmt: skip
SHIFTED = ("slice", "pad", "reverse", "concatenate", "elementwise")
CLOSED: Features = dict(families=ALIGNED, stated=1.0, open=0.0, all_used=True)
SPREAD: Features = dict(families=ALIGNED, stated=0.4, all_used=True)


@dataclass(frozen=True)
class Row:
    """passes: ours, with options; peer: jaxlib's where its names differ.

    compare: ``text`` of the module, ``shardings`` of its values, or ``bytes`` of its collectives. before: jaxlib's
    passes that make the random module what the pass expects. after: ours and jaxlib's that make collectives of results.
    runs: what they make are programs of a device; one of jaxlib's that computes something else is no rival.
    """

    passes: str
    features: tuple[Features, ...]
    compare: str = "text"
    peer: str = ""
    before: str = ""
    after: tuple[str, str] = ("", "")
    note: str = ""
    runs: bool = False

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
    yield from _calls()
    yield from _propagation()
    yield from _reshards()
    yield from _local()
    yield from _pipelines()


def _calls() -> Iterator[Row]:
    kinds = (ALL | dict(functions=3),)
    flat = "sdy-flatten-call-graph,symbol-dce"
    for name, before in (
        ("constant-or-scalar-splitter", ""), ("manual-axes-cleanup", ""), ("propagate-sharding-from-func-to-call", ""),
        ("flatten-call-graph", ""), ("import-func-calls", flat), ("pre-order-funcs", ""),
        ("add-func-data-flow-edges", ""), ("export-named-computations", f"{flat},sdy-import-func-calls"),
        ("unflatten-call-graph", "sdy-flatten-call-graph"), ("insert-func-call-reshards", ""),
    ):  # fmt: skip
        yield Row(name, kinds, before=before)
    yield Row("symbol-dce", kinds, peer="symbol-dce")


def _propagation() -> Iterator[Row]:
    module: Features = ALL | dict(regions=REGIONS[:4], calls=False, functions=0, reshards=False)
    yield Row("add-data-flow-edges", (module,))
    yield Row("apply-sharding-constraints", (module,), before="sdy-add-data-flow-edges")
    yield Row("sharding-group-import", (dict(groups=True, stated=0.2),))
    # jaxlib takes constants for equal whatever their shardings, so they have none here.
    rows: Features = dict(families=("row_gather", "row_scatter"), uneven=True)
    yield Row("explicit-gather-scatter-batching",
              (rows, rows | dict(stated=0.0, constants=True, regions=REGIONS)))
    flat = module | dict(families=RULED, groups=False)
    for name in ("basic", "aggressive", "op-priority", "user-priority"):
        kinds = (flat, flat | dict(uneven=True), flat | dict(sub_axes=False, priorities=0.0))
        yield Row(f"{name}-propagate", kinds, "shardings", before=IMPORT)


def _reshards() -> Iterator[Row]:
    kinds = (CLOSED, CLOSED | dict(sub_axes=True), CLOSED | dict(uneven=True, families=ALIGNED[:5]))
    spread = (SPREAD | dict(length=12), SPREAD | dict(sub_axes=True))
    ours = f"jaxlib:{COLLECTIVES}"
    for note, features, before in (("", kinds, ""), ("(propagated)", spread, PROPAGATE)):
        yield Row(FULL, features, "bytes", EXPLICIT, before, (ours, COLLECTIVES), note)
        yield Row(FULL.replace("}", " mode=global cost-model=wire-bytes}"), features, "bytes", EXPLICIT, before,
                  (GLOBAL, COLLECTIVES), note)
    optional = "func.func(sdy-insert-explicit-reshards)"
    yield Row("temp-explicit-reshards-for-optimizations", kinds, "bytes", optional, after=(ours, COLLECTIVES))
    moved: Features = CLOSED | dict(reshards=True, families=("elementwise",), length=16)
    for mode in ("", "{mode=global}"):
        yield Row(f"reshard-to-collectives{mode}", (moved, moved | dict(sub_axes=True, uneven=True)), "bytes",
                  GATHERED, after=("canonicalize-collectives", CANONICAL))
    mixed: Features = CLOSED | dict(reshards=True)
    reshards = CANONICAL.replace("collective", "reshard")
    for name, peer in (("canonicalize-reshards", "canonicalize"), ("canonicalize-reshards{common=false}", reshards)):
        yield Row(name, (mixed,), "bytes", peer, after=(ours, COLLECTIVES))
    yield Row("canonicalize-collectives", (mixed,), "bytes", CANONICAL, GATHERED)
    scattered: Features = CLOSED | dict(families=("dot", "elementwise"))
    yield Row("remove-all-gather-reduce-scatter-for-cmv1", (scattered,), before=f"{PROPAGATE},{EXPLICIT},{GATHERED}")


def _local() -> Iterator[Row]:
    local, even = "sdy-convert-global-to-local", f"{PROPAGATE},{EVEN},{EXPLICIT}"
    yield Row("convert-global-to-local", (SPREAD,), "bytes", "", f"{even},{GATHERED}", runs=True)
    # Reshapes of uneven shards wait for resolve-permutation-factors; and one axis alone, as jaxlib slices uneven shards
    # by a further axis where they lie, which moves rows.
    uneven = [SPREAD | dict(uneven=True, families=ALIGNED[:5], mesh={"x": n}) for n in (2, 3)]
    yield Row("pad-for-divisibility", tuple(uneven), "bytes", "", f"{even},{GATHERED}",
              ("convert-global-to-local", local), runs=True)
    padded = ("reshard-to-collectives,pad-for-divisibility,convert-global-to-local",
              f"{GATHERED},func.func(sdy-pad-for-divisibility),{local}")
    shifted: Features = SPREAD | dict(families=SHIFTED, mesh={"x": 4, "y": 2}, length=5)
    both = (shifted, shifted | dict(uneven=True))
    yield Row("resolve-permutation-factors", both, "bytes", "", even, padded, runs=True)
    partition = f"{EXPLICIT},sdy-resolve-permutation-factors,{padded[1]},sdy-drop-sharding-and-mesh"
    kinds = (SPREAD, SPREAD | dict(uneven=True), shifted)
    for mode in ("", "{mode=global cost-model=wire-bytes}"):
        yield Row(f"pipeline partition{mode}", kinds, "bytes", partition, f"{PROPAGATE},{EVEN}", runs=True)


def _pipelines() -> Iterator[Row]:
    called: Features = ALL | dict(functions=2)
    for options in ("", "{dedup-functions-fully=true}"):
        inlined = called | dict(inlined_meshes=True, size_one_axes=True, sub_axes=False)
        yield Row(f"pipeline import{options}", (called, inlined), "text", f"sdy-import-pipeline{options}")
    # What the minimal pipelines leave to the compiler is made explicit, by jaxlib, for both.
    rest = f"{EXPLICIT},{COLLECTIVES}"
    propagated: Features = ALL | dict(functions=2, regions=REGIONS[:4], priorities=0.0, reshards=False, groups=False,
                                 all_used=True)
    exported = (CLOSED | dict(constraints=True, reshards=True),)
    for name, kinds in (("propagation", (SPREAD, propagated | dict(families=ALIGNED))), ("export", exported)):
        yield Row(f"pipeline {name}", kinds, "bytes", f"sdy-{name}-pipeline", after=(f"jaxlib:{rest}", rest))
    explicit = "enable-insert-explicit-collectives=true"
    for mode in ("", " mode=global cost-model=wire-bytes"):
        yield Row(f"pipeline export{{{explicit}{mode}}}", exported, "bytes", f"sdy-export-pipeline{{{explicit}}}")


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
