"""Shardy's passes on programs, by name: each a function from a program to a program, alone or in pipelines.

    >>> closed = eggshard.shardy.close_shardings(program)  # doctest: +SKIP
    >>> program = eggshard.shardy.run(program, "close-shardings,inline-meshes")  # doctest: +SKIP
    >>> program = eggshard.shardy.pipeline(program, "export", inline_meshes=True)  # doctest: +SKIP

A program is whatever `eggshard.load` reads; its module's text is what the passes change, so that what they do not
touch stays word for word. `transform` takes and returns text. `dir(eggshard.shardy)` lists the passes.

`python -m bench shardy` shows what a change of its constants does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from eggshard.errors import ProgramError
from eggshard.extras import check_shardy, named_extras
from eggshard.shardy.pipelines import PIPELINES as PIPELINES

if TYPE_CHECKING:
    from eggshard.program.program import Program
    from eggshard.shardy.passes import Step


def run(program: Any, passes: str | Sequence[str | Step]) -> Program:
    """The program after some passes: names separated by commas, with options in braces, as MLIR writes them.

    ProgramError for an unknown pass or option, and where a pass refuses the program, naming the op.
    """
    from eggshard.frontends.stablehlo.reading import read

    return read(transform(module_text(program), passes))


def pipeline(program: Any, name: str = "export", **options: Any) -> Program:
    """The program after a pipeline of `PIPELINES`, with its options as keyword arguments."""
    return run(program, steps_of(name + _braced(options)))


def steps_of(pipeline: str) -> list[str]:
    """The passes of a pipeline, given with options as passes are: ``export{inline-meshes=true}``.

    ProgramError for an unknown pipeline or option.
    """
    from eggshard.shardy.passes import read_call, read_options

    name, given = read_call(pipeline)
    if name not in PIPELINES:
        raise ProgramError(f"there is no pipeline {name!r}; there are {', '.join(PIPELINES)}")
    options = read_options(f"pipeline {name}", given, PIPELINES[name].options)
    return PIPELINES[name].steps(**{key.replace("-", "_"): value for key, value in options.items()})


@named_extras()
def transform(text: str, passes: str | Sequence[str | Step]) -> str:
    """Run passes on the text of an MLIR module and return the text of the module after them.

    passes: as `run` takes them.
    """
    from eggshard.shardy.catalogue import read_steps
    from eggshard.shardy.module import parsed

    check_shardy()
    steps = read_steps(passes)
    with parsed(text) as module:
        for step in steps:
            step.run(module)
        return module.text()


def module_text(program: Any) -> str:
    """The text of a program's module: as it was read, or written anew for one that was built by hand."""
    from eggshard.frontends import load
    from eggshard.ops.module_text import program_text

    loaded = load(program)
    return loaded.text or program_text(loaded)


def _braced(options: Mapping[str, Any]) -> str:
    given = [f"{key.replace('_', '-')}={str(value).lower()}" for key, value in options.items()]
    return f"{{{' '.join(given)}}}" if given else ""


def __getattr__(name: str) -> Callable[..., Program]:
    """Each pass as a function: ``shardy.close_shardings(program)``, with the pass's options as keyword arguments."""
    if name.startswith("__"):
        raise AttributeError(name)
    import inspect

    from eggshard.shardy.catalogue import PASSES
    from eggshard.shardy.passes import step_of

    found = PASSES.get(name.replace("_", "-"))
    if found is None:
        raise AttributeError(f"module 'eggshard.shardy' has no attribute {name!r}")

    def apply(program: Any, **options: Any) -> Program:
        return run(program, [step_of(found, options)])

    first = inspect.Parameter("program", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    options = [
        inspect.Parameter(key.replace("-", "_"), inspect.Parameter.KEYWORD_ONLY, default=default)
        for key, default in found.options.items()
    ]
    apply.__signature__ = inspect.Signature([first, *options])  # type: ignore[attr-defined]
    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = f"{inspect.getdoc(found.run)}\n\nThe pass {found.name}: the program after it."
    return apply


def __dir__() -> list[str]:
    from eggshard.shardy.catalogue import PASSES

    passes = (name.replace("-", "_") for name in PASSES)
    return sorted({"PIPELINES", "pipeline", "run", "steps_of", "transform", *passes})
