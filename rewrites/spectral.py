"""Rules on Fourier transforms: one over several dimensions is one over each, so that the others may stay sharded."""

from __future__ import annotations

from typing import Any

from eggshard.egraph.laws import each, tensors, together
from eggshard.egraph.rules import Match, RuleList

rules = RuleList()

_KINDS = {"FFT": "FFT", "RFFT": "FFT", "IFFT": "IFFT", "IRFFT": "IFFT"}


def _apart(m: Match, last_first: bool) -> Any:
    """The transforms over the last two dimensions, and their exchange. Real numbers are on the last one's side."""
    kind, lengths = m.f["fft_type"], m.f["fft_length"]
    if len(lengths) != 2 or (kind == "IRFFT") is last_first:
        return None
    rank = m.x.rank
    inner = {"fft_type": _KINDS[kind], "fft_length": lengths[:1]}
    last = {"fft_type": kind, "fft_length": lengths[1:]}
    return {"last": last, "inner": inner, "p": {"permutation": (*range(rank - 2), rank - 1, rank - 2)}}


def _transforms(*kinds: str) -> list[dict[str, Any]]:
    return [{"fft_type": kind, "fft_length": (4, 6)} for kind in kinds]


rules.add(
    "fft[f](x) => transpose[p](fft[inner](transpose[p](fft[last](x))))",
    name="fft of two dimensions",
    says="Fourier transform one dimension at a time, last first",
    mark="ρ",
    cases=together(
        each(x=tensors((4, 6), (2, 4, 6), dtypes=("complex<f32>",)), f=_transforms("FFT", "IFFT")),
        each(x=tensors((4, 6)), f=_transforms("RFFT")),
    ),
)(lambda m: _apart(m, True))
rules.add(
    "fft[f](x) => fft[last](transpose[p](fft[inner](transpose[p](x))))",
    name="inverse real fft of two dimensions",
    says="inverse real Fourier transform one dimension at a time",
    mark="ρ",
    cases=each(x=tensors((4, 4), dtypes=("complex<f32>",)), f=_transforms("IRFFT")),
)(lambda m: _apart(m, False))
