"""Test files of the peers' kind, cut into cases, run and judged."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.lit import executables, fields, hlo_modules, judging, programs
from bench.lit.cases import Case, cases, runs_of
from bench.lit.judging import judge

pytest.importorskip("filecheck")

FILE = r"""// RUN: tool %s -split-input-file -sdy-close-shardings 2>&1 | FileCheck %s
// RUN: tool %s -sdy-reshard-to-collectives='keep-redundant-reshards=true' | FileCheck %s --check-prefixes=ONE,TWO
// RUN: other %s -sdy-close-shardings

// CHECK: sdy.mesh @mesh
sdy.mesh @mesh = <["x"=4]>
sdy.mesh @unused = <["y"=2]>

// CHECK-LABEL: func @closed
func.func @closed(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", ?}]>}) -> tensor<8xf32> {
  // CHECK: call @"a helper"(%arg0)
  %0 = call @"a helper"(%a) : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

func.func private @"a helper"(%a: tensor<8xf32>) -> tensor<8xf32>
attributes { what = "{ no brace" } {
  return %a : tensor<8xf32>
}
func.func @other(%a: tensor<8xf32>) -> tensor<8xf32> {
  return %a : tensor<8xf32>
}

// -----
// CHECK-NOT: func @nothing
func.func private @declared(tensor<8xf32>) -> tensor<8xf32>
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "some.mlir").write_text(FILE.replace('"a helper"', "helper"))
    return tmp_path


def test_a_case_is_a_function_with_what_it_names(folder: Path) -> None:
    closed, other, declared = cases(folder, "tool")
    assert [c.name for c in (closed, other, declared)] == [
        "some.mlir:closed", "some.mlir:other", "some.mlir:declared#1"]
    assert "@helper" in closed.code and "@other" not in closed.code and "@unused" not in closed.code
    assert "@mesh" in closed.code and "@mesh" not in other.code and "//" not in closed.code


def test_runs_are_passes_and_prefixes() -> None:
    first, second = runs_of(FILE, "tool")
    assert str(first) == "sdy-close-shardings" and first.prefixes == ("CHECK",)
    assert str(second) == "sdy-reshard-to-collectives{keep-redundant-reshards=true}"
    assert second.prefixes == ("ONE", "TWO")


def test_outputs_are_held_against_check_lines(folder: Path) -> None:
    closed, other, _ = cases(folder, "tool")
    run = next(run for run in closed.runs if run.prefixes == ("CHECK",))
    output = judging.shardy.transform(closed.code, "close-shardings")
    assert closed.checked(output, run) is True
    assert closed.checked(output.replace("call @helper", "call @else"), run) is False
    assert other.checked(output, run) is None


def case(body: str, passes: str, checks: str = "") -> tuple[Case, judging.Run]:
    text = f"""sdy.mesh @mesh = <["x"=4]>
      {checks}
      func.func @f(%a: tensor<8x4xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"x"}}, {{}}]>}})
          -> (tensor<8x4xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"x"}}, {{}}]>}}) {{
        {body}
      }}"""
    run = judging.Run(((passes, ""),), ("CHECK",))
    return Case("case", "f", text, (run,)), run


NEGATED = """%0 = stablehlo.negate %a {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>]>} : tensor<8x4xf32>
  return %0 : tensor<8x4xf32>"""


def test_the_same_text_is_best() -> None:
    assert judge(*case(NEGATED, "sdy-convert-global-to-local")).outcome == "same text"


def test_another_result_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    transform = judging.shardy.transform

    def broken(text: str, passes: str) -> str:
        out = transform(text, passes)
        return out.replace("negate", "abs") if passes == "sdy-convert-global-to-local" else out

    monkeypatch.setattr(judging.shardy, "transform", broken)
    assert judge(*case(NEGATED, "sdy-convert-global-to-local")).outcome == "wrong"
    checked = judge(*case(NEGATED, "sdy-convert-global-to-local", "// CHECK: stablehlo.abs"))
    assert checked.outcome == "as checked"


def test_what_jaxlib_takes_and_we_refuse_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(text: str, passes: str) -> str:
        raise judging.ProgramError("no")

    monkeypatch.setattr(judging.shardy, "transform", refuse)
    assert judge(*case(NEGATED, "sdy-close-shardings")).outcome == "refused"
    assert judge(*case(NEGATED, "sdy-no-such-pass")).outcome == "both refuse"
    assert judge(*case("no text", "sdy-close-shardings")).outcome == "unread"


EXECUTABLE = """// RUN: %S/run_sdy_interpreter_test.sh %s %t
//--- part1.mlir
sdy.mesh @mesh = <["x"=2]>
func.func @parallel_sum(%a: tensor<4xi32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>})
    -> (tensor<4xi32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>}) {
  %0 = stablehlo.add %a, %a {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}]>]>} : tensor<4xi32>
  %1 = sdy.all_gather [{"x"}] %0 out_sharding=<@mesh, [{}]> : tensor<4xi32>
  return %1 : tensor<4xi32>
}
func.func @sequential_sum(%a: tensor<4xi32>) -> tensor<4xi32> {
  %0 = stablehlo.add %a, %a : tensor<4xi32>
  return %0 : tensor<4xi32>
}
//--- part2.mlir
func.func @main() {
  %c = stablehlo.constant dense<[1, 2, 3, 4]> : tensor<4xi32>
  %whole = func.call @sequential_sum(%c) : (tensor<4xi32>) -> tensor<4xi32>
  %first = stablehlo.slice %c [0:2] : (tensor<4xi32>) -> tensor<2xi32>
  %last = stablehlo.slice %c [2:4] : (tensor<4xi32>) -> tensor<2xi32>
  %r:2 = "interpreter.run_parallel"(%first, %last) {programs = [[@parallel_sum, @parallel_sum]]}
    : (tensor<2xi32>, tensor<2xi32>) -> (tensor<4xi32>, tensor<4xi32>)
  check.expect_eq %whole, %r#0 : tensor<4xi32>
  "check.expect_eq"(%whole, %r#1) : (tensor<4xi32>, tensor<4xi32>) -> ()
  return
}
"""


@pytest.mark.parametrize("was, becomes, outcome", [
    ("", "", "right"), ("[2:4]", "[1:3]", "wrong"),
    ('[{"x"}]>]>} : tensor<4xi32>', '[{}]>]>} : tensor<4xi32>', "refused"),
])  # fmt: skip
def test_executables_run_on_devices(tmp_path: Path, was: str, becomes: str, outcome: str) -> None:
    (tmp_path / "one.mlir").write_text(EXECUTABLE.replace(was, becomes) if was else EXECUTABLE)
    (found,) = executables.executables(tmp_path)
    verdict = executables.judge(found)[0]
    assert verdict.outcome == outcome, verdict.why


PROGRAM = """sdy.mesh @mesh = <["x"=4]>
func.func @main(%a: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})
    -> (tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {
  %0 = stablehlo.negate %a : tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}"""


def test_whole_programs_are_run_three_ways() -> None:
    whole = programs.run("negated", PROGRAM)
    assert not whole.verdicts and whole.wire == {"XLA": 96.0, "optimize": 96.0, "shardy": 96.0, "global": 96.0}


def test_what_sends_more_is_dearer() -> None:
    whole = programs.Whole("some", {"XLA": 10.0, "optimize": 11.0, "shardy": 8.0, "global": 9.0})
    whole.judge()
    assert {way: verdict.outcome for way, verdict in whole.verdicts.items()} == {
        "optimize": "dearer", "global": "dearer"}


def test_programs_are_modules_that_are_not_partitioned_yet() -> None:
    gathered = PROGRAM.replace("stablehlo.negate %a", "sdy.all_gather [{\"x\"}, {}] %a out_sharding=<@mesh, [{}, {}]>")
    plain = PROGRAM.replace("@main", "@f")
    given = [Case(str(i), "f", text, ()) for i, text in enumerate((plain, plain, gathered, "no module sdy.sharding"))]
    assert [name for name, _ in programs.programs(iter(given))] == ["0"]


FIELDS = """// RUN: tool %s | FileCheck %s
module {
  sdy.mesh @mesh = <["x"=4]>
  sdy.mesh @other = <["y"=2]>
  // CHECK: func.func @turned
  func.func @turned(%a: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})
      -> (tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) {
    %0 = "enzymexla.rotate"(%a) <{amount = 1 : i32, dimension = 0 : i32}> : (tensor<8x4xf32>) -> tensor<8x4xf32>
    func.return %0 : tensor<8x4xf32>
  }
  func.func @alone(%a: tensor<8x4xf32>) -> tensor<8x4xf32> {
    func.return %a : tensor<8x4xf32>
  }
}
module {
  sdy.mesh @mesh = <["x"=2]>
  func.func @cut(%a: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})
      -> (tensor<4x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) {
    %0 = stablehlo.slice %a [0:4, 0:4] : (tensor<8x4xf32>) -> tensor<4x4xf32>
    func.return %0 : tensor<4x4xf32>
  }
}
"""


def test_fields_are_the_sharded_functions_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "fields.mlir"
    path.write_text(FIELDS)
    (turned, text), (cut, _) = fields.functions(path)
    assert (turned, cut) == ("fields.mlir:turned", "fields.mlir:cut#1")
    assert "@main" in text and "@mesh" in text and "@other" not in text and "//" not in text


def test_fields_are_planned_beside_the_peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.enzyme.interpreter", lambda: None)
    (tmp_path / "fields.mlir").write_text(FIELDS)
    turned, cut = fields.judged(tmp_path)
    assert (turned.outcome, turned.ours, turned.checked) == ("no peer", 16.0, "run")
    assert "enzyme_ad" in turned.why
    # The second device gets the last two of four rows; XLA sends as much.
    assert (cut.outcome, cut.ours, cut.checked) == ("equal", 32.0, "run")
    assert set(cut.wire) == {"XLA", "XLA with its flag"}


HLO = """TEST_P(SomeTest, Resharded) {
  const char* const hlo_string = R"(
HloModule module
ENTRY entry {
  %a = f32[8,4] parameter(0)
  %copy = f32[8,4] copy(%a), sharding={devices=[4,1]<=[4]}
  ROOT %negated = f32[8,4] negate(%copy), sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}
})";
}
TEST_F(SomeTest, Others) {
  Run(R"(HloModule module
ENTRY entry {
  ROOT %a = f32[8] parameter(0), sharding={devices=[2,2]<=[4] last_tile_dims={manual}}
})", R"(HloModule module
ENTRY entry {
  ROOT %a = f32[8] no_instruction(), sharding={devices=[4]<=[4]}
})", R"(%no_module = sharding={devices=[4]<=[4]})");
}
"""


def test_hlo_modules_are_named_after_tests(tmp_path: Path) -> None:
    (tmp_path / "some_test.cc").write_text(HLO)
    found = dict(hlo_modules.modules(tmp_path / "some_test.cc"))
    assert list(found) == ["some_test.cc:Resharded", "some_test.cc:Others", "some_test.cc:Others#1"]
    hinted, bare = hlo_modules.stablehlo(found["some_test.cc:Resharded"])
    # The argument is sharded as its copy is; what the copy itself says is a hint.
    assert hinted.count("devices=[4,1]<=[4]") == 2 and bare.count("devices=[4,1]<=[4]") == 1
    assert bare.count("devices=[2,1,2]<=[4]") == 1


def test_hlo_modules_are_planned_beside_xla(tmp_path: Path) -> None:
    (tmp_path / "some_test.cc").write_text(HLO)
    resharded, manual, unread = hlo_modules.judged(tmp_path)
    assert (resharded.outcome, resharded.ours, resharded.checked) == ("equal", 32.0, "run")
    assert set(resharded.wire) == {"XLA", "XLA without hints"}
    assert (manual.outcome, unread.outcome) == ("manual", "unread")
    table = hlo_modules.table([resharded, manual, unread])
    assert list(table.columns[1].cells) == ["some_test.cc", "all"]


def test_what_is_no_token_manual_or_order_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise judging.ProgramError("no")

    monkeypatch.setattr("eggshard.optimize", refuse)
    text = HLO.partition("R\"(")[2].partition(")\"")[0]
    assert hlo_modules.judge("some", text).outcome == "refused"
