"""The files of a how-to that need libraries run where these are installed."""

import runpy
from pathlib import Path

import pytest
from tests.docs.pages import DOCS, FILE

FILES = dict(FILE.findall((DOCS / "how-to" / "one-to-many.md").read_text()))


@pytest.mark.slow
@pytest.mark.parametrize("name, library", [("with_flax.py", "flax"), ("with_equinox.py", "equinox"),
                                           ("with_orbax.py", "orbax.checkpoint")])
def test_files_of_one_to_many(name: str, library: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip(library)
    (tmp_path / name).write_text(FILES[name])
    runpy.run_path(str(tmp_path / name), run_name="__main__")
    printed = capsys.readouterr().out
    assert "PartitionSpec" in printed or "P(" in printed or "[True, True]" in printed


def test_every_file_is_run() -> None:
    assert {*FILES} == {"with_flax.py", "with_equinox.py", "with_orbax.py"}
