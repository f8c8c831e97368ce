"""The page of a propagation in a real Chromium: its views, its search, and what choosing a decision marks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.report.samples import propagation

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: eggshard[browser]")

from tests.report.test_page_in_browser import (  # noqa: E402  (it needs playwright, too)
    CONTRAST,
    Open,
    browser as browser,
    shot,
    shown,
    watched as watched,
)


@pytest.fixture
def page(watched: Open, tmp_path: Path) -> Any:  # noqa: F811
    return watched(propagation().report(tmp_path / "propagation.html"))


def rows(page: Any, name: str, which: str = "tbody tr:has(td)") -> list[str]:
    return [str(text) for text in page.locator(f"#panel-{name} {which}").all_inner_texts()]


def test_values_are_listed_by_line(page: Any) -> None:
    explained = propagation()
    assert shown(page) == "Values"
    assert len(rows(page, "values")) == len(explained.values)
    lines = [text.strip() for text in rows(page, "values", "th.group")]
    assert lines == ["arguments", *dict.fromkeys(row.where for row in explained.values if row.where)]


def test_conflicts_and_reshards_are_sorted_by_bytes(page: Any, tmp_path: Path) -> None:
    page.keyboard.press("2")
    first, second = rows(page, "conflicts")
    assert "data: argument 1 (w)" in first and "512 KiB" in first and "96 KiB" in second
    shot(page, "propagation-conflicts", tmp_path)
    page.keyboard.press("3")
    assert [text.split("\t")[-2] for text in rows(page, "reshards")] == ["512 KiB", "128 KiB", "96 KiB"]


def test_choosing_a_decision_marks_all_that_it_decided(page: Any, tmp_path: Path) -> None:
    explained = propagation()
    (who,) = {who for row in explained.values for who in row.axes.values() if who.startswith("constraint")}
    decided = [row.value for row in explained.values if who in row.axes.values()]
    page.locator("#details button", has_text=who).click()
    assert [text.split("\t")[0].strip() for text in rows(page, "values", "tr.marked")] == decided
    shot(page, "propagation-values", tmp_path)
    page.keyboard.press("2")
    assert len(rows(page, "conflicts", "tr.marked")) == 2
    page.locator("#details button", has_text=who).click()
    assert not rows(page, "conflicts", "tr.marked")


def test_the_search_filters_every_view(page: Any) -> None:
    page.keyboard.press("/")
    page.keyboard.type('dot_general "argument 1"')
    page.wait_for_timeout(150)
    assert page.inner_text("#count") == "0 values, 1 conflicts, 0 reshards"
    page.keyboard.press("Escape")
    page.keyboard.press("2")
    assert len(rows(page, "conflicts")) == 2
    page.keyboard.press("?")
    assert "Words must all occur" in page.inner_text("#help")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
def test_everybody_can_read_it(page: Any, width: int, theme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-core is not installed").Axe()
    page.set_viewport_size({"width": width, "height": 900})
    page.evaluate(f"E.theme({str(theme == 'dark').lower()})")
    page.locator("#details button").first.click()
    for key in "123":
        page.keyboard.press(key)
        page.wait_for_timeout(50)
        assert page.evaluate(CONTRAST) == []
        assert [each["id"] for each in axe.run(page).response["violations"]] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width + 1
