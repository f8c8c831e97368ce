"""Elementwise pure ops, classified by the kind of their instructions; None for those that cost nothing."""

from __future__ import annotations

_NAMES: dict[str | None, str] = {
    None: """
        arith.bitcast arith.constant tt.bitcast tt.int_to_ptr tt.ptr_to_int tt.splat tt.unsplat tt.get_program_id
        tt.get_num_programs ub.poison ttg.memdesc_index ttg.memdesc_subslice ttg.memdesc_trans ttg.memdesc_reshape
        ttg.memdesc_reinterpret ttg.warp_id""",
    "integer": """
        arith.addi arith.subi arith.muli arith.andi arith.ori arith.xori arith.shli arith.shrsi arith.shrui
        arith.maxsi arith.maxui arith.minsi arith.minui arith.cmpi arith.select arith.extsi arith.extui arith.trunci
        arith.index_cast arith.index_castui arith.addui_extended arith.subui_extended arith.mului_extended
        arith.mulsi_extended math.absi math.ctlz math.ctpop math.cttz tt.addptr tt.make_range tt.mulhiui""",
    "float": """
        arith.addf arith.subf arith.mulf arith.negf arith.maximumf arith.minimumf arith.maxnumf arith.minnumf
        arith.cmpf math.absf math.ceil math.floor math.trunc math.round math.roundeven math.copysign math.fma
        math.isfinite math.isinf math.isnan math.isnormal math.clampf tt.clampf""",
    "conversion": """
        arith.extf arith.truncf arith.sitofp arith.uitofp arith.fptosi arith.fptoui arith.convertf tt.fp_to_fp""",
    "special": """
        math.acos math.acosh math.asin math.asinh math.atan math.atan2 math.atanh math.cbrt math.cos math.cosh math.erf
        math.erfc math.exp math.exp2 math.expm1 math.fpowi math.ipowi math.log math.log10 math.log1p math.log2
        math.powf math.rsqrt math.sin math.sincos math.sinh math.sqrt math.tan math.tanh tt.approx_divf
        tt.precise_sqrt""",
    "division": """
        arith.divf arith.remf tt.precise_divf arith.ceildivsi arith.ceildivui arith.divsi arith.divui arith.floordivsi
        arith.remsi arith.remui""",
}

KINDS: dict[str, str | None] = {name: kind for kind, names in _NAMES.items() for name in names.split()}
