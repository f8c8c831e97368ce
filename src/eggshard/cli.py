"""The command line: `optimize`, `explain`, `report`, `run`, `calibrate`, `doctor` and more."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eggshard.calibration import command as cli_calibrate
from eggshard.errors import ConfigError, EggshardError, MeshError, ProgramError, ShardingError
from eggshard.version import __version__

if TYPE_CHECKING:
    from eggshard.api import Plan
    from eggshard.plan.plan_cache import PlanCache
    from eggshard.program.mesh import Mesh

app = typer.Typer(no_args_is_help=True, help="Plan sharded tensor programs.", pretty_exceptions_enable=False)

#: The file that is standard input.
_STDIN = Path("-")
Source = Annotated[Path, typer.Argument(
    allow_dash=True, help="A StableHLO module with Shardy annotations (.mlir), or - for stdin.")]
PlanSource = Annotated[Path, typer.Argument(
    allow_dash=True, help="A module as for optimize, or a plan written by optimize --json; or - for stdin.")]
Model = Annotated[str | None, typer.Option(
    "--cost-model", help="alpha-beta, wire-bytes, messages, detected, a machine such as h100-node or "
    "tpu-v5e, or its file (.toml); by default the processors of this host.")]
Exact = Annotated[bool, typer.Option("--exact", help="Forbid reassociation and whatever NaN, Inf or -0 could tell.")]
Seconds = Annotated[float, typer.Option("--seconds", help="Time limit of the search.")]
MemoryLimit = Annotated[str | None, typer.Option(
    "--memory-limit", help="What inputs, outputs and temporaries may take of a device, e.g. 512MiB or 16GiB.")]

Auto = Annotated[bool, typer.Option(
    "--auto", help="Choose where inputs and outputs lie of which the module says nothing, or leaves dimensions open.")]
OnMesh = Annotated[str | None, typer.Option("--mesh", help="With --auto: the mesh of a module without one: x=4,y=2.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"eggshard {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option(
        "--version", help="Print the version.", callback=_print_version, is_eager=True)] = False,
) -> None:
    pass


def parse_size(text: str) -> int:
    """``16GiB`` as bytes; ProgramError if it is not a number of B, KiB, MiB, GiB or their decimal kin."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?\s*", text, re.IGNORECASE)
    if not match:
        raise ProgramError(f"size {text!r} is not of the form 512MiB, 16GB, or a number of bytes")
    power = " KMGT".index(match[2].upper() or " ")
    return int(float(match[1]) * (1024 if match[3] else 1000) ** power)


def text_of(source: Path) -> str:
    """What a file holds, or standard input."""
    return sys.stdin.read() if source == _STDIN else source.read_text()


def parse_mesh(text: str) -> Mesh:
    """``x=4,y=2`` as a mesh; MeshError if it is not of that form."""
    from eggshard.program.mesh import Mesh

    axes = []
    for part in filter(None, text.split(",")):
        name, equals, size = part.partition("=")
        if not equals or not size.strip().isdigit():
            raise MeshError(f"--mesh {text!r}: {part!r} is not NAME=SIZE; write e.g. --mesh x=4,y=2")
        axes.append((name.strip(), int(size)))
    return Mesh(axes)


def parse_tensor(text: str) -> tuple[tuple[int, ...], str]:
    """``4096x4096xf32`` as shape and element type; ProgramError if it is not of that form."""
    match = re.fullmatch(r"((?:\d+x)*)([A-Za-z]\w*(?:<\w+>)?)", text)
    if not match:
        raise ProgramError(f"tensor type {text!r} is not of the form 4096x4096xf32")
    return tuple(int(n) for n in match[1].split("x") if n), match[2]


@app.command()
def optimize(
    program: Source,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the lowered StableHLO here.")] = None,
    json: Annotated[Path | None, typer.Option("--json", help="Write the plan as JSON here.")] = None,
    model: Model = None,
    exact: Exact = False,
    seconds: Seconds = 60.0,
    memory_limit: MemoryLimit = None,
    auto: Auto = False,
    mesh: OnMesh = None,
    verify: Annotated[bool, typer.Option("--verify", help="Compare with the unsharded program.")] = False,
) -> None:
    """Find the cheapest plan, and print it."""
    if mesh is not None and not auto:
        raise typer.BadParameter("--mesh is for --auto: where shardings are stated, the module states the mesh")
    plan = planned(program, model, exact, seconds, memory_limit, auto=auto, mesh=mesh)
    typer.echo(str(plan))
    if auto:
        chosen = plan.program
        for kind, names, shardings in (("input", chosen.input_names, chosen.input_shardings),
                                       ("output", chosen.output_names, chosen.output_shardings)):
            for name, sharding in zip(names, shardings, strict=True):
                typer.echo(f"{kind} {name}: {sharding}")
    if output:
        output.write_text(plan.to_stablehlo())
    if json:
        json.write_text(plan.to_json())
    if verify:
        typer.echo(str(plan.verify()))


@app.command()
def explain(
    program: PlanSource,
    step: Annotated[str | None, typer.Option(
        "--step", help="Why this step, what else there was, its flips; 3.body.5 is within step 3.")] = None,
    model: Model = None, exact: Exact = False, seconds: Seconds = 60.0, memory_limit: MemoryLimit = None,
) -> None:
    """Find the cheapest plan, and say why it is so: rules, search, the baseline beside it; or all about one step."""
    typer.echo(plan_of(program, model, exact, seconds, memory_limit).explain(step))


@app.command()
def report(
    program: PlanSource,
    output: Annotated[Path, typer.Option("--output", "-o", help="Write the page here.")] = Path("plan.html"),
    xla: Annotated[bool, typer.Option("--xla", help="Compile XLA's own program, too, and compare.")] = False,
    model: Model = None, exact: Exact = False, seconds: Seconds = 60.0, memory_limit: MemoryLimit = None,
) -> None:
    """Write a plan as one HTML page that needs no network: graph, timeline, who holds what, why, and what else."""
    plan = plan_of(program, model, exact, seconds, memory_limit)
    typer.echo(f"{plan.report(output, plan.compare_with_xla() if xla else None)}")


@app.command()
def diff(
    first: Annotated[Path, typer.Argument(help="A plan as JSON.")],
    second: Annotated[Path, typer.Argument(help="Another one.")],
) -> None:
    """Two plans side by side: steps, placements, bytes, cost."""
    plans = [saved_plan(path) for path in (first, second)]
    names = (first.name, second.name) if first.name != second.name else ("first", "second")
    typer.echo(str(plans[0].diff(plans[1], names)))


def planned(
    source: Path | str, model: str | None, exact: bool, seconds: float, memory_limit: str | None, *,
    auto: bool = False, mesh: str | None = None,
) -> Plan:
    """The cheapest plan of a module: a file, standard input, or its text. After Ctrl-C the best one so far.

    auto: where its inputs and outputs lie best, on a mesh if it states none.
    """
    import eggshard

    try:
        return eggshard.optimize(
            text_of(source) if source == _STDIN else source, cost_model=model, exact=exact,
            limits=eggshard.Limits(seconds=seconds, effort=eggshard.config.effort),
            memory_limit=parse_size(memory_limit) if memory_limit else None,
            shardings=eggshard.AUTO if auto else None, mesh=parse_mesh(mesh) if mesh else None)
    except eggshard.Interrupted as interrupted:
        if interrupted.plan is None:
            raise
        typer.echo("planning was interrupted: this is the best plan so far", err=True)
        plan: Plan = interrupted.plan
        return plan


def plan_of(source: Path, model: str | None, exact: bool, seconds: float, memory_limit: str | None) -> Plan:
    """The plan in a JSON file, or the cheapest one of a module."""
    text = text_of(source) if source == _STDIN else ""
    if source.suffix != ".json" and not text.startswith("{"):
        return planned(text or source, model, exact, seconds, memory_limit)
    if model is not None or memory_limit is not None:
        raise typer.BadParameter(f"{source} is a plan, with the prices that it was made at; give the program")
    return saved_plan(source, text)


def saved_plan(path: Path, text: str = "") -> Plan:
    """The plan in a JSON file, or in its text; errors name the file."""
    from eggshard.api import Plan

    try:
        return Plan.from_json(text or path.read_text())
    except ProgramError as error:
        raise ProgramError(f"{path}: {error}") from None


@app.command()
def run(
    plan: Annotated[Path, typer.Argument(help="A plan as JSON, as optimize --json writes it.")],
    inputs: Annotated[Path, typer.Argument(help="The global arrays, by name or in order (.npz).")],
    outputs: Annotated[Path, typer.Argument(help="Write the results here (.npz).")],
    engine: Annotated[str, typer.Option("--engine", help="numpy, processes, or mpi.")] = "numpy",
) -> None:
    """Run a saved plan on arrays; mpi starts one rank per device on this machine."""
    from eggshard.engines.jax.archives import load_arrays, save_arrays

    saved = saved_plan(plan)
    if engine == "mpi":
        from eggshard.engines.mpi.launching import run_saved

        run_saved(saved.mesh.size, plan, inputs, outputs)
        return
    arrays = load_arrays(inputs, saved.program.input_types, saved.program.input_names)
    save_arrays(outputs, saved.run(*arrays, engine=engine), saved.program.output_names)


@app.command()
def reshard(
    tensor: Annotated[str, typer.Argument(help="Shape and element type, e.g. 4096x4096xf32.")],
    mesh: Annotated[str, typer.Option(help="Axes and sizes, e.g. x=4,y=2.")],
    source: Annotated[str, typer.Option("--from", help="e.g. '[{\"x\"}, {\"y\"}]' or 'x,y' or '-,(x,y)'.")],
    target: Annotated[str, typer.Option("--to", help="As --from.")],
    model: Model = None,
) -> None:
    """Plan one reshard of one tensor."""
    import eggshard

    shape, dtype = parse_tensor(tensor)
    parsed = parse_mesh(mesh)
    plan = eggshard.plan_reshard(
        shape, dtype, parsed, parse_spec(source), parse_spec(target), cost_model=model
    )
    typer.echo(str(plan))


@app.command()
def partition(
    program: Source,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the module of one device here.")] = None,
    mode: Annotated[str, typer.Option(
        "--mode", help="Who decides on reshards: shardy, op by op, or global, the whole program.")] = "shardy",
    halo_exchange: Annotated[bool, typer.Option(help="Exchange rows with neighbours, instead of gathering.")] = True,
    model: Model = None,
) -> None:
    """Write the plain StableHLO of one device, with explicit collectives, for other back ends."""
    import eggshard

    source = text_of(program) if program == _STDIN else program
    made = eggshard.partition(source, mode=mode, enable_halo_exchange=halo_exchange, cost_model=model)
    if output:
        output.write_text(made.text)
    typer.echo(str(made) if output else made.text)


@app.command()
def explain_propagation(
    program: Source,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write it as one HTML page here.")] = None,
) -> None:
    """Say who decided the sharding of every value, which decisions conflict, and which reshards follow."""
    import eggshard

    explained = eggshard.explain_propagation(text_of(program) if program == _STDIN else program)
    typer.echo(f"{explained.report(output)}" if output else str(explained))


@app.command()
def shardy(
    program: Annotated[str, typer.Argument(help="A StableHLO module with Shardy annotations, or - for stdin.")] = "",
    passes: Annotated[str, typer.Option("--pass", help="Passes, e.g. close-shardings,insert-explicit-reshards.")] = "",
    pipeline: Annotated[str, typer.Option("--pipeline", help="A pipeline, e.g. export{inline-meshes=true}.")] = "",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the module here.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List passes and pipelines with their options.")] = False,
) -> None:
    """Run Shardy's passes by name, and print the module."""
    import eggshard.shardy

    if list_:
        from eggshard.shardy.table import print_passes

        print_passes()
        return
    if not program:
        raise ProgramError("give a module to run passes on, a file or - for stdin; --list shows the passes")
    if bool(passes) == bool(pipeline):
        raise ProgramError("give either --pass or --pipeline; --list shows what there is")
    text = text_of(Path(program))
    text = eggshard.shardy.transform(text, passes or eggshard.shardy.steps_of(pipeline))
    if output:
        output.write_text(text)
    else:
        typer.echo(text, nl=not text.endswith("\n"))


@app.command()
def layouts(
    kernel: Annotated[str, typer.Argument(
        allow_dash=True, help="A TritonGPU module (.ttgir), or - for stdin.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the module here.")] = None,
    trips: Annotated[float, typer.Option("--trips", help="Iterations of loops whose count is not known.")] = 32.0,
    seconds: Annotated[float, typer.Option("--seconds", help="Time limit of the search.")] = 60.0,
) -> None:
    """Plan the layout conversions of a Triton kernel, and print what is left of them."""
    import eggshard.triton
    from eggshard.triton.frequencies import Frequencies

    text = text_of(Path(kernel))
    plan = eggshard.triton.optimize(text, assumed=Frequencies(trips=trips), seconds=seconds)
    typer.echo(str(plan))
    if output:
        output.write_text(plan.text())


app.command(name="calibrate")(cli_calibrate.calibrate)


plans = typer.Typer(no_args_is_help=True, help="Look after the plans that are kept on disk (EGGSHARD_PLAN_CACHE).")
app.add_typer(plans, name="cache")
Folder = Annotated[Path | None, typer.Option("--folder", help="Of the plans; by default that of EGGSHARD_PLAN_CACHE.")]


def _cache(folder: Path | None) -> PlanCache:
    """The cache in a folder, by default the configured one; ConfigError where there is none."""
    from eggshard.plan.plan_cache import PlanCache
    from eggshard.settings import config

    found = PlanCache.configured() if folder is None else PlanCache(folder, config.plan_cache_bytes)
    if found is None:
        raise ConfigError("no plans are kept: set EGGSHARD_PLAN_CACHE to a folder, or give one with --folder")
    return found


@plans.command(name="list")
def list_plans(folder: Folder = None) -> None:
    """List the plans that are kept, those used last first."""
    from datetime import datetime

    kept = _cache(folder).plans()
    for each in kept:
        typer.echo(f"{each.key[:16]}  {each.bytes:>10}  {datetime.fromtimestamp(each.used):%Y-%m-%d %H:%M}")
    typer.echo(f"{len(kept)} plans, {sum(each.bytes for each in kept)} bytes")


@plans.command()
def prune(
    folder: Folder = None,
    size: Annotated[str | None, typer.Option(
        "--size", help="What is left takes no more, e.g. 100MiB, or 0; by default EGGSHARD_PLAN_CACHE_BYTES.")] = None,
) -> None:
    """Remove the plans that were not used for longest."""
    removed = _cache(folder).prune(None if size is None else parse_size(size))
    typer.echo(f"{len(removed)} plans removed, {sum(each.bytes for each in removed)} bytes")


@plans.command()
def verify(folder: Folder = None) -> None:
    """Read all plans that are kept; exit status 1 where one is not as it was written."""
    found = list(_cache(folder).verify())
    bad = [(kept, wrong) for kept, wrong in found if wrong]
    for kept, wrong in bad:
        typer.echo(f"{kept.path}: {wrong}")
    typer.echo(f"{len(found) - len(bad)} of {len(found)} plans are as they were written")
    if bad:
        raise typer.Exit(1)


@app.command()
def doctor() -> None:
    """Say what is installed, which devices there are, what plans are priced by, and what is missing."""
    from eggshard.doctor import examination

    typer.echo(examination())


def parse_spec(text: str) -> str | tuple[tuple[str, ...], ...]:
    """A sharding on the command line: Shardy's text, or comma-separated dimensions: ``x,-`` or ``(x,y),-``.

    ShardingError if it is neither.
    """
    if "{" in text or "[" in text:
        return text
    dimension = r"\(([^()]*)\)|([^,()]+)"
    if re.sub(dimension, "", text).strip(","):
        raise ShardingError(f"sharding {text!r} is not dimensions separated by commas, such as x,- or (x,y),-")
    parts = re.findall(dimension, text)
    dims = [group if group else single for group, single in parts]
    return tuple(tuple(a.strip() for a in d.split(",") if a.strip() not in ("", "-")) for d in dims)


def main() -> None:
    """Entry point: an `EggshardError`, or a file that cannot be written, is one line on stderr and exit status 1."""
    try:
        app()
    except (EggshardError, OSError) as error:
        print(f"eggshard: {error}", file=sys.stderr)
        raise SystemExit(1) from None
