"""Measured tables, XLA's among them, and machines fitted to them."""

import math
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from eggshard.calibration.fitting import errors, fitted
from eggshard.calibration.xla_table import parse_text_proto, read_xla_table
from eggshard.costmodel import AlphaBeta, Machine, Protocol, StepInfo, preset
from eggshard.costmodel.table import Measured, Table
from eggshard.errors import CostModelError
from eggshard.program.mesh import Mesh

TEXT = """
# proto-message: xla.gpu.DeviceHloInstructionProfiles
entries {
  key: "sm_90_H100"  # a comment
  value {
    entries {
      instruction {
        name: "_" opcode: "all-gather"
        shape { element_type: F32 dimensions: 1024 layout { minor_to_major: 0 } is_dynamic_dimension: false }
        metadata {}
        iota_collective_device_list { num_replica_groups: 2 num_devices_per_group: 4 iota_reshape_dims: 8
          iota_transpose_perm: 0 }
      }
      fingerprint: "a \\"quoted\\" one"
      network_throughput_bytes_per_sec: 4096000
    }
    entries {
      instruction {
        opcode: "reduce-scatter"
        shape { element_type: F32 dimensions: [256] }
        iota_collective_device_list: < num_replica_groups: 4, num_devices_per_group: 2; iota_reshape_dims: [2, 4]
          iota_transpose_perm: [1, 0] >
      }
      network_throughput_bytes_per_sec: 2048000
    }
    entries {
      instruction {
        opcode: "collective-permute"
        shape { element_type: F32 dimensions: 2 dimensions: 8 }
        source_target_pairs { target: 1 } source_target_pairs { source: 1 target: 2 } source_target_pairs { source: 2 }
      }
      network_throughput_bytes_per_sec: 64000
    }
    entries { instruction { opcode: "add" shape { element_type: F32 } } network_throughput_bytes_per_sec: 1 }
  }
}
"""


def test_xlas_table_is_read_as_steps(tmp_path: Path) -> None:
    path = tmp_path / "table.txtpb"
    path.write_text(TEXT)
    gather, scatter, permute = read_xla_table(path)["sm_90_H100"]
    assert gather[0].kind == "all-gather" and gather[0].group == 4 and gather[0].wire_bytes == 4096 * 3 / 4
    assert gather[1] == pytest.approx(1e-3) and gather[0].mesh == Mesh({"rest": 2, "group": 4})
    assert scatter[0].wire_bytes == 1024 and scatter[0].mesh == Mesh({"group": 2, "rest": 4})
    assert scatter[1] == pytest.approx(1e-3)
    assert permute[0].op == "ring" and permute[0].wire_bytes == 64 and permute[1] == pytest.approx(1e-3)


def library(*texts: str) -> bytes:
    """The bytes of a shared library with constants in it, and the name of a field that no entry gives."""
    noise = np.random.default_rng(0).integers(0, 256, 1000, np.uint8).tobytes()
    constants = [*(text.encode() for text in texts), b"network_throughput_bytes_per_sec"]
    return b"\0".join([b"\x7fELF" + noise, *constants, noise])


def test_a_table_is_found_in_a_library_and_in_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = tmp_path / "table.txtpb"
    text.write_text(TEXT)
    rows = read_xla_table(text)
    plugin, wheel = tmp_path / "xla_cuda_plugin.so", tmp_path / "jax_cuda12_pjrt-0-py3-none-any.whl"
    plugin.write_bytes(library("entries { key: 1 }", TEXT))
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("jax_plugins/xla_cuda12/__init__.py", TEXT)
        out.writestr("jax_plugins/xla_cuda12/xla_cuda_plugin.so", library(TEXT.replace("H100", "B200"), TEXT))
    for chunk in (1 << 24, 7, 1000):
        monkeypatch.setattr("eggshard.calibration.xla_table._CHUNK", chunk)
        assert read_xla_table(plugin) == rows
        assert read_xla_table(wheel) == {"sm_90_B200": rows["sm_90_H100"], **rows}


def test_a_library_or_a_wheel_without_a_table_is_refused(tmp_path: Path) -> None:
    plugin, wheel = tmp_path / "plugin.so", tmp_path / "some.whl"
    for data in (b"", library(), library("entries { key: 1 }")):
        plugin.write_bytes(data)
        with pytest.raises(CostModelError, match="plugin.so: no table.*jax-cuda12-pjrt 0.10.2"):
            read_xla_table(plugin)
    plugin.write_bytes(library(TEXT)[:-1200])
    with pytest.raises(CostModelError, match="plugin.so: no table"):
        read_xla_table(plugin)
    with zipfile.ZipFile(wheel, "w") as out:
        out.writestr("a.txt", TEXT)
    with pytest.raises(CostModelError, match="some.whl: no table"):
        read_xla_table(wheel)
    with zipfile.ZipFile(wheel, "w") as out:
        out.writestr("a.so", TEXT)
    wheel.write_bytes(wheel.read_bytes().replace(b"all-gather", b"xll-gather"))
    with pytest.raises(CostModelError, match="some.whl: cannot read"):
        read_xla_table(wheel)
    with pytest.raises(CostModelError, match="cannot read"):
        read_xla_table(tmp_path)


@pytest.mark.parametrize("text", ["", "entries {", "entries { key: }", "}", "entries: { value {} }", "a : 'b'", "{}"])
def test_what_is_no_table_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "table.txtpb"
    path.write_text(text)
    with pytest.raises(CostModelError, match="table.txtpb.*default_collective_perf_table"):
        read_xla_table(path)
    with pytest.raises(CostModelError, match="cannot read"):
        read_xla_table(tmp_path / "none")


def test_text_protos_have_words_numbers_strings_lists_and_messages() -> None:
    found = parse_text_proto('a: 1 a: -2 b { c: WORD d: "x # y" } e: [1, 2] f { } # end')
    assert found == {"a": [1, -2], "b": [{"c": ["WORD"], "d": ["x # y"]}], "e": [1, 2], "f": [{}]}


def step(kind: str, n: int, wire: float, messages: int = 1) -> StepInfo:
    return StepInfo(kind, Mesh({"rest": 8 // n, "group": n}), axes=("group",), group=n, wire_bytes=wire,
                    messages=messages, memory_bytes=wire)


def test_a_table_goes_through_its_entries_and_on_beyond_them() -> None:
    rows = [(step("all-gather", n, float(size)), 1e-6 * n + 1e-9 * size) for n in (2, 8) for size in (1e3, 1e5, 1e7)]
    table = Table.of([*rows, (rows[0][0], 1e-3), (rows[0][0], rows[0][1])], AlphaBeta())
    for found, seconds in rows:
        assert table.seconds(found) == pytest.approx(seconds)
    assert table.seconds(step("all-gather", 2, 10.0)) == table.seconds(step("all-gather", 2, 1e3))
    assert table.seconds(step("all-gather", 2, 1e9)) == pytest.approx(100 * table.seconds(step("all-gather", 2, 1e7)))
    middle = table.seconds(step("all-gather", 4, 1e5))
    assert table.seconds(step("all-gather", 2, 1e5)) < middle < table.seconds(step("all-gather", 8, 1e5))
    assert table.seconds(step("all-gather", 2, 2e5, messages=2)) == pytest.approx(
        2 * table.seconds(step("all-gather", 2, 1e5)))
    other = step("all-reduce", 2, 1e5)
    assert table.seconds(other) == AlphaBeta().seconds(other)


@given(st.lists(st.tuples(st.floats(1.0, 1e9), st.floats(1e-6, 1.0)), min_size=1, max_size=8), st.floats(1.0, 1e9),
       st.floats(1.0, 10.0))
def test_a_table_never_prices_more_bytes_less(rows: list[tuple[float, float]], size: float, more: float) -> None:
    table = Table.of([(step("all-reduce", 4, s), t) for s, t in rows], AlphaBeta())
    one, other = (table.seconds(step("all-reduce", 4, s)) for s in (size, size * more))
    assert one <= other * (1 + 1e-9)


@pytest.mark.parametrize("curve", [((1.0,), (1.0, 2.0)), ((2.0, 1.0), (1.0, 2.0)), ((1.0, 2.0), (2.0, 1.0)), ((), ())])
def test_impossible_tables_are_refused(curve) -> None:
    with pytest.raises(CostModelError, match="table: all-gather of 4"):
        Table((("all-gather", 4, *curve),), AlphaBeta())


KINDS = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "collective-permute")


def measured(machine: Machine, noise: float, outliers: int = 0) -> list[Measured]:
    """What a machine says, with noise."""
    rng = np.random.default_rng(0)
    rows = [(step(kind, n, float(1 << p)), 0.0) for kind in KINDS for n in (2, 4, 8) for p in range(10, 31)]
    rows += [(StepInfo("local", Mesh({"group": 8}), op=op, flops=1e3 * 4 ** i, memory_bytes=1e3 * 2 ** i), 0.0)
             for op in ("add", "dot_general") for i in range(16)]
    out = [(s, machine.seconds(s) * math.exp(noise * rng.normal())) for s, _ in rows]
    for i in rng.integers(0, len(out), outliers):
        out[i] = (out[i][0], 10 * out[i][1])
    return out


def test_a_fit_finds_a_machine_again_from_another() -> None:
    truth = preset("h100-node")
    found = fitted(preset("cpu-host"), measured(truth, 0.05, outliers=10))
    for e in errors(found, measured(truth, 0.0)):
        assert e.median < 0.1 and e.p90 < 0.4, e


def test_a_fit_finds_channels_and_messages_at_once() -> None:
    base = preset("a100-node")
    ways = (Protocol("permute", launch=1e-5, channel=2e10, part=8e6, kinds=("collective-permute",)),
            Protocol("all-to-all", launch=1e-5, latency=20.0, at_once=16, kinds=("all-to-all",)))
    truth = replace(base, levels=(replace(base.levels[0], units=0),), protocols=ways)
    rng = np.random.default_rng(1)
    steps = [StepInfo(way.kinds[0], Mesh({"rest": 64 // n, "group": n}), axes=("group",), group=n, messages=1,
                      wire_bytes=float(1 << p), memory_bytes=2.0 * (1 << p))
             for way in ways for n in (4, 16, 64) for p in range(10, 34)]
    rows = [(s, truth.seconds(s) * math.exp(0.02 * rng.normal())) for s in steps]
    found = fitted(replace(truth, protocols=base.protocols), rows)
    assert all(e.median < 0.03 and e.p90 < 0.1 for e in errors(found, rows))
    fits = {p.kinds[0]: p for p in found.protocols if p.kinds}
    assert fits["collective-permute"].channel == pytest.approx(2e10, rel=0.1)
    assert fits["collective-permute"].part == pytest.approx(8e6, rel=0.1)
    assert fits["all-to-all"].at_once == 16


def test_a_fit_of_one_kind_leaves_the_others_of_a_protocol() -> None:
    base = preset("h100-node")
    rows = [row for row in measured(preset("a100-node"), 0.0) if row[0].kind == "collective-permute"]
    found = fitted(base, rows)
    kinds = [p.kinds for p in found.protocols if p.kinds and "permute" in p.name]
    assert kinds.count(("exchange", "halo-exchange")) == 2 and ("collective-permute",) in kinds
    assert max(e.median for e in errors(found, rows)) < 0.1
    exchange = replace(rows[0][0], kind="exchange")
    assert found.seconds(exchange) == base.seconds(exchange)


def test_a_fit_leaves_what_was_not_measured() -> None:
    base = preset("h100-node")
    rows = [row for row in measured(base, 0.0) if row[0].kind == "all-gather"]
    found = fitted(base, rows)
    other = step("all-to-all", 8, 1e6)
    assert found.seconds(other) == base.seconds(other) and found.compute == base.compute
    assert fitted(base, []) == base


def test_a_fit_tells_copies_and_their_pieces_apart() -> None:
    truth = replace(preset("cpu-host"), protocols=(Protocol(launch=1e-4, memory=2e9, run=5e-9, kinds=("all-gather",)),))
    rows = [(replace(step("all-gather", n, float(size)), memory_bytes=float(size), copied_bytes=4.0 * size * copied,
                     runs=size / run * copied), 0.0)
            for n in (2, 4, 8) for size in (1 << 12, 1 << 16, 1 << 20) for copied, run in ((0, 1), (1, 4), (1, 4096))]
    found = fitted(preset("cpu-host"), [(s, truth.seconds(s)) for s, _ in rows])
    for s, _ in rows:
        assert found.seconds(s) == pytest.approx(truth.seconds(s), rel=0.1), s


def test_flops_in_proportion_to_bytes_are_not_told_from_them() -> None:
    """What is known of memory is then known of other ops too."""
    rows = [(StepInfo("local", Mesh({"group": 8}), op="add", flops=size / 12, memory_bytes=size), 1e-6 + size / 1e9)
            for size in (1e4, 1e5, 1e6, 1e7)]
    own = fitted(preset("cpu-host"), rows).compute.ops["add"]
    assert own.memory == pytest.approx(1e9, rel=0.05) and own.flops == preset("cpu-host").compute.flops


def test_impossible_times_are_refused() -> None:
    for seconds in (0.0, -1.0, math.nan):
        with pytest.raises(CostModelError, match="time above zero"):
            fitted(preset("cpu-host"), [(step("all-gather", 2, 8.0), seconds)])


measured_anywhere = st.lists(
    st.tuples(st.sampled_from([2, 4, 8]), st.floats(1.0, 1e9), st.floats(1e-7, 1.0)), min_size=3, max_size=30)


def check_fits(rows: list[tuple[int, float, float]]) -> None:
    measured = [(step(kind, n, wire), t) for kind in ("all-reduce", "collective-permute") for n, wire, t in rows]
    measured += [(StepInfo("local", Mesh({"group": 8}), op="add", memory_bytes=wire), t) for _, wire, t in rows]
    for base in ("h100-node", "tpu-v5e"):
        found = fitted(preset(base), measured)
        assert all(0 < found.seconds(s) < math.inf for s, _ in measured)


@given(measured_anywhere)
@settings(max_examples=8)
def test_whatever_was_measured_a_fit_is_found(rows: list[tuple[int, float, float]]) -> None:
    check_fits(rows)


@pytest.mark.slow
@given(measured_anywhere)
@settings(max_examples=30)
def test_whatever_was_measured_a_fit_is_found_often(rows: list[tuple[int, float, float]]) -> None:
    check_fits(rows)
