"""Packages that parts of eggshard need: which extra brings them, and the versions of JAX that it works with."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from eggshard.errors import DependencyError

#: By module, the package that holds it and the extra that brings that.
EXTRAS = {
    "jax": ("JAX", "jax"),
    "jaxlib": ("JAX", "jax"),
    "flatbuffers": ("FlatBuffers", "export"),
    "scipy": ("SciPy", "calibration"),
    "mpi4py": ("mpi4py", "mpi"),
    "triton": ("Triton", "triton"),
    "perfetto": ("Perfetto's package", "perfetto"),
}
#: The first version of JAX that eggshard works with, and the first that nobody has tried.
JAX = ((0, 8), (0, 11))
#: The jaxlib whose Shardy the passes of `eggshard.shardy` follow.
SHARDY = (0, 10, 2)
#: The variable that lets versions of JAX pass that nobody has tried.
UNTRIED = "EGGSHARD_UNTRIED_JAX"


@contextmanager
def named_extras() -> Iterator[None]:
    """Raise DependencyError, which names the extra, where a package is missing. Of functions, a decorator."""
    try:
        yield
    except ModuleNotFoundError as error:
        package, extra = EXTRAS.get((error.name or "").partition(".")[0], ("", ""))
        if not extra or isinstance(error, DependencyError):
            raise
        raise DependencyError(
            f"this needs {package}, which is not installed: pip install 'eggshard[{extra}]'", name=error.name
        ) from None


def check_shardy() -> None:
    """DependencyError where an older jaxlib is installed than the one whose Shardy the passes of `shardy` follow."""
    version = installed("jaxlib")
    if _numbers(version) < SHARDY:
        least = ".".join(map(str, SHARDY))
        raise DependencyError(
            f"Shardy's passes are those of jaxlib {least} and newer; {version} is installed: "
            f"pip install 'jax>={least}'", name="jaxlib")


def installed(package: str) -> str:
    """The version of a package; nothing where it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", version)[:3])


def check_jax() -> None:
    """DependencyError where a version of JAX is installed that eggshard does not work with."""
    if importlib.util.find_spec("jax") is None or os.environ.get(UNTRIED):
        return
    version = installed("jax")
    if not version:
        return
    least, most = JAX
    if not least <= _numbers(version)[:2] < most:
        first, last = (".".join(map(str, v)) for v in JAX)
        raise DependencyError(
            f"eggshard works with jax {first} and newer, below {last}; {version} is installed: "
            f"pip install 'jax>={first},<{last}', or set {UNTRIED}=1 to try", name="jax")
