"""Assembly of AMD, generation by generation."""

from __future__ import annotations

import pytest

from eggshard.triton.compiler.amdgcn import decode

TEXT = """
	.text
kernel:                                 ; @kernel
; %bb.0:
	s_load_dwordx2 s[0:1], s[0:1], 0x0
	s_waitcnt lgkmcnt(0)
.LBB0_1:                                ; =>This Inner Loop Header: Depth=1
	global_load_dwordx4 v[0:3], v4, s[0:1]
	s_waitcnt vmcnt(1)
	v_exp_f32_e32 v0, v0
	ds_write2st64_b64 v5, v[0:1], v[2:3] offset1:4
	s_waitcnt lgkmcnt(0)
	s_barrier
	v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]
	s_cbranch_scc1 .LBB0_1
; %bb.2:
	s_endpgm
	.section	.rodata,"a",@progbits
	.amdhsa_kernel kernel
"""


def test_a_loop() -> None:
    code = decode(TEXT, 64)
    assert len(code) == 11
    load, wait, special, write, both, barrier, product, branch = code[2:10]
    assert (load.unit, load.busy, load.starts) == ("memory", 16.0, (("load", 250.0),))
    assert wait.waits == (("load", 1),)
    assert (special.unit, special.busy, special.stall) == ("vector", 4.0, 16.0)
    assert (write.unit, write.busy) == ("shared", 8.0)
    assert both.waits == (("ds", 0), ("km", 0))
    assert barrier.stall == 20.0
    assert (product.unit, product.busy) == ("product", 8.0)
    assert branch.target == 2


@pytest.mark.parametrize(("line", "waits"), [
    ("s_waitcnt vmcnt(3) lgkmcnt(1)", (("load", 3), ("ds", 1), ("km", 1))),
    ("s_waitcnt_vscnt null, 0x0", (("store", 0),)),
    ("s_wait_loadcnt 0x2", (("load", 2),)),
    ("s_wait_loadcnt_dscnt 0x102", (("load", 1), ("ds", 2))),
    ("s_wait_alu depctr_va_vdst(0)", ()),
])
def test_what_is_waited_for(line: str, waits: tuple[tuple[str, int], ...]) -> None:
    (found,) = decode(f"\t{line}\n", 32)
    assert sorted(found.waits) == sorted(waits)


@pytest.mark.parametrize(("name", "kind"), [
    ("s_barrier", "barriers"), ("s_barrier_wait", "barriers"), ("s_barrier_signal", None),
    ("ds_read_b32", "shared_loads"), ("ds_store_b64", "shared_stores"), ("ds_bpermute_b32", "crossbar"),
    ("global_store_b16", "global_stores"), ("buffer_atomic_add", "global_stores"), ("scratch_store_b32", None),
    ("global_load_dword", None),
])
def test_what_is_counted(name: str, kind: str | None) -> None:
    (found,) = decode(f"\t{name} v0, v1, v2\n", 64)
    assert found.kind == kind


@pytest.mark.parametrize(("name", "lanes", "unit", "busy"), [
    ("ds_load_b128", 32, "shared", 4.0),
    ("ds_read_b32", 64, "shared", 2.0),
    ("ds_bpermute_b32", 64, "shared", 2.0),
    ("global_store_b16", 32, "memory", 1.0),
    ("global_load_dwordx4", 64, "memory", 16.0),
    ("v_wmma_f32_16x16x16_f16", 32, "product", 8.0),
    ("v_add_f32_e32", 32, "vector", 0.25),
])
def test_what_is_kept_busy(name: str, lanes: int, unit: str, busy: float) -> None:
    (found,) = decode(f"\t{name} v0, v1, v2\n", lanes)
    assert (found.unit, found.busy) == (unit, busy)
