"""The command line: what it prints, what it writes, and how it answers mistakes."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from eggshard import shardy
from eggshard.api import Plan
from eggshard.cli import app, main, parse_mesh, parse_size, parse_spec, parse_tensor
from eggshard.errors import EggshardError, MeshError
from eggshard.version import __version__

MODULE = """
sdy.mesh @mesh = <["x"=4, "y"=2]>
func.func @main(%a: tensor<64x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>},
                %b: tensor<32x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}]>})
    -> (tensor<64x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
      : (tensor<64x32xf32>, tensor<32x16xf32>) -> tensor<64x16xf32>
  return %0 : tensor<64x16xf32>
}
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.mlir"
    path.write_text(MODULE)
    return path


def test_partition_writes_the_program_of_a_device(program: Path, tmp_path: Path) -> None:
    written = tmp_path / "out.mlir"
    result = CliRunner().invoke(app, ["partition", str(program), "--mode", "global", "-o", str(written)])
    assert result.exit_code == 0 and "received by the busiest device" in result.output, result.output
    assert "stablehlo.all_reduce" in written.read_text() and "sdy" not in written.read_text()
    printed = CliRunner().invoke(app, ["partition", "-"], input=MODULE)
    assert printed.exit_code == 0 and "tensor<16x16xf32>" in printed.output


def test_explain_propagation_prints_tables_or_writes_a_page(program: Path, tmp_path: Path) -> None:
    printed = CliRunner().invoke(app, ["explain-propagation", "-"], input=MODULE)
    assert printed.exit_code == 0 and "decided by" in printed.output, printed.output
    page = tmp_path / "propagation.html"
    written = CliRunner().invoke(app, ["explain-propagation", str(program), "-o", str(page)])
    assert written.exit_code == 0 and written.output == f"{page}\n" and "<!doctype html>" in page.read_text()


def test_optimize_prints_the_plan_and_writes_files(program: Path, tmp_path: Path) -> None:
    lowered, saved = tmp_path / "out.mlir", tmp_path / "plan.json"
    options = ["--cost-model", "wire-bytes", "-o", str(lowered), "--json", str(saved), "--verify"]
    result = CliRunner().invoke(app, ["optimize", str(program), *options])
    assert result.exit_code == 0, result.output
    assert "all-reduce" in result.output and "equal to the unsharded program" in result.output
    assert "stablehlo.all_reduce" in lowered.read_text()
    assert Plan.from_json(saved.read_text()).collectives == {"all-reduce": 1}


def test_optimize_chooses_what_is_open(tmp_path: Path) -> None:
    path, saved = tmp_path / "open.mlir", tmp_path / "plan.json"
    path.write_text(re.sub(r" \{sdy.sharding = #sdy.sharding<@mesh, [^>]*>\}", "", MODULE))
    options = ["--auto", "--cost-model", "wire-bytes", "--json", str(saved)]
    result = CliRunner().invoke(app, ["optimize", str(path), *options])
    assert result.exit_code == 0, result.output
    assert "input arg0: [{" in result.output and "output result0: [{" in result.output
    assert Plan.from_json(saved.read_text()).wire_bytes == 0
    path.write_text(path.read_text().replace('sdy.mesh @mesh = <["x"=4, "y"=2]>', ""))
    result = CliRunner().invoke(app, ["optimize", str(path), "--auto", "--mesh", "x=8"])
    assert result.exit_code == 0 and "on {'x': 8}" in result.output, result.output
    with pytest.raises(MeshError, match="states no mesh to choose shardings on; give"):
        CliRunner().invoke(app, ["optimize", str(path), "--auto"], catch_exceptions=False)
    result = CliRunner().invoke(app, ["optimize", str(path), "--mesh", "x=8"])
    assert result.exit_code == 2 and "--mesh is for --auto" in result.output


def test_explain_shows_the_baseline(program: Path) -> None:
    result = CliRunner().invoke(app, ["explain", str(program)])
    assert result.exit_code == 0, result.output
    assert "baseline" in result.output and "e-classes" in result.output


def test_sources_come_by_standard_input(program: Path, tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    for command, text in (("optimize", MODULE), ("explain", MODULE), ("optimize", MODULE), ("explain", None)):
        more = ["--json", str(saved)] if command == "optimize" else []
        result = CliRunner().invoke(app, [command, "-", *more], input=saved.read_text() if text is None else text)
        assert result.exit_code == 0 and "all-reduce" in result.output, result.output


def test_memory_limits_have_units(program: Path) -> None:
    sizes = {"512MiB": 512 << 20, "16GiB": 16 << 30, "1.5KB": 1500, "2000": 2000, "3 G": 3 * 10**9}
    assert {text: parse_size(text) for text in sizes} == sizes
    result = CliRunner().invoke(app, ["optimize", str(program), "--memory-limit", "1KiB"])
    assert isinstance(result.exception, EggshardError) and "memory" in str(result.exception)


def test_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0 and result.output == f"eggshard {__version__}\n"


@pytest.mark.parametrize("source, target", [("x,y", "y,x"), ('[{"x"}, {"y"}]', '[{"y"}, {"x"}]')])
def test_reshard(source: str, target: str) -> None:
    result = CliRunner().invoke(
        app, ["reshard", "1024x1024xf32", "--mesh", "x=4,y=2", "--from", source, "--to", target]
    )
    assert result.exit_code == 0, result.output
    assert "512 KiB" in result.output


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["reshard", "8x8xf32", "--mesh", "x=4", "--from", "q,-", "--to", "-,x"], "q"),
        (["optimize", "a.mlir", "--memory-limit", "much"], "512MiB"),
        (["reshard", "8x8xf32", "--mesh", "x:4", "--from", "x,-", "--to", "-,x"], "x=4,y=2"),
        (["reshard", "8by8", "--mesh", "x=4", "--from", "x,-", "--to", "-,x"], "4096x4096xf32"),
        (["optimize", "/nonexistent/program.mlir"], "program.mlir"),
        (["reshard", "8x8xf32", "--mesh", "x=4", "--from", "(x", "--to", "-,x"], "(x,y),-"),
        (["reshard", "7x8xf32", "--mesh", "x=4", "--from", "x,-", "--to", "-,x"], "different sizes"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch,
                               capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["eggshard", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 1
    error = capsys.readouterr().err
    assert error.startswith("eggshard: ") and message in error and "Traceback" not in error


def test_a_file_that_cannot_be_written_is_one_line(program: Path, monkeypatch: pytest.MonkeyPatch,
                                                   capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["eggshard", "optimize", str(program), "-o", "/nonexistent/out.mlir"])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err.startswith("eggshard: ")


def test_parsers() -> None:
    assert parse_mesh("x=4, y=2").axes == {"x": 4, "y": 2}
    assert parse_tensor("4096x4096xf32") == ((4096, 4096), "f32")
    assert parse_tensor("f32") == ((), "f32")
    assert parse_spec("(x,y),-") == (("x", "y"), ())
    with pytest.raises(EggshardError):
        parse_mesh("x")


def test_shardy_runs_passes_on_files_and_stdin(program: Path, tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["shardy", str(program), "--pass", "close-shardings,drop-sharding-and-mesh"])
    assert ran.exit_code == 0, ran.output
    assert "stablehlo.dot_general" in ran.output and "sdy" not in ran.output
    again = CliRunner().invoke(app, ["shardy", "-", "--pass", "inline-meshes"], input=MODULE)
    assert 'mesh<["x"=4, "y"=2]>' in again.output and "@mesh" not in again.output
    out = tmp_path / "out.mlir"
    piped = CliRunner().invoke(
        app, ["shardy", str(program), "--pipeline", "export{avoid-export-for-partitioning=true}", "-o", str(out)]
    )
    assert piped.exit_code == 0 and not piped.output
    assert out.read_text().startswith("module {")


def test_shardy_lists_passes_and_pipelines() -> None:
    listed = CliRunner().invoke(app, ["shardy", "--list"])
    assert listed.exit_code == 0
    for wanted in ("close-shardings", "sink-debug-sharding-origins=false", "Merge constants", "pipelines", "export",
                   "explicit-gather-scatter-batching"):
        assert wanted in listed.output


@pytest.mark.parametrize(("arguments", "steps"), [
    (["--pass", "close-shardings,insert-explicit-reshards"], "close-shardings,insert-explicit-reshards"),
    (["--pass", "sdy-insert-explicit-reshards{enable-full-version=true mode=global}"],
     "insert-explicit-reshards{enable-full-version=true mode=global}"),
    (["--pass", "explicit-gather-scatter-batching"], "explicit-gather-scatter-batching"),
    *((["--pipeline", name], shardy.steps_of(name)) for name in shardy.PIPELINES),
    (["--pipeline", "export{inline-meshes=true}"], shardy.steps_of("export{inline-meshes=true}")),
], ids=lambda given: " ".join(given) if given[0].startswith("--") else "")  # fmt: skip
def test_shardy_prints_what_the_passes_make(program: Path, arguments: list[str], steps: str | list[str]) -> None:
    ran = CliRunner().invoke(app, ["shardy", str(program), *arguments])
    assert ran.exit_code == 0, ran.output
    assert ran.output == shardy.transform(MODULE, steps)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--pass", "close-sharding"], "there is no pass 'close-sharding'; there are "),
        (["--pass", "close-shardings{now=true}"], "has no option 'now'; it has none"),
        (["--pass", "sink-data-flow-edges{sink-debug-sharding-origins=perhaps}"], "is true or false, not 'perhaps'"),
        (["--pipeline", "exports"], "there is no pipeline 'exports'"),
        ([], "give either --pass or --pipeline"),
        (["--pass", "close-shardings", "--pipeline", "export"], "give either --pass or --pipeline"),
    ],
)
def test_shardy_mistakes_are_one_line(
    program: Path, arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr("sys.argv", ["eggshard", "shardy", str(program), *arguments])
    with pytest.raises(SystemExit):
        main()
    error = capsys.readouterr().err
    assert error.startswith("eggshard: ") and message in error and error.count("\n") == 1


@pytest.mark.parametrize("text, message", [
    ("func.func @main() { this is no op }", "malformed MLIR"),
    ("sdy.mesh @m = <[\"x\"=2]>\nfunc.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {\n"
     "  %0 = sdy.reshard %a <@m, [{\"x\"}]> : tensor<2xf32>\n  return %0 : tensor<2xf32>\n}", "needs its mesh"),
])  # fmt: skip
def test_shardy_refuses_modules_in_one_line(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "program.mlir"
    path.write_text(text)
    monkeypatch.setattr("sys.argv", ["eggshard", "shardy", str(path), "--pass", "drop-sharding-and-mesh"])
    with pytest.raises(SystemExit):
        main()
    error = capsys.readouterr().err
    assert error.startswith("eggshard: ") and message in error and "Traceback" not in error


def test_a_plan_keeps_the_prices_that_it_was_made_at(program: Path, tmp_path: Path) -> None:
    saved, broken = tmp_path / "plan.json", tmp_path / "broken.json"
    assert CliRunner().invoke(app, ["optimize", str(program), "--json", str(saved)]).exit_code == 0
    refused = CliRunner().invoke(app, ["explain", str(saved), "--cost-model", "messages"])
    assert refused.exit_code == 2 and "with the prices that it was made at" in " ".join(refused.output.split())
    broken.write_text(saved.read_text()[:100])
    for command in (["diff", str(saved), str(broken)], ["report", str(broken)]):
        assert "broken.json: not JSON" in str(CliRunner().invoke(app, command).exception), command
