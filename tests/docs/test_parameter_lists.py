"""The reference shows parameters and errors of docstrings as lists."""

import importlib.util
import inspect
from pathlib import Path

import eggshard

_FILE = Path(__file__).parents[2] / "docs" / "parameter_lists.py"
_SPEC = importlib.util.spec_from_file_location("parameter_lists", _FILE)
assert _SPEC is not None
assert _SPEC.loader is not None
lists = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(lists)


def test_sentences_on_parameters_and_errors_are_fields() -> None:
    text = """Do it; ShardingError where it cannot be done.

    What a name: is not, stays. It is as before.

    first, second: of the pair. Both are kept. ``third``: another; ValueError for none of them. It is not used.

    - third: in a list
    """
    assert lists.with_fields(inspect.cleandoc(text).splitlines(), ("first", "second", "third")) == [
        "Do it.", "", "What a name: is not, stays. It is as before.", "", "- third: in a list", "",
        ":raises ShardingError: Where it cannot be done.",
        ":param first: Of the pair. Both are kept.", ":param second: Of the pair. Both are kept.",
        ":param third: Another.", ":raises ValueError: For none of them. It is not used.", ""]


def test_what_describes_no_parameter_stays_as_it_is() -> None:
    assert lists.with_fields(["One line: of text.", "Another."], ("text",)) == ["One line: of text. Another.", ""]


def test_parameters_of_optimize_are_listed() -> None:
    given = inspect.getdoc(eggshard.optimize)
    assert given is not None
    found = lists.with_fields(given.splitlines(), inspect.signature(eggshard.optimize).parameters)
    listed = {line.split()[1].rstrip(":") for line in found if line.startswith(":param")}
    assert {"program", "cost_model", "memory_limit"} <= listed
