"""Instructions counted in texts."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from eggshard.triton.compiler.counting import _SASS, CodeCounts, count_amdgcn  # noqa: E402

SASS = """
        /*0000*/                   MOV R1, c[0x0][0x28] ;
        /*0010*/              @!P0 STS.64 [R2], R4 ;
        /*0020*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
.L_x_1:
        /*0030*/             @!UP2 LDSM.16.M88.4 R4, [R2] ;
        /*0040*/               @PT SHFL.BFLY PT, R5, R4, 0x1, 0x1f ;
        /*f0050*/                  EXIT ;
"""

AMDGCN = """
	.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
	.text
f:                                      ; @f
; %bb.0:
	s_load_dwordx2 s[0:1], s[0:1], 0x0
	ds_write2st64_b64 v1, v[2:3], v[4:5] offset1:4
	s_waitcnt lgkmcnt(0)
	s_barrier
	ds_read_b128 v[2:5], v1
	ds_bpermute_b32 v6, v7, v2
	v_add_f32_dpp v1, v2, v3 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf
	v_mov_b32_dpp v1, v2 row_shr:8 row_mask:0xf bank_mask:0xf
	v_add_f32_e32 v1, v2, v3
	s_endpgm
	.section	.rodata,"a",@progbits
	.amdhsa_kernel f
	.end_amdhsa_kernel
	.amdgpu_metadata
    .vgpr_count:     96
    .vgpr_spill_count: 3
	.end_amdgpu_metadata
"""


def test_sass() -> None:
    names = [found[1] for found in _SASS.finditer(SASS)]
    assert names == ["MOV", "STS.64", "BAR.SYNC.DEFER_BLOCKING", "LDSM.16.M88.4", "SHFL.BFLY", "EXIT"]


def test_amdgcn() -> None:
    assert count_amdgcn(AMDGCN) == CodeCounts(
        instructions=10, barriers=1, shared_loads=1, shared_stores=1, shuffles=3, registers=96, spills=12)
