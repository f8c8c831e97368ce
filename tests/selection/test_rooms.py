"""The selection stands alone, and its rooms import one way."""

import ast
from pathlib import Path

import eggshard.selection

ROOT = Path(eggshard.selection.__file__).parent
#: Low to high; a room imports itself and what is below it.
ROOMS = ("problem", "segments", "levels", "graph", "candidates", "independence", "verify", "copies", "reductions",
         "bounds", "search", "exact", "portfolio")


def imports(path: Path) -> set[str]:
    """The modules of the house that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name.split(".")[0] == "eggshard"}


def test_rooms_import_one_way_and_nothing_else_of_the_house():
    files = [path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py"]
    assert files
    for path in files:
        room = path.relative_to(ROOT).parts[0].removesuffix(".py")
        for name in imports(path):
            _, first, *rest = name.split(".")
            assert first in ("errors", "worker", "selection"), f"{path}: {name}"
            if first == "selection":
                assert ROOMS.index(rest[0]) <= ROOMS.index(room), f"{path}: {name}"


def test_no_two_files_import_each_other():
    graph = {}
    for path in ROOT.rglob("*.py"):
        name = ".".join(["eggshard.selection", *path.relative_to(ROOT).with_suffix("").parts]).removesuffix(".__init__")
        graph[name] = imports(path)
    needs = {name: {n.rpartition(".")[0] if n not in graph else n for n in some} & graph.keys()
             for name, some in graph.items()}
    done: set[str] = set()
    while len(done) < len(needs):
        ready = {name for name, some in needs.items() if name not in done and some <= done | {name}}
        assert ready, needs.keys() - done
        done |= ready
