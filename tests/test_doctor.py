"""What `eggshard doctor` finds, and what it says where something is missing."""

import importlib.metadata

import pytest
from typer.testing import CliRunner

from eggshard.cli import app
from eggshard.version import __version__


def rows() -> dict[str, str]:
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0, result.output
    return {name: rest.strip() for name, _, rest in (line.partition(" ") for line in result.output.splitlines())}


def test_what_is_here_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", "kept")
    found = rows()
    assert found["eggshard"] == __version__ and found["numpy"] == importlib.metadata.version("numpy")
    assert found["prices"].startswith("cpu-host") and found["machines"] == "0 in kept/eggshard/machines"
    assert found["XDG_DATA_HOME"] == "kept"


def test_what_is_missing_comes_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    version = importlib.metadata.version

    def without(package: str) -> str:
        if package in ("jax", "triton"):
            raise importlib.metadata.PackageNotFoundError(package)
        return version(package)

    monkeypatch.setattr(importlib.metadata, "version", without)
    found = rows()
    assert found["jax"].endswith("pip install 'eggshard[jax]'") and found["triton"].endswith("'eggshard[triton]'")
    assert found["devices"] == "unknown without JAX" and "calibration" not in found
