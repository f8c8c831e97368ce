"""Rules on Fourier transforms: one over several dimensions is one over each, so that the others may stay sharded."""

from __future__ import annotations

from functools import partial
from typing import Any

from eggshard.egraph.laws import each, tensors, together
from eggshard.egraph.rules import Match, RuleList

rules = RuleList()

#: The kind of the transforms over all dimensions but the last one, on whose side real numbers are.
_INNER = {"FFT": "FFT", "RFFT": "FFT", "IFFT": "IFFT", "IRFFT": "IFFT"}


def _apart(m: Match, kinds: tuple[str, ...]) -> Any:
    """The transforms over the outermost of several dimensions and over the others, and the exchange of the outermost
    one with the last."""
    kind, lengths = m.f["fft_type"], m.f["fft_length"]
    if len(lengths) < 2 or kind not in kinds:
        return None
    order = list(range(m.x.rank))
    order[-len(lengths)], order[-1] = order[-1], order[-len(lengths)]
    outer = {"fft_type": _INNER[kind], "fft_length": lengths[:1]}
    return {"outer": outer, "others": {"fft_type": kind, "fft_length": lengths[1:]}, "p": {"permutation": tuple(order)}}


def _transforms(*kinds: str, lengths: tuple[int, ...] = (4, 6)) -> list[dict[str, Any]]:
    return [{"fft_type": kind, "fft_length": lengths} for kind in kinds]


def _cases(*kinds: str, real: str) -> Any:
    """Transforms over two and three dimensions; ``real``: the kind that takes or gives real numbers."""
    taken = "f32" if real == "RFFT" else "complex<f32>"
    last = {"RFFT": 6, "IRFFT": 4}[real]
    return together(
        each(x=tensors((4, 6), (2, 4, 6), dtypes=("complex<f32>",)), f=_transforms(*kinds)),
        each(x=tensors((2, 3, 4), dtypes=("complex<f32>",)), f=_transforms(*kinds, lengths=(2, 3, 4))),
        each(x=tensors((4, last), dtypes=(taken,)), f=_transforms(real)),
        each(x=tensors((2, 4, last), dtypes=(taken,)), f=_transforms(real, lengths=(2, 4, 6))),
    )


rules.add(
    "fft[f](x) => transpose[p](fft[outer](transpose[p](fft[others](x))))",
    name="fft, the outermost dimension last",
    says="Fourier transform one dimension at a time, the outermost one last",
    mark="ρ",
    cases=_cases("FFT", "IFFT", real="RFFT"),
)(partial(_apart, kinds=("FFT", "IFFT", "RFFT")))
rules.add(
    "fft[f](x) => fft[others](transpose[p](fft[outer](transpose[p](x))))",
    name="fft, the outermost dimension first",
    says="Fourier transform one dimension at a time, the outermost one first",
    mark="ρ",
    cases=_cases("FFT", "IFFT", real="IRFFT"),
)(partial(_apart, kinds=("FFT", "IFFT", "IRFFT")))
