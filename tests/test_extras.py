"""Packages that are missing, or of another version, are named with the remedy."""

import importlib.metadata
import subprocess
import sys

import pytest

from eggshard import extras
from eggshard.errors import DependencyError


def test_the_extra_that_brings_a_package_is_named() -> None:
    with pytest.raises(DependencyError, match=r"SciPy, which is not installed: pip install 'eggshard\[calibration\]'"):
        with extras.named_extras():
            raise ModuleNotFoundError("No module named 'scipy.optimize'", name="scipy.optimize")
    with pytest.raises(ModuleNotFoundError, match="theirs") as raised, extras.named_extras():
        raise ModuleNotFoundError("No module named 'theirs'", name="theirs")
    assert not isinstance(raised.value, DependencyError)


@pytest.mark.parametrize("version, works", [
    ("0.7.2", False), ("0.8.0", True), ("0.9.0.1", True), ("0.10.2", True), ("0.10.3.dev20261101", True),
    ("0.11.0", False),
])
def test_versions_of_jax(monkeypatch: pytest.MonkeyPatch, version: str, works: bool) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda package: version)
    if works:
        extras.check_jax()
        return
    with pytest.raises(DependencyError, match=rf"jax 0.8 and newer, below 0.11; {version} is installed: pip install"):
        extras.check_jax()
    monkeypatch.setenv(extras.UNTRIED, "1")
    extras.check_jax()


def test_without_jax_plans_are_made_and_run() -> None:
    code = """if True:
        import sys
        sys.modules["jax"] = sys.modules["jaxlib"] = None
        import numpy as np
        import eggshard as es
        b = es.ProgramBuilder(mesh={"x": 4})
        x, w = b.input((8, 8), "f32", ("x", None)), b.input((8, 8), "bf16", ("x", None))
        b.output(x @ b.convert(w, "f32"), ("x", None))
        plan = es.optimize(b.build())
        ones = np.ones((8, 8), np.float32)
        assert (plan.run(ones, ones.astype(es.program.types.numpy_dtype("bf16")))[0] == 8).all()
        assert plan.verify() and plan.prove() and plan.report and plan.to_stablehlo() and plan.workspace()
        for call in (plan.to_jax, plan.compare_with_xla, plan.measure, plan.export, lambda: es.jit,
                     lambda: es.shardy.transform("module {}", "close-shardings"), lambda: es.load("module {}"),
                     lambda: es.costmodel.detect()):
            try:
                call()
            except es.errors.DependencyError as error:
                assert "pip install 'eggshard[jax]'" in str(error)
            else:
                raise AssertionError(call)
        """
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
