"""Rules on Fourier transforms: one over several dimensions is one over each, so that the others may stay sharded; and
what is filtered by its spectrum and stays real needs half of that."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from eggshard.egraph.laws import each, tensors, together
from eggshard.egraph.rules import Match, RuleList
from eggshard.program.attributes import Literal
from eggshard.program.types import numpy_dtype
from eggshard.rewrites.shapes import SIDES, slice_of

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


def _kept_real(m: Match, rank: int = 0) -> bool:
    """Whether a transform of what is real, over so many dimensions or any, is undone, and the real part taken."""
    there, back = m.f, m.i
    undone = (there["fft_type"], back["fft_type"]) == ("FFT", "IFFT") and there["fft_length"] == back["fft_length"]
    floats = m.x.dtype == m.result.dtype and m.x.dtype.startswith("f")
    return undone and floats and bool(m.result.elements) and (not rank or len(there["fft_length"]) == rank)


def _halves(m: Match) -> dict[str, Any]:
    """Transforms from and to real numbers, which know half of a spectrum."""
    lengths = m.f["fft_length"]
    return {"there": {"fft_type": "RFFT", "fft_length": lengths}, "back": {"fft_type": "IRFFT", "fft_length": lengths}}


def _filtered(m: Match, rank: int) -> Any:
    """Half of the mean of a filter and its mirror image, whose index k along each dimension is the filter's -k."""
    real, whole = m.result.dtype, m.type("c").dtype
    if not (_kept_real(m, rank) and m.w.dtype == (real if "d" in m.uses() else whole)):
        return None
    *outer, n = m.result.shape
    first, last = m.result.rank - rank, m.result.rank - 1

    def columns(start: int, limit: int) -> Any:
        return slice_of([*((0, size, 1) for size in outer), (start, limit, 1)])

    def filled(value: float, dtype: str, *shape: int) -> dict[str, Any]:
        return {"value": Literal(np.broadcast_to(np.array(value, numpy_dtype(dtype)), shape))}

    made = {
        **_halves(m), "half": columns(0, n // 2 + 1), "zero": columns(0, 1), "rest": columns(n - n // 2, n),
        "along": {"dimension": last}, "turned": {"dimensions": tuple(range(first, last + 1))},
        "turned_zero": {"dimensions": tuple(range(first, last))}, "complex": m.uses()["c"].attributes,
        "halves": filled(0.5, real, *outer, n // 2 + 1), "ones": filled(1, m.w.dtype, *outer, n),
    }  # fmt: skip
    # Turned around, the index k is at size - 1 - k; -k is that, one further.
    return made | {f"on_{dim - first}": {"dimension": dim, "amount": outer[dim] - 1} for dim in range(first, last)}


def _mean(factor: str, rank: int, op: str = "add") -> str:
    """Half of the mean of a factor and its mirror image, or of their difference."""
    mirrored = (f"concatenate[along](reverse[turned_zero](slice[zero]({factor})), "
                f"reverse[turned](slice[rest]({factor})))")
    for number in range(rank - 1):
        mirrored = f"rotate[on_{number}]({mirrored})"
    return f"multiply({op}(slice[half]({factor}), {mirrored}), constant[halves]())"


def _spectra(rank: int, **others: str) -> Any:
    """Cases of transforms over so many dimensions and over others, with more tensors of these dtypes."""
    lengths = (3, 4, 5)[-rank:]
    there, back = ([{"fft_type": kind, "fft_length": (3, 4, 5)[-n:]} for n in (1, 2, 3)] for kind in ("FFT", "IFFT"))
    return together(*(
        each(x=tensors(shape, dtypes=(f"f{bits}",)), f=there, i=back,
             **{name: tensors(shape, dtypes=dtypes.format(bits, bits).split()) for name, dtypes in others.items()},
             **dict.fromkeys("cd", {"dtype": f"complex<f{bits}>"}))
        for shape in (lengths, (2, *lengths)) for bits in (32, 64)
    ))


# A spectrum X of what is real has X[-k] = conj(X[k]), and the real part of what has the spectrum Z is what has
# (Z[k] + conj(Z[-k])) / 2. So of Z = X w half of X is enough, and of w half of (w[k] + conj(w[-k])) / 2.
_HALF = "half of the spectrum, as the rest is its mirror image"
for _rank in (1, 2, 3):
    for _op, _factor in (("multiply", "w"), ("divide", "divide(constant[ones](), w)")):
        _parts = _mean(f"real({_factor})", _rank), _mean(f"imag({_factor})", _rank, "subtract")
        for _kind, _filter, _half in (
            ("real", "convert[d](w)", f"convert[complex]({_mean(_factor, _rank)})"),
            ("complex", "w", f"complex({', '.join(_parts)})"),
        ):  # fmt: skip
            for _order, _given in SIDES if _op == "multiply" else SIDES[:1]:
                rules.add(
                    f"real(fft[i]({_op}({_given('fft[f](convert[c](x))', _filter)}))) => "
                    f"fft[back](multiply(fft[there](x), {_half}))",
                    name=f"real part of a spectrum of {_rank}, {_op}, {_kind} filter {_order}",
                    says=_HALF,
                    mark="ρ",
                    cases=_spectra(_rank, w="f{} complex<f{}>"),
                )(partial(_filtered, rank=_rank))
for _op in ("multiply", "divide", "add", "subtract"):
    rules.add(
        f"real(fft[i]({_op}(fft[f](convert[c](x)), fft[f](convert[d](y))))) => "
        f"fft[back]({_op}(fft[there](x), fft[there](y)))",
        name=f"real part of {_op} of spectra",
        says=_HALF,
        mark="ρ",
        cases=together(*(_spectra(rank, y="f{}") for rank in (1, 2, 3))),
    )(lambda m: _kept_real(m) and m.y == m.x and _halves(m))
