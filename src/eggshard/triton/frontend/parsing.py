"""Reading of MLIR by libtriton in a process of its own: ``python -I -S parsing.py LIBTRITON FILE FOLDER``.

libtriton ends the process on some texts instead of refusing them. This one has nothing else to lose, and imports
nothing but libtriton, which takes a tenth of a second. FILE's module is verified, and written to FOLDER in generic form
as it is (``given``) and as Triton's canonicalizer leaves it (``simplified``), both of which must read back.
"""

import importlib.util
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

#: The attribute of a module that holds TritonGPU IR.
WARPS = "ttg.num-warps"
#: What becomes of a text.
GOOD, REFUSED, WITHOUT_LAYOUTS = 0, 1, 3
_GENERIC = re.compile(r'^"builtin\.module"\(', re.MULTILINE)
_SPOILING = "spoiled_to_print_generically"


def main(library: str, file: str, folder: str) -> int:
    spec = importlib.util.spec_from_file_location("triton._C.libtriton", library)
    assert spec is not None and spec.loader is not None
    libtriton = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(libtriton)
    ir, context = libtriton.ir, libtriton.ir.context()
    for dialects in (ir, libtriton.nvidia, libtriton.amd):
        dialects.load_dialects(context)
    located = "loc(" in Path(file).read_text()
    try:
        module = _parsed(ir, file, context)
        if not module.verify():
            return REFUSED
        if module.get_int_attr(WARPS) is None:
            return WITHOUT_LAYOUTS
        _write(ir, module, located, Path(folder, "given"))
        manager = ir.pass_manager(context)
        libtriton.passes.common.add_canonicalizer(manager)
        manager.run(module, "simplify")
        _write(ir, module, located, Path(folder, "simplified"))
    except RuntimeError:
        return REFUSED
    return GOOD


def generic_text(ir: Any, module: Any, locations: bool = True) -> str:
    """A module's text in generic form. The printer hides nothing of a module that does not verify: one is made.

    ir: libtriton's module of that name.
    """
    warps = module.get_int_attr(WARPS)
    if warps is None:
        return _spoiled(ir, module, locations)
    builder = ir.builder(module.context)
    module.set_attr(WARPS, builder.get_int32_attr(2 * warps))
    text: str = str(module) if locations else module.str_nodebug()
    module.set_attr(WARPS, builder.get_int32_attr(warps))
    if not _GENERIC.search(text):  # without tensors nothing depends on the number of warps
        return _spoiled(ir, module, locations)
    return text.replace(f'"{WARPS}" = {2 * warps} : i32', f'"{WARPS}" = {warps} : i32')


def _spoiled(ir: Any, module: Any, locations: bool) -> str:
    """The generic text of any module, by way of a copy that gets an attribute of a name that modules do not take."""
    copy = parse_text(ir, str(module), module.context)
    copy.set_attr(_SPOILING, ir.builder(copy.context).get_unit_attr())
    text: str = str(copy) if locations else copy.str_nodebug()
    head, _, tail = text.rpartition(_SPOILING)
    if head.endswith(", "):
        return head.removesuffix(", ") + tail
    return head + tail.removeprefix(", ")


def parse_text(ir: Any, text: str, context: Any) -> Any:
    """libtriton's module of a text; RuntimeError where it refuses it."""
    with tempfile.NamedTemporaryFile("w", suffix=".mlir") as file:
        file.write(text)
        file.flush()
        return _parsed(ir, file.name, context)


def _parsed(ir: Any, file: str, context: Any) -> Any:
    module = ir.parse_mlir_module(file, context)
    module.context = context  # the module does not keep its context alive
    return module


def _write(ir: Any, module: Any, located: bool, file: Path) -> None:
    file.write_text(generic_text(ir, module, located))
    _parsed(ir, str(file), module.context)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
