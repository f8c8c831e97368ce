"""A cache of Triton's for each test that installs something."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Triton's cache empty, and nothing installed or remembered afterwards."""
    triton = pytest.importorskip("triton")
    import eggshard.triton as layouts
    from eggshard.triton.compiler.replacement import _remembered

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    yield
    layouts.uninstall()
    assert triton.knobs.runtime.add_stages_inspection_hook is None
    _remembered.clear()
