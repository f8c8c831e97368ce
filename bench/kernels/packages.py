"""Import of a package's modules without what they need: what is not there is a stub that anything can be done to."""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import importlib.machinery
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any


def sources(root: Path, seed: int) -> list[Path]:
    """The files below a folder that define kernels, in an order that the seed draws."""
    found = sorted(file for file in root.rglob("*.py") if "@triton.jit" in file.read_text(errors="ignore"))
    random.Random(seed).shuffle(found)
    return found


def module_of(root: Path, file: Path) -> ModuleType:
    """The module of a file below a folder of packages, imported. A package is the outermost folder with `__init__.py`.
    """
    package = file.parent
    while package.parent != root and (package.parent / "__init__.py").exists():
        package = package.parent
    top = package.parent if (package / "__init__.py").exists() else file.parent
    name = ".".join(file.relative_to(top).with_suffix("").parts)
    before = list(sys.meta_path)
    sys.meta_path[:] = [_Statements(name.partition(".")[0], top), *before, _Stubs()]
    try:
        return importlib.import_module(name)
    finally:
        sys.meta_path[:] = before


class _Meta(type):
    """Of a class any attribute is a stub, too; and it is no reason for anything."""

    def __bool__(cls) -> bool:
        return False

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Stub


class Stub(metaclass=_Meta):
    """What stands for everything that is not there: a class to derive from, a function, a decorator, a number."""

    __version__ = "99.0.0"

    def __new__(cls, *arguments: Any, **named: Any) -> Any:
        """Called on a function, as decorators are, it is that function."""
        alone = len(arguments) == 1 and not named and isinstance(arguments[0], (FunctionType, type))
        return arguments[0] if alone and cls is Stub else super().__new__(cls)

    def __init__(self, *arguments: Any, **named: Any) -> None:
        pass

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return arguments[0] if len(arguments) == 1 and callable(arguments[0]) else Stub()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Stub()

    def __getitem__(self, key: Any) -> Any:
        return Stub()

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __bool__(self) -> bool:
        return False

    def _other(self, other: Any = None) -> Any:
        return Stub()

    def _false(self, other: Any) -> bool:
        return False

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __floordiv__ = _other
    __or__ = __ror__ = _other
    __lt__ = __le__ = __gt__ = __ge__ = _false
    __enter__ = _other

    def __exit__(self, *_: object) -> None:
        pass


class _StubModule(ModuleType):
    """A module in which every name is a stub."""

    __path__: Sequence[str] = ()
    __version__ = Stub.__version__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Stub


class _Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds stubs for modules that no other finder finds, but for Triton's and the standard library's."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] in ("triton", *sys.stdlib_module_names):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _StubModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


class _Statements(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the modules of one package, which lies in a folder, statement by statement: where one fails, what it
    would have defined is a stub."""

    def __init__(self, package: str, top: Path) -> None:
        self.package, self.top = package, top

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        parts = name.split(".")
        if parts[0] != self.package:
            return None
        folder = self.top.joinpath(*parts)
        file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
        if not (file.exists() or folder.is_dir()):
            return None
        spec = importlib.machinery.ModuleSpec(name, self, origin=str(file), is_package=folder.is_dir())
        spec.submodule_search_locations = [str(folder)] if folder.is_dir() else None
        spec.has_location = file.exists()
        return spec

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        file = Path(module.__spec__.origin or "")
        for statement in ast.parse(file.read_text()).body if file.exists() else ():
            try:
                exec(compile(ast.Module([statement], []), str(file), "exec"), module.__dict__)
            except Exception:
                for name in _defined(statement):
                    module.__dict__.setdefault(name, Stub)


def _defined(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement defines."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
