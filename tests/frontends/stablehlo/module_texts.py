"""Texts of modules of one mesh and one function that returns its argument."""

HEADER = 'sdy.mesh @mesh = <["x"=4, "y"=2]>\n'


def identity(sharding: str = "", header: str = HEADER, type_: str = "tensor<8x8xf32>") -> str:
    given = f" {{{sharding}}}" if sharding else ""
    return f"{header}func.func @main(%a: {type_}{given}) -> {type_} {{ return %a : {type_} }}"


def on_mesh(dims: str) -> str:
    return identity(f"sdy.sharding = #sdy.sharding<@mesh, {dims}>")
