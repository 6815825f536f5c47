"""The report in a real browser: it draws itself, answers to fingers, and keeps to what results.json says."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from search_samples import search

from aceglt.report import load_runs, plotly_js, write_report
from aceglt.report.comparison import compare_runs
from aceglt.report.comparison_page import render_comparison
from aceglt.searches.statistics import mean_std

webdriver = pytest.importorskip("selenium.webdriver")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (BROWSER and DRIVER), reason="needs chromium and chromedriver")

HOSTILE = "<script>window.pwned = 1</script>"
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two searches on a graph with a name of evil intent, and a page about both."""
    folder = tmp_path_factory.mktemp("browser")
    for method in ("ugs", "random"):
        search(out=folder / method, method=method, dataset=HOSTILE, levels=3)
    write_report(load_runs([folder / "ugs", folder / "random"], folder), folder / "report.html")
    return folder


@pytest.fixture(scope="module")
def started() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in ("--headless=new", "--no-sandbox", "--hide-scrollbars", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def browser(started: Any) -> Any:
    """On a desktop, in light colours, with scripts."""
    _be(started, "desktop", "light")
    started.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    return started


def _be(driver: Any, size: str, scheme: str) -> None:
    width, height = SIZES[size]
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == "phone"}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def _open(driver: Any, page: Path) -> None:
    """Returns once everything is drawn."""
    driver.get(page.as_uri())
    _wait(driver, lambda: "drawn" in (driver.find_element("tag name", "html").get_attribute("class") or ""))


def _wait(driver: Any, condition: Any) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(driver, 30, poll_frequency=0.05).until(lambda _: condition())


def _results(runs: Path, method: str) -> dict[str, Any]:
    return dict(json.loads((runs / method / "results.json").read_text()))


@pytest.mark.parametrize(
    ("size", "scheme"),
    [
        ("desktop", "light"),
        ("phone", "dark"),
        pytest.param("desktop", "dark", marks=pytest.mark.slow),
        pytest.param("phone", "light", marks=pytest.mark.slow),
    ],
)
def test_it_draws_without_complaints_and_fits_the_window(size: str, scheme: str, runs: Path, browser: Any) -> None:
    _be(browser, size, scheme)
    _open(browser, runs / "report.html")
    assert browser.get_log("browser") == []
    charts = browser.find_elements("css selector", ".chart")
    assert len(charts) == 3
    assert all(chart.find_elements("css selector", ".main-svg") for chart in charts)
    assert browser.execute_script("return document.documentElement.scrollWidth") == SIZES[size][0]
    background = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")
    assert browser.execute_script("return window.pwned") is None  # a name from the data does nothing but show
    assert HOSTILE in browser.find_element("tag name", "body").text


@pytest.mark.parametrize(("size", "scheme"), [("desktop", "light"), ("phone", "dark")])
def test_a_comparison_draws_without_complaints_and_fits_the_window(
    size: str, scheme: str, runs: Path, browser: Any
) -> None:
    page = runs / "comparison.html"
    if not page.exists():
        found = compare_runs(load_runs([runs / "ugs", runs / "random"], runs))
        page.write_text(render_comparison(found, plotly_js()))
    _be(browser, size, scheme)
    _open(browser, page)
    assert browser.get_log("browser") == []
    assert browser.execute_script("return document.documentElement.scrollWidth") == SIZES[size][0]
    assert browser.execute_script("return window.pwned") is None
    names = browser.find_element("css selector", "svg[aria-label='Mean ranks']").get_property("textContent")
    assert "ugs (labels)" in names


def _shown(driver: Any) -> list[str]:
    """Names of what the first chart shows."""
    code = "return document.querySelector('.chart').data.filter(t => t.visible === true && t.name).map(t => t.name)"
    return list(driver.execute_script(code))


def test_a_click_in_the_legend_hides_a_run_and_another_brings_it_back(runs: Path, browser: Any) -> None:
    _open(browser, runs / "report.html")

    def click() -> None:
        entries = chart.find_elements("css selector", ".legend .traces")
        entry = next(e for e in entries if "ugs" in e.get_property("textContent"))
        entry.find_element("css selector", ".legendtoggle").click()

    chart = browser.find_element("css selector", ".chart")
    assert _shown(browser) == ["dense, test", "ugs (labels), test", "random, test"]
    lines = len(chart.find_elements("css selector", ".scatterlayer .trace"))
    click()
    _wait(browser, lambda: _shown(browser) == ["dense, test", "random, test"])
    assert len(chart.find_elements("css selector", ".scatterlayer .trace")) < lines
    click()
    _wait(browser, lambda: "ugs (labels), test" in _shown(browser))


def test_a_tooltip_says_what_the_results_say(runs: Path, browser: Any) -> None:
    _open(browser, runs / "report.html")
    for level in (1, 3):
        entry = _results(runs, "ugs")["levels"][level - 1]
        point, place = "ugs (labels), test", f"(level {level})"
        _hover(browser, point, level - 1)
        _wait(browser, lambda place=place: place in _tooltip(browser))
        mean, std = mean_std(entry["test"])
        assert point in _tooltip(browser)
        assert f"{100 * mean:.2f} ± {100 * std:.2f} %" in _tooltip(browser)
        pruned = (100 * entry["model_sparsity"], 100 * entry["graph_sparsity"])
        where = "{:.2f} % of the weights and {:.2f} % of the edges pruned {}".format(*pruned, place)
        assert where in _tooltip(browser)


def _hover(driver: Any, trace: str, index: int) -> None:
    """Put the mouse on a point of the first chart, without the other lines, whose points may be at the same place."""
    from selenium.webdriver.common.action_chains import ActionChains

    chart = driver.find_element("css selector", ".chart")
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", chart)
    place = driver.execute_script(
        """const [chart, name, i] = arguments;
        Plotly.restyle(chart, 'visible', false, [...chart.data.keys()].filter(k => chart.data[k].name !== name));
        const t = chart.data.find(t => t.name === name), l = chart._fullLayout, box = chart.getBoundingClientRect();
        return [l.xaxis.l2p(t.x[i]) + l._size.l - box.width / 2, l.yaxis.l2p(t.y[i]) + l._size.t - box.height / 2];""",
        chart, trace, index,
    )  # fmt: skip
    ActionChains(driver).move_to_element_with_offset(chart, *map(round, place)).perform()


def _tooltip(driver: Any) -> str:
    code = (
        "return Array.from(document.querySelectorAll('.hovertext .nums tspan, .hovertext .nums'), e => e.textContent)"
    )
    return " ".join(driver.execute_script(code))


def test_buttons_switch_between_test_and_validation_and_bring_the_axis_with_them(runs: Path, browser: Any) -> None:
    _open(browser, runs / "report.html")

    def axis() -> list[float]:
        return list(browser.execute_script("return document.querySelector('.chart').layout.yaxis.range"))

    wanted = browser.execute_script("return JSON.parse(document.getElementById('figures').textContent)[0].ranges")
    assert axis() == wanted["test"]
    browser.find_element("xpath", "//button[text()='Validation']").click()
    _wait(browser, lambda: "ugs (labels), validation" in _shown(browser))
    assert "ugs (labels), test" not in _shown(browser)
    browser.find_element("xpath", "//button[text()='Both']").click()
    _wait(browser, lambda: axis() == wanted["Both"])


def test_the_slider_is_labelled_and_goes_through_the_levels(runs: Path, browser: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    _open(browser, runs / "report.html")

    def captions() -> list[str]:
        found = browser.find_elements("css selector", ".excerpt:first-child .slide figcaption")
        return [caption.text for caption in found if caption.is_displayed()]

    assert browser.find_element("css selector", "label.slider").text.split() == ["Level", "1"]
    assert browser.find_element("css selector", ".slide.chosen svg").size["width"] > 400
    first, last = (_results(runs, "ugs")["levels"][i]["graph_sparsity"] for i in (0, 2))
    assert captions() == [f"level 1, {100 * first:.2f} % of the edges pruned"]
    browser.find_element("css selector", "input[type=range]").send_keys(Keys.END)
    assert captions() == [f"level 3, {100 * last:.2f} % of the edges pruned"]


def test_without_javascript_tables_and_pictures_are_there(runs: Path, browser: Any) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    browser.get((runs / "report.html").as_uri())
    text = browser.find_element("tag name", "body").text
    assert "The chart needs JavaScript" in text
    mean, std = mean_std(_results(runs, "ugs")["dense"]["test"])
    assert f"{100 * mean:.2f} ± {100 * std:.2f}" in text
    pictures = browser.find_elements("css selector", ".slide svg")
    assert len(pictures) == 6
    assert all(picture.is_displayed() for picture in pictures)
    assert not browser.find_elements("css selector", "input[type=range]")


def test_a_table_says_that_it_goes_on_until_its_end_is_reached(runs: Path, browser: Any) -> None:
    _be(browser, "phone", "light")
    _open(browser, runs / "report.html")
    box = next(b for b in browser.find_elements("css selector", ".scrolls") if "more" in b.get_attribute("class"))
    inner = box.find_element("css selector", ".scroll")
    browser.execute_script("arguments[0].scrollLeft = arguments[0].scrollWidth", inner)
    _wait(browser, lambda: "more" not in box.get_attribute("class"))
