"""What is public is listed in a file: a change of it is seen, and decided on.

``python -m tests.test_public_api`` writes the file anew. What goes, or changes so that callers break, takes a new minor
version before 1.0 and is deprecated in the one before; see `docs/how-to/versions.md`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import eggshard as es

FILE = Path(__file__).parents[1] / "docs" / "reference" / "public-api.txt"
#: Modules whose names are public, too.
MODULES = ("costmodel", "errors", "rewrites", "shardy", "tactics", "triton")


def listing() -> str:
    """A line for every public name, and for every public attribute of a class, with the signature of what is called."""
    lines = []
    for name in dir(es):
        value = getattr(es, name)
        if name in MODULES:
            lines += [line for inner in _names(value) for line in _lines(f"{name}.{inner}", getattr(value, inner))]
        elif not inspect.ismodule(value):
            lines += _lines(name, value)
    return "\n".join(lines) + "\n"


def _names(module: Any) -> list[str]:
    return sorted(name for name in dir(module) if not name.startswith("_")
                  and not inspect.ismodule(getattr(module, name)) and _is_ours(getattr(module, name)))


def _is_ours(value: Any) -> bool:
    return (getattr(value, "__module__", None) or "eggshard").startswith("eggshard")


def _lines(name: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        bases = [base.__name__ for base in value.__bases__ if base is not object]
        made = _signature(value) if "__init__" in vars(value) else "(...)"
        yield f"class {name}{made}: {', '.join(bases) or 'object'}"
        for attribute in sorted(n for n in dir(value) if not n.startswith("_")):
            found = inspect.getattr_static(value, attribute)
            if any(attribute in vars(base) for base in value.__mro__ if _is_ours(base)):
                yield from (f"  {line}" for line in _lines(f"{name}.{attribute}", _unwrapped(found)))
    elif callable(value):
        yield f"def {name}{_signature(value)}"
    else:
        yield name


def _unwrapped(found: Any) -> Any:
    return found.__func__ if isinstance(found, (classmethod, staticmethod)) else found


def _signature(value: Any) -> str:
    """Parameters by kind, and whether they have a default; no types, whose spelling differs between Pythons."""
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return "(...)"
    bare = [p.replace(annotation=p.empty, default=p.empty if p.default is p.empty else ...) for p in parameters]
    return str(inspect.Signature(bare)).replace("Ellipsis", "...")


def test_the_public_api_is_what_the_file_lists() -> None:
    got, listed = listing().splitlines(), FILE.read_text().splitlines()
    gone, new = [line for line in listed if line not in got], [line for line in got if line not in listed]
    assert got == listed, f"gone: {gone}, new: {new}; if it is meant so: python -m tests.test_public_api"


if __name__ == "__main__":
    FILE.write_text(listing())
