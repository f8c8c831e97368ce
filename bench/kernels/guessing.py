"""Arguments that a kernel may be compiled for, guessed from how it uses them."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any, NamedTuple

#: Calls whose first argument is an address.
_ACCESSES = re.compile(r"^(load|store|atomic_\w+|make_block_ptr|make_tensor_descriptor)$")
_INDICES = re.compile(r"idx|index|indic|offset|seqlen|_ids?$|label|target|table|lens?$|block_map|_mask", re.IGNORECASE)
_FLOATS = re.compile(r"eps|scale|alpha|beta|gamma|softcap|dropout_p|smoothing|weight_decay|(^|_)(lr|p)$|base|cap",
                     re.IGNORECASE)
_SIZES = re.compile(r"^(B[A-Z]{1,2}|.*BLOCK.*|.*TILE.*|CHUNK.*|.*_SIZE.*|[A-Z]|.*DIM.*|.*HEAD.*)$", re.IGNORECASE)


class Guess(NamedTuple):
    """Types of arguments as Triton writes them, and values of constants."""

    signature: dict[str, str]
    constants: dict[str, Any]


def guesses(kernel: Any) -> Iterator[Guess]:
    """Types and constants for a function under ``triton.jit``, the most usual ones first."""
    addresses = _addresses(kernel)
    for element, size, flag in (("fp16", 64, False), ("fp32", 64, False), ("fp16", 64, True), ("fp32", 16, True)):
        signature, constants = {}, {}
        for parameter in kernel.params:
            name = parameter.name
            if parameter.is_constexpr:
                signature[name] = "constexpr"
                constants[name] = _constant(parameter, size, flag)
            elif name in addresses or name.lower().endswith("ptr"):
                signature[name] = "*" + ("i32" if _INDICES.search(name) else element)
            elif parameter.annotation in ("fp32", "float"):
                signature[name] = "fp32"
            else:
                signature[name] = "fp32" if _FLOATS.search(name) and "stride" not in name else "i32"
        yield Guess(signature, constants)


def _constant(parameter: Any, size: int, flag: bool) -> Any:
    import triton.language as tl

    name = parameter.name
    if parameter.has_default and parameter.default is not None:
        return parameter.default
    if "dtype" in name.lower() or name.lower().endswith("type"):
        return tl.float32
    if re.match(r"(num_)?(stages?|warps?)$", name.lower()):
        return 2
    if _SIZES.match(name) and not re.match(r"(IS|HAS|USE|DO|STORE|ENABLE|NEED|WITH|OUTPUT|REVERSE|ALLOW)_", name):
        return size
    return flag


def _addresses(kernel: Any) -> set[str]:
    """The parameters from which addresses of memory are computed: what stands leftmost in their sums."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kernel.fn)))
    assigned: dict[str, list[ast.expr]] = {}
    reached: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    assigned.setdefault(target.id, []).append(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _ACCESSES.match(node.func.attr):
            reached += node.args[:1] or [word.value for word in node.keywords if word.arg == "base"]
    found: set[str] = set()
    while reached:
        node = reached.pop()
        while isinstance(node, ast.BinOp):
            node = node.left
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "to":
            node = node.func.value
        if isinstance(node, ast.IfExp):
            reached += [node.body, node.orelse]
        elif isinstance(node, ast.Name) and node.id not in found:
            found.add(node.id)
            reached += assigned.get(node.id, [])
    return found
