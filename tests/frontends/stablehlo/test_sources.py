"""Text, files and parsed modules are told apart, and say what they need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import jax
import pytest
from tests.frontends.jax_programs import X
from tests.frontends.stablehlo.module_texts import identity

from eggshard.errors import ProgramError
from eggshard.frontends import frontend_of, load
from eggshard.frontends.stablehlo.sources import ModuleFile, ModuleText, ParsedModule


def test_strings_are_text_unless_they_are_paths(tmp_path: Path) -> None:
    path = tmp_path / "with space.mlir"
    path.write_text(identity())
    for source in (identity(), identity().encode(), "no module", "{}", ""):
        assert isinstance(frontend_of(source), ModuleText)
    for named in (path, str(path), "missing", "missing file.mlir"):
        assert isinstance(frontend_of(named), ModuleFile)
    assert load(path) == load(identity())
    with pytest.raises(ProgramError, match="cannot read missing file.mlir: No such file"):
        load("missing file.mlir")


def test_parsed_modules_are_left_as_they_are() -> None:
    lowered = jax.jit(lambda x: x * 2 + 1).lower(X)
    module = lowered.compiler_ir("stablehlo")
    text = str(module)
    for source in (module, module.body.owner):
        assert isinstance(frontend_of(source), ParsedModule)
        assert load(source).region == load(lowered).region
    assert str(module) == text


def test_without_jax_it_is_what_is_asked_for() -> None:
    code = f"""if True:
        import sys
        sys.modules["jax"] = None
        import eggshard
        try:
            eggshard.load({identity()!r})
        except eggshard.errors.DependencyError as error:
            print(error)
        """
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.stdout == "this needs JAX, which is not installed: pip install 'eggshard[jax]'\n", result.stderr
