"""Special functions on f32 and f64 arrays, computed in f64: what the CHLO dialect has and NumPy lacks."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np


def _vectorised(function: Callable[[float], float], pole: float = math.nan) -> Callable[[np.ndarray], np.ndarray]:
    """An array function from a scalar one; where that raises (a pole), the result is ``pole``."""

    def scalar(x: float) -> float:
        try:
            return function(x)
        except (ValueError, OverflowError):
            return pole

    def array(x: np.ndarray) -> np.ndarray:
        flat = [scalar(float(v)) for v in x.reshape(-1)]
        return np.array(flat, np.float64).reshape(x.shape)

    return array


erf = _vectorised(math.erf)
erfc = _vectorised(math.erfc)
lgamma = _vectorised(math.lgamma, pole=math.inf)


def _erf_inv(x: float) -> float:
    if abs(x) >= 1 or x == 0 or math.isnan(x):
        return math.copysign(math.inf, x) if abs(x) == 1 else (x if x == 0 else math.nan)
    # The quantile function is exact to about 1e-9 near the centre; two Halley steps finish it.
    tail = (1 - abs(x)) / 2
    y = -NormalDist().inv_cdf(tail) / math.sqrt(2) if tail < 0.25 else NormalDist().inv_cdf((1 + abs(x)) / 2) / 2**0.5
    for _ in range(2):
        error = (1 - abs(x)) - math.erfc(y) if y > 0.5 else math.erf(y) - abs(x)
        step = error / (2 / math.sqrt(math.pi) * math.exp(-y * y))
        y -= step / (1 + y * step)
    return math.copysign(y, x)


erf_inv = _vectorised(_erf_inv)


def digamma(x: np.ndarray) -> np.ndarray:
    """The logarithmic derivative of gamma, by reflection, recurrence to x >= 10, and the asymptotic series."""
    x = np.asarray(x, np.float64)
    reflected = x < 0.5
    z = np.where(reflected, 1 - x, x)
    out = np.zeros_like(z)
    for _ in range(10):
        out = np.where(z < 10, out - 1 / z, out)
        z = np.where(z < 10, z + 1, z)
    inverse = 1 / (z * z)
    series = inverse * (1 / 12 - inverse * (1 / 120 - inverse * (1 / 252 - inverse * (1 / 240 - inverse / 132))))
    out = out + np.log(z) - 0.5 / z - series
    # tan of the distance to the nearest integer keeps accuracy for large arguments.
    distance = np.pi * (x - np.round(x))
    out = np.where(reflected, out - np.pi / np.tan(np.where(distance == 0, 1, distance)), out)
    pole = (x <= 0) & (x == np.floor(x))
    return np.where(np.isinf(x), np.where(x > 0, x, np.nan), np.where(pole, np.nan, out))


_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)


def zeta(s: np.ndarray, q: np.ndarray) -> np.ndarray:
    """The Hurwitz zeta function, sum of (q + k) ** -s, by Euler-Maclaurin; inf at its poles, NaN where undefined."""
    s, q = np.broadcast_arrays(np.asarray(s, np.float64), np.asarray(q, np.float64))
    with np.errstate(all="ignore"):
        out = sum((np.power(q + k, -s) for k in range(12)), np.zeros_like(s))
        a = q + 12
        out = out + np.power(a, 1 - s) / (s - 1) + 0.5 * np.power(a, -s)
        factor = s * np.power(a, -s - 1)
        for k, b in enumerate(_BERNOULLI):
            out = out + b * factor / math.factorial(2 * k + 2)
            factor = factor * (s + 2 * k + 1) * (s + 2 * k + 2) / (a * a)
    out = np.where(s == 1, np.inf, np.where(s < 1, np.nan, out))
    whole = q == np.floor(q)
    out = np.where((q <= 0) & whole, np.where((s > 1) & (s % 2 == 0), np.inf, np.nan), out)
    return np.where((q <= 0) & ~whole & (s != np.floor(s)), np.nan, out)


def polygamma(n: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The n-th derivative of digamma: (-1)^(n+1) n! zeta(n+1, x); NaN for n that is negative or not whole."""
    n, x = np.broadcast_arrays(np.asarray(n, np.float64), np.asarray(x, np.float64))
    valid = (n >= 0) & (n == np.floor(n))
    order = np.where(valid, n, 0)
    with np.errstate(all="ignore"):
        derivative = np.where(order % 2 == 0, -1, 1) * np.exp(lgamma(order + 1)) * zeta(order + 1, x)
        return np.where(valid, np.where(n == 0, digamma(x), derivative), np.nan)


def bessel_i1e(x: np.ndarray) -> np.ndarray:
    """exp(-|x|) I1(x): the integral of exp(x cos t - |x|) cos t / pi over [0, pi], and its asymptotic series."""
    x = np.asarray(x, np.float64)
    size = np.abs(x)
    nodes = 128
    angle = (np.arange(nodes) + 0.5) * np.pi / nodes
    near = np.minimum(size, 100.0)[..., None]
    integral = np.mean(np.exp(near * (np.cos(angle) - 1)) * np.cos(angle), axis=-1)
    term, series = np.ones_like(size), np.ones_like(size)
    far = np.maximum(size, 100.0)
    for k in range(1, 9):
        term = -term * (4 - (2 * k - 1) ** 2) / (8 * k * far)
        series = series + term
    return np.asarray(np.sign(x) * np.where(size <= 100, integral, series / np.sqrt(2 * np.pi * far)))
