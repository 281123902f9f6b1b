# SPDX-License-Identifier: Apache-2.0
"""The page of a training's profile in a real browser, without a screen: it is drawn, in light and dark, and used by keyboard; and the
JSON beside it is as its schema says."""

import json
import os
import pathlib
import re
import subprocess
import xml.etree.ElementTree

import browsing
import jsonschema
import pytest
from localcluster.harness import BUILD
from localcluster.names import CHECKOUT
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

pytestmark = pytest.mark.native  # nothing of Slurm's is in it

TRAINER = os.path.join(BUILD, "bin/trainer")
SCHEMA = pathlib.Path(CHECKOUT, "packaging/schemas/trainer-profile.schema.json")
CHARTS = ":not(svg) > svg:not([aria-hidden])"
SECTIONS = ["advice", "time", "operations", "layers", "memory"]


@pytest.fixture(scope="session")
def profile(tmp_path_factory):
    """The folder that a short training has written."""
    folder = tmp_path_factory.mktemp("profile")
    subprocess.run([TRAINER, "run", "--model=linear", "--steps=20", f"--profile={folder}", "--device=cpu"],
                   check=True, timeout=120, stdout=subprocess.DEVNULL)
    return folder


@pytest.fixture(scope="session")
def page(profile):
    [path] = profile.glob("*.html")
    return path


@pytest.fixture(scope="session")
def browser():
    with browsing.browser() as one:
        yield one


@pytest.fixture
def opened(browser, page):
    """The page in light; afterwards nothing may be in the browser's log."""
    browser.get("about:blank")
    browser.get_log("browser")
    prefer(browser, "light")
    browser.set_window_size(1280, 900)
    browser.get(page.as_uri())
    yield browser
    assert browser.get_log("browser") == []


def prefer(browser, scheme):
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})


def ground(browser):
    """The brightness of the page behind all, 0 to 765."""
    colour = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    return sum(int(number) for number in re.findall(r"\d+", colour)[:3])


def pictures(browser):
    return [chart.screenshot_as_png for chart in browser.find_elements(By.CSS_SELECTOR, CHARTS)]


def test_sections_tables_and_charts(opened):
    shown = [section.get_attribute("id") for section in opened.find_elements(By.TAG_NAME, "section")]
    assert [name for name in shown if name in SECTIONS] == SECTIONS
    for table in opened.find_elements(By.TAG_NAME, "table"):
        assert table.find_element(By.TAG_NAME, "caption").text
        assert all(head.text and head.get_attribute("scope") == "col" for head in table.find_elements(By.CSS_SELECTOR, "thead th"))
        rows = table.find_elements(By.CSS_SELECTOR, "tbody tr")
        assert rows and all(len(row.find_elements(By.CSS_SELECTOR, "th[scope=row]")) == 1 for row in rows)
    charts = opened.find_elements(By.CSS_SELECTOR, CHARTS)
    assert len(charts) >= 2
    for chart in charts:
        assert chart.get_attribute("role") == "img"
        assert chart.accessible_name
        assert chart.find_element(By.CSS_SELECTOR, "desc").get_attribute("textContent")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_charts_are_drawn_in_light_and_dark(opened, scheme):
    prefer(opened, scheme)
    assert (ground(opened) > 600) == (scheme == "light")
    drawn = pictures(opened)
    opened.execute_script("document.querySelector('.patterns').remove()")
    without_patterns = pictures(opened)
    assert drawn[0] != without_patterns[0] and drawn[-1] != without_patterns[-1]  # the bar and the memory
    opened.execute_script(f"document.querySelectorAll('{CHARTS}').forEach((chart) => {{ chart.style.visibility = 'hidden'; }})")
    assert all(chart != blank for chart, blank in zip(without_patterns, pictures(opened)))


def test_it_prints_in_light_colours(opened):
    prefer(opened, "dark")
    dark = ground(opened)
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": [{"name": "prefers-color-scheme", "value": "dark"}]})
    assert ground(opened) > 600 > dark
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_what_scrolls_can_be_reached_by_keyboard(opened):
    reached = []
    for _ in opened.find_elements(By.CSS_SELECTOR, "[role=region]"):
        opened.switch_to.active_element.send_keys(Keys.TAB)
        reached.append(opened.switch_to.active_element.accessible_name)
        assert opened.execute_script("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert reached == [region.accessible_name for region in opened.find_elements(By.CSS_SELECTOR, "[role=region]")]


def test_a_narrow_window_does_not_scroll_sideways(opened):
    opened.set_window_size(500, 900)
    assert opened.execute_script("return document.documentElement.scrollWidth <= innerWidth")


def test_the_page_is_alone_and_well_formed(page):
    text = page.read_text(encoding="utf-8")
    names = {element.tag for element in xml.etree.ElementTree.fromstring(text).iter()}
    assert names & {"script", "link", "img", "iframe", "a"} == set()
    assert len(text.encode()) < 1_000_000 and "http" not in text.replace("http-equiv", "")


def test_a_script_would_not_run(browser, page, tmp_path):
    changed = tmp_path / "changed.html"
    changed.write_text(page.read_text(encoding="utf-8").replace("</body>", "<script>document.title = 'pwned'</script></body>"), encoding="utf-8")
    browser.get(changed.as_uri())
    assert browser.title.startswith("Training profile: ")
    assert "Content Security Policy" in browser.get_log("browser")[0]["message"]


def test_the_json_is_as_its_schema_says(profile):
    schema = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
    said = [json.loads(path.read_text(encoding="utf-8")) for path in profile.glob("*.json")]
    [one] = [each for each in said if "profile" in each]  # the other is the trace
    schema.validate(one)
    assert abs(sum(one["parts"].values()) + one["other"] - one["seconds"]) < 1e-6
