"""The command ``eggshard layouts``: what it prints, what it writes, and how it answers mistakes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

from tests.triton.planned import kernel_of, vector
from typer.testing import CliRunner

from eggshard.cli import app, main
from eggshard.triton.frontend.libtriton import load, module_of

V, W = "tensor<256xf32, #one>", "tensor<256xf32, #two>"


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.ttgir"
    path.write_text(str(module_of(kernel_of(f"""{vector("one")}
      %x = tt.load %at : tensor<256x!tt.ptr<f32>, #one>
      %k0 = arith.constant 0 : i32
      %k1 = arith.constant 1 : i32
      scf.for %i = %k0 to %n step %k1 : i32 {{
        %t = ttg.convert_layout %x : {V} -> {W}
        %y = math.exp2 %t : {W}
        %b = ttg.convert_layout %y : {W} -> {V}
        tt.store %at, %b : tensor<256x!tt.ptr<f32>, #one>
      }}""")).str_nodebug()))
    return path


def test_it_prints_the_table_and_writes_the_module(kernel: Path, tmp_path: Path) -> None:
    output = tmp_path / "planned.ttgir"
    result = CliRunner().invoke(app, ["layouts", str(kernel), "-o", str(output)])
    assert result.exit_code == 0, result.output
    assert "2 -> 0 conversions" in result.output and "optimal among all candidates" in result.output
    text = output.read_text()
    assert "convert_layout" not in text and "loc(" not in text
    assert load(text).functions


def test_it_reads_from_stdin_and_writes_the_same_every_time(kernel: Path, tmp_path: Path) -> None:
    texts = []
    for name in ("first", "second"):
        output = tmp_path / name
        result = CliRunner().invoke(app, ["layouts", "-", "-o", str(output)], input=kernel.read_text())
        assert result.exit_code == 0, result.output
        texts.append(output.read_text())
    assert texts[0] == texts[1]


def test_trips_are_what_is_assumed_of_loops(kernel: Path) -> None:
    few, many = (CliRunner().invoke(app, ["layouts", str(kernel), "--trips", n]).output for n in ("1", "1000"))
    cost = [float(text.split("cost ")[1].split()[0]) for text in (few, many)]
    assert cost[1] > 100 * cost[0]


@pytest.mark.parametrize(("text", "what"), [
    ("not a module", "libtriton does not parse"), ("module {}", "layouts"),
])
def test_mistakes_are_one_line(
    text: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kernel.ttgir"
    path.write_text(text)
    for file in (path, tmp_path / "none.ttgir"):
        monkeypatch.setattr(sys, "argv", ["eggshard", "layouts", str(file)])
        with pytest.raises(SystemExit) as stopped:
            main()
        assert stopped.value.code == 1
        said = capsys.readouterr().err.splitlines()[-1]
        assert said.startswith("eggshard: ") and (what in said or file is not path)
