"""The report in a real Chromium: it opens without asking the network for anything, and every control has a key.

Needs playwright (``pip install 'eggshard[browser]'``) and a Chromium of the system; skipped without. With
EGGSHARD_SCREENSHOTS=docs/images in the environment those screenshots that the documentation has are written there.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.report import samples
from tests.report.page_states import STATES, State
from tests.report.samples import chain, long_plan, loops, mlp

from eggshard.api import Plan
from eggshard.report.findings import findings

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: eggshard[browser]")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None:
    pytest.skip("no Chromium is installed", allow_module_level=True)
SCREENSHOTS = os.environ.get("EGGSHARD_SCREENSHOTS", "")
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]

VIEWS = ("Overview", "Graph", "Timeline", "Steps", "Collectives", "Choices", "Compare", "Search")
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture
def watched(browser: Any) -> Iterator[Open]:
    """Opens a file; errors of scripts, and requests for anything but the file, fail the test."""
    wrong: list[str] = []
    pages = []

    def open_(path: Path) -> Any:
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        pages.append(page)
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on("console", lambda said: wrong.append(f"console: {said.text}") if said.type == "error" else None)
        page.on("request", lambda asked: None if asked.url.startswith(("file:", "data:")) else wrong.append(asked.url))
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]", timeout=30_000)
        return page

    yield open_
    for page in pages:
        page.close()
    assert not wrong


@pytest.fixture
def opened(watched: Open, tmp_path: Path) -> Open:
    """Opens a plan's report."""

    def open_(plan: Plan, view: str = "graph", compared: bool = False) -> Any:
        page = watched(plan.report(tmp_path / "plan.html", plan.compare_with_xla() if compared else None))
        assert shown(page) == "Overview"
        page.evaluate(f"E.show('{view}')")
        return page

    return open_


def shot(page: Any, name: str, tmp_path: Path) -> None:
    """A screenshot that shows something."""
    path = tmp_path / f"{name}.png"
    page.screenshot(path=path)
    assert path.stat().st_size > 10_000
    if SCREENSHOTS and (Path(SCREENSHOTS) / path.name).exists():
        shutil.copy(path, SCREENSHOTS)


def focused(page: Any) -> str:
    return str(page.evaluate("document.activeElement.id"))


def selected(page: Any) -> int:
    return int(page.evaluate("E.state.step"))


def shown(page: Any) -> str:
    return str(page.evaluate("document.querySelector('[role=tab][aria-selected=true]').textContent"))


def test_a_report_explains_its_steps(opened: Open, tmp_path: Path) -> None:
    plan = mlp()
    page = opened(plan)
    assert page.inner_text("#name") == "mlp"
    assert page.locator("#graph .node").count() == len(plan.steps) + 4
    page.locator("#node-s3").click()
    details = page.inner_text("#details")
    assert "step 3 \u00b7 all-reduce over y" in details and "the cheapest of" in details
    assert "reshard by way of" in details and "one of these prices has to move" in details
    assert "4 different parts" in details
    shot(page, "report-graph", tmp_path)


def test_devices_hold_what_the_placement_says(opened: Open) -> None:
    plan = mlp()
    page = opened(plan)
    from eggshard.program.placement import held

    for v, tensor in enumerate(plan.device_program.held):
        assert tensor is not None
        boxes = page.evaluate(f"E.held(E.tensorOf({v}), 64).found.map((d) => d.box)")
        assert boxes == held(plan.mesh, tensor.type.shape, tensor.placement).tolist()


def test_numbers_of_flips_are_those_of_python(opened: Open) -> None:
    plan = mlp()
    page = opened(plan)
    for n, decision in enumerate(plan.reasons.decisions):
        for k, other in enumerate(decision.alternatives):
            found = page.evaluate(f"E.flips(E.decision({n}).alternatives[{k}]).map((f) => f.to / f.from)")
            assert sorted(found) == pytest.approx(sorted(flip.factor for flip in other.flips))


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_states_show_what_a_reader_must_find(opened: Open, tmp_path: Path, state: State) -> None:
    page = opened(getattr(samples, state.plan)(), "overview", state.compared)
    for key in state.keys:
        what, _, rest = key.partition(" ")
        if what == "click":
            page.locator(rest).first.click()
        elif what == "type":
            page.keyboard.type(rest)
        else:
            page.keyboard.press(key)
        page.wait_for_timeout(120)
    text = page.inner_text("body") + page.inner_text("#help")
    assert [shown for shown in state.shows if shown not in text] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 1401
    page.screenshot(path=tmp_path / "state.png")


def test_every_view_is_reached_by_a_key(opened: Open, tmp_path: Path) -> None:
    page = opened(chain())
    page.evaluate("E.select(E.first(0, 1))")
    for key, name in enumerate(VIEWS, 1):
        page.keyboard.press(str(key))
        assert shown(page) == name and focused(page) == f"tab-{name.lower()}"
        assert page.locator(f"#panel-{name.lower()}").is_visible()
        page.wait_for_timeout(100)
        shot(page, "report-" + name.lower() + ("-view" if name == "Graph" else ""), tmp_path)
    page.keyboard.press("ArrowRight")
    assert shown(page) == "Overview"
    page.keyboard.press("End")
    assert shown(page) == "Search"


def test_keys_of_the_page(opened: Open, tmp_path: Path) -> None:
    plan = mlp()
    page = opened(plan)
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert selected(page) == 1
    page.keyboard.press("k")
    assert selected(page) == 0
    page.keyboard.press("/")
    assert focused(page) == "search"
    page.keyboard.type("op:all-reduce")
    page.keyboard.press("Enter")
    assert selected(page) == 3 and page.inner_text("#count") == "1 of 4 steps"
    page.keyboard.press("Escape")
    page.wait_for_timeout(50)
    assert page.inner_text("#count") == "4 steps" and page.input_value("#search") == "", "it resets what it empties"
    page.keyboard.press("c")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    shot(page, "report-dark", tmp_path)
    page.keyboard.press("?")
    assert page.locator("#help").is_visible() and "Chris Pettitt" in page.text_content("#help")
    page.keyboard.press("Escape")
    assert not page.locator("#help").is_visible()
    page.keyboard.press("d")
    assert focused(page) == "details"


def test_the_graph_by_keys(opened: Open) -> None:
    page = opened(mlp())
    page.locator("#node-s0").focus()
    page.keyboard.press("ArrowDown")
    assert focused(page) == "node-s1"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert selected(page) == 2
    page.keyboard.press("ArrowUp")
    assert focused(page) in ("node-s1", "node-in2")
    before = page.evaluate("d3.zoomTransform(E.graph.svg.node()).k")
    page.keyboard.press("+")
    assert page.evaluate("d3.zoomTransform(E.graph.svg.node()).k") > before
    page.keyboard.press("0")


def test_the_timeline_and_the_list_by_keys(opened: Open) -> None:
    page = opened(mlp())
    page.keyboard.press("3")
    page.locator("#timeline").focus()
    for key, step in (("Home", 0), ("ArrowRight", 1), ("End", 3), ("ArrowLeft", 2)):
        page.keyboard.press(key)
        assert selected(page) == step
    page.keyboard.press("+")
    assert page.evaluate("E.timeline.transform.k") > 1
    page.keyboard.press("0")
    assert page.evaluate("E.timeline.transform.k") == 1
    page.keyboard.press("4")
    page.locator("#steps").focus()
    for key, step in (("Home", 0), ("ArrowDown", 1), ("End", 3), ("ArrowUp", 2)):
        page.keyboard.press(key)
        assert selected(page) == step
        assert page.get_attribute("#steps", "aria-activedescendant") == f"row-{step}"
    page.locator("#steps .head button").nth(5).focus()
    page.keyboard.press("Enter")
    assert page.get_attribute("#steps [role=columnheader]:nth-child(6)", "aria-sort") == "descending"
    prices = mlp().prices
    assert page.evaluate("E.list.rows") == sorted(range(4), key=lambda i: (-prices[i], i))


def test_every_control_can_be_tabbed_to(opened: Open) -> None:
    """Whatever reacts to a click is an element that keys reach, or has a key of its own."""
    page = opened(chain())
    page.keyboard.press("j")
    for key in "12345678":
        page.keyboard.press(key)
        page.wait_for_timeout(50)
        lost = page.evaluate("""() => [...document.querySelectorAll('button, select, input, a, summary, [role=button]')]
            .filter((e) => e.getClientRects().length && e.tabIndex < 0)
            .filter((e) => !e.closest('#graph, [role=tablist]'))
            .map((e) => e.outerHTML)""")
        assert not lost
        nameless = page.evaluate("""() => [...document.querySelectorAll('button, select, input, [role=button]')]
            .filter((e) => e.getClientRects().length)
            .filter((e) => !(e.textContent.trim() || e.getAttribute('aria-label') || e.closest('label'))).length""")
        assert nameless == 0


CONTRAST = """() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgb = (c, under) => {
    canvas.fillStyle = `rgb(${under.join()})`; canvas.fillRect(0, 0, 1, 1); canvas.fillStyle = c;
    canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (c) => c.map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((n, v, i) => n + v * [0.2126, 0.7152, 0.0722][i], 0);
  const back = (e) => {
    const above = [];
    for (; e; e = e.parentElement) above.unshift(getComputedStyle(e).backgroundColor);
    return above.reduce((under, c) => rgb(c, under), [255, 255, 255]);
  };
  const between = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const poor = [];
  for (const e of document.querySelectorAll('body *')) {
    const says = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!says || !e.getClientRects().length || e.closest('svg, canvas, option')) continue;
    const under = back(e), ratio = between(light(rgb(getComputedStyle(e).color, under)), light(under));
    if (ratio < 4.5) poor.push(`${e.tagName}.${e.className} ${e.textContent.slice(0, 30)}: ${ratio.toFixed(2)}`);
  }
  for (const e of document.querySelectorAll('#graph .node')) {
    const under = rgb(getComputedStyle(e.querySelector('rect')).fill, [255, 255, 255]);
    const ratio = between(light(rgb(getComputedStyle(e.querySelector('text')).fill, under)), light(under));
    if (ratio < 4.5) poor.push('node ' + e.textContent);
  }
  return [...new Set(poor)];
}"""


def test_the_findings_walk_through_their_steps(opened: Open) -> None:
    plan = mlp()
    page = opened(plan, "overview")
    told = findings(plan)
    assert page.locator(".findings h2").all_inner_texts() == [finding.title for finding in told]
    walk = page.locator(".findings section").first.get_by_role("button", name="Next step")
    for step in (*told[0].steps, told[0].steps[0]):
        walk.click()
        assert selected(page) == step
    page.locator(".findings section").first.get_by_role("button", name="Previous").click()
    assert selected(page) == told[0].steps[-1]


def test_xla_is_beside_the_plan_step_by_step(opened: Open, tmp_path: Path) -> None:
    plan = mlp()
    page = opened(plan, "compare", compared=True)
    ours, theirs = page.locator(".beside > div").all()
    assert ours.locator("h4").inner_text() == "The plan" and theirs.locator("h4").inner_text() == "XLA"
    assert ours.locator("tbody tr").count() == sum(plan.collectives.values()) > 0
    assert "all-" in theirs.inner_text()
    shot(page, "report-xla", tmp_path)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 820, 1400])
def test_axe_finds_nothing(opened: Open, width: int, theme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-core is not installed").Axe()
    page = opened(chain(), "overview", compared=True)
    page.set_viewport_size({"width": width, "height": 900})
    page.evaluate(f"E.theme({str(theme == 'dark').lower()})")
    page.keyboard.press("j")
    found = []
    for key, name in enumerate(VIEWS, 1):
        page.keyboard.press(str(key))
        page.wait_for_timeout(100)
        found += [(name, v["id"], [n["html"] for n in v["nodes"]][:3]) for v in axe.run(page).response["violations"]]
        assert page.evaluate("document.documentElement.scrollWidth") <= width + 1, name
    assert not found


def test_no_text_of_the_graph_is_below_11_pixels(opened: Open) -> None:
    page = opened(long_plan(500))
    page.keyboard.press("2")
    for _ in range(8):
        sizes = page.evaluate("""() => [...document.querySelectorAll('#graph text tspan, #graph .fold text')]
            .filter((e) => e.getClientRects().length)
            .map((e) => parseFloat(getComputedStyle(e).fontSize) * d3.zoomTransform(E.graph.svg.node()).k)""")
        assert min(sizes, default=11) >= 10.99
        page.evaluate("E.graph.zoomBy(0.8)")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_contrast(opened: Open, theme: str) -> None:
    page = opened(chain())
    page.evaluate(f"E.theme({str(theme == 'dark').lower()})")
    page.keyboard.press("j")
    for key in "12345678":
        page.keyboard.press(key)
        page.wait_for_timeout(50)
        assert page.evaluate(CONTRAST) == []


def test_a_plan_of_8000_steps_is_drawn_by_parts(opened: Open, tmp_path: Path) -> None:
    page = opened(long_plan())
    nodes = page.locator("#graph .node")
    assert 1 <= nodes.count() <= 120
    page.keyboard.press("4")
    page.locator("#steps").focus()
    page.keyboard.press("End")
    assert selected(page) == 7999
    assert page.locator("#steps .body .row").count() < 100
    page.keyboard.press("2")
    assert page.locator("#node-s7999").is_visible()
    assert nodes.count() < 400
    page.locator("#collapse").focus()
    page.keyboard.press("Enter")
    assert nodes.count() <= 120
    page.locator("#graph .node.group").first.focus()
    before = nodes.count()
    page.keyboard.press("Enter")
    assert nodes.count() > before
    page.locator("#graph .fold").first.focus()
    page.keyboard.press("Enter")
    assert nodes.count() == before
    shot(page, "report-long", tmp_path)


def test_a_narrow_window_shows_one_after_the_other(opened: Open) -> None:
    page = opened(mlp())
    page.set_viewport_size({"width": 480, "height": 800})
    page.keyboard.press("j")
    page.wait_for_timeout(50)
    views, details = page.locator("#views").bounding_box(), page.locator("#details").bounding_box()
    assert details["y"] >= views["y"] + views["height"] - 1
    assert page.evaluate("document.documentElement.scrollWidth") <= 481


def address(page: Any) -> str:
    return str(page.evaluate("E.address(E.state.step)"))


def test_steps_in_loops_are_reached_by_keys(opened: Open, tmp_path: Path) -> None:
    page = opened(loops())
    (number, *_) = (i for i, step in enumerate(loops().steps) if step.action.kind == "while")
    page.keyboard.press("/")
    page.keyboard.type(f"{number}.body op:reduce-scatter")
    page.keyboard.press("Enter")
    found = address(page)
    assert found.startswith(f"{number}.body.")
    details = page.inner_text("#details")
    said = f"step {found} \u00b7 reduce-scatter", "6 times", "all 6 runs together", "one of these prices has to move"
    assert all(text in details for text in said)
    page.keyboard.press("Escape")
    page.keyboard.press("c")
    page.keyboard.press("2")
    assert page.locator(f"#node-s{selected(page)}").is_visible(), "the graph opens the loop"
    page.keyboard.press("4")
    page.locator("#steps").focus()
    page.keyboard.press("ArrowUp")
    assert address(page) == f"{number}.body.{int(found.rsplit('.', 1)[1]) - 1}"
    page.evaluate(f"E.select({number})")
    page.locator("#details summary").nth(-1).focus()
    page.keyboard.press("j")
    assert address(page) == f"{number}.condition.0"
    page.keyboard.press("5")
    assert "reduce-scatter" in page.inner_text("#panel-collectives")
    shot(page, "report-loops", tmp_path)


def test_times_in_loops_are_within_them(opened: Open, tmp_path: Path) -> None:
    page = opened(loops())
    steps = page.evaluate("E.data.steps")
    total = loops().cost.total
    for i, outer in enumerate(steps["parent"]):
        if outer >= 0:
            assert steps["start"][outer] - 1e-9 * total <= steps["start"][i]
            assert steps["end"][i] <= steps["end"][outer] + 1e-9 * total
    for i, programs in steps["inside"].items():
        inner = {p[0].rsplit(".", 1)[1]: sum(
            s for s, o in zip(steps["seconds"][p[1] : p[1] + p[2]], steps["parent"][p[1] : p[1] + p[2]], strict=True)
            if o == int(i)) for p in programs}
        whole = max(inner.values()) if "branch0" in inner else sum(inner.values())
        assert steps["seconds"][int(i)] == pytest.approx(whole)
    page.keyboard.press("3")
    page.wait_for_timeout(100)
    page.locator("#timeline").focus()
    seen = []
    for _ in range(len(steps["parent"])):
        page.keyboard.press("ArrowRight")
        seen.append(selected(page))
    assert seen == list(range(len(steps["parent"])))
    shot(page, "report-timeline-of-loops", tmp_path)


@pytest.mark.slow
def test_a_model_of_24_layers_is_a_few_nodes(opened: Open, record_property: Callable[[str, object], None]) -> None:
    from bench.programs.training import step_of_layers

    import eggshard

    plan = eggshard.optimize(step_of_layers("light", 24).module)
    page = opened(plan)
    record_property("bytes", len(page.content()))
    record_property("milliseconds to open", page.evaluate("performance.getEntriesByName('ready')[0].startTime"))
    assert len(page.content()) < 5 << 20
    assert 3 <= page.locator("#graph .node").count() <= 40
    assert any("equal parts" in text for text in page.locator("#graph .node").all_text_contents())
    page.locator("#graph .node.group").nth(1).focus()
    page.keyboard.press("Enter")
    assert page.locator("#graph .fold").count() == 1
    page.keyboard.press("j")
    assert "of the program" in page.inner_text("#why")
