"""The states of a report's page: of which plan, how one gets there, and what a reader must find.

`tests.report.test_page_in_browser` goes through them and keeps a screenshot of each for a reviewer, who goes by
``look``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class State(NamedTuple):
    """A state of the page.

    plan: a function of `tests.report.samples`. keys: pressed one after the other; ``click SELECTOR`` and ``type TEXT``
    are what they say. shows: texts that are in sight. look: what a reviewer asks of the picture. compared: the report
    has XLA's program beside the plan.
    """

    name: str
    plan: str
    keys: Sequence[str]
    shows: Sequence[str]
    look: str
    compared: bool = False


STATES = (
    State("overview", "chain", "1", ("Where time goes", "What to change", "Beside the baseline"),
          "the three findings are read first; totals name their units"),
    State("overview against XLA", "chain", "1", ("XLA",), "what was saved is said beside XLA's own figures", True),
    State("overview of a baseline", "baseline", "1", ("This is the baseline",), "why it is one is said on top"),
    State("walk of a finding", "chain", ("1", "click #panel-overview .walk button"), ("step",),
          "the first step of the finding is selected, with its details"),
    State("graph", "mlp", "2", ("dot_general", "all-reduce"),
          "arrows go downwards; one colour is one placement; collectives stand out"),
    State("graph, a step", "mlp", ("2", "j", "j"), ("the cheapest of",), "the selected step is seen in graph and text"),
    State("graph of scopes", "scopes", "2", ("layer0",), "closed parts tell steps, seconds and collectives"),
    State("graph, a part opened", "scopes", ("2", "click #collapse", "click #graph .node.group"), ("layer0",),
          "the part has a frame with its name and a way to close it; fused steps are one node"),
    State("graph, far away", "mlp", ("2", "-", "-", "-"), (), "no text smaller than 11 pixels: shapes and colours"),
    State("graph, filtered", "mlp", ("2", "/", "type tanh", "Enter"), ("1 of",), "what does not fit is faint"),
    State("timeline", "mlp", "3", ("compute",), "a lane per resource, an axis with its unit"),
    State("timeline of a loop", "loops", ("3", "j"), ("compute",), "a loop's inside lies within its time"),
    State("steps", "mlp", "4", ("dot_general",), "columns are named; numbers are right-aligned"),
    State("steps, nothing fits", "mlp", ("4", "/", "type nosuchthing"), ("0 of",), "the list says that nothing fits"),
    State("collectives", "mlp", "5", ("all-reduce",), "totals of the table are those of the header"),
    State("no collectives", "alone", "5", (), "the view says that there are none"),
    State("choices", "chain", "6", (), "each choice with its price and what stood against it"),
    State("compared with the baseline", "chain", "7", ("baseline",), "two columns, the same steps side by side"),
    State("compared with XLA", "mlp", "7", ("XLA",), "the collectives of both programs in order", True),
    State("search", "chain", "8", (), "rules in words, with how often each was applied"),
    State("keys", "mlp", "?", ("Keys", "COLOURS"), "a dialog over the page; Escape closes it"),
)
