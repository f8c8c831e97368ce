"""Shardy's passes by name, on programs: each a function from a program to a program, alone or in pipelines.

    >>> closed = eggshard.shardy.close_shardings(program)  # doctest: +SKIP
    >>> text = eggshard.shardy.run(text, "close-shardings,insert-explicit-reshards{mode=global}")  # doctest: +SKIP

A program is whatever `eggshard.load` reads; its module's text is what the passes change, so that what they do not
touch stays word for word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from eggshard.errors import ProgramError

if TYPE_CHECKING:
    from eggshard.program.program import Program

#: Pipelines by name.
PIPELINES: dict[str, str] = {}


def run(program: Any, passes: str | Sequence[str]) -> Program:
    """The program after some passes: names separated by commas, with options in braces, as MLIR writes them.

    ProgramError for an unknown pass or option, and where a pass refuses the program, naming the op.
    """
    from eggshard.frontends.stablehlo import read

    return read(transform(module_text(program), passes))


def pipeline(program: Any, name: str = "export") -> Program:
    """The program after a pipeline of `PIPELINES`."""
    return run(program, steps_of(name))


def steps_of(name: str) -> str:
    """The passes of a pipeline; ProgramError for an unknown one."""
    if name not in PIPELINES:
        raise ProgramError(f"there is no pipeline {name!r}; there are {', '.join(PIPELINES)}")
    return PIPELINES[name]


def transform(text: str, passes: str | Sequence[str]) -> str:
    """The same from text to text."""
    from eggshard.shardy.catalogue import read_steps
    from eggshard.shardy.module import parsed

    steps = read_steps(passes)
    with parsed(text) as module:
        for step in steps:
            step.run(module)
        return module.text()


def module_text(program: Any) -> str:
    """The text of a program's module: as it was read, or written anew for one that was built by hand."""
    from eggshard.frontends import load
    from eggshard.lower.module_text import program_text

    loaded = load(program)
    return loaded.text or program_text(loaded)


def __getattr__(name: str) -> Callable[..., Program]:
    """Each pass as a function: ``shardy.close_shardings(program)``, with the pass's options as keyword arguments."""
    from eggshard.shardy.catalogue import PASSES

    found = PASSES.get(name.replace("_", "-"))
    if found is None:
        raise AttributeError(f"module 'eggshard.shardy' has no attribute {name!r}")

    def apply(program: Any, **options: Any) -> Program:
        given = " ".join(f"{key.replace('_', '-')}={str(value).lower()}" for key, value in options.items())
        return run(program, [f"{found.name}{{{given}}}"])

    apply.__name__, apply.__doc__ = name, found.run.__doc__
    return apply
