"""The lab in Chromium: by mouse, keyboard and touch, on a phone, with two tabs and a restart."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from innerloop.lab.scene import load_scenes
from innerloop.lab.serving import make_server, open_socket

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page, Route

SCENES = list(load_scenes())
IDLE = 'body[data-turn][data-state="idle"]'
PATIENCE = 60_000
"""Milliseconds to wait for an answer: the machine may be busy."""


class Lab:
    """The server in a thread of this process, which can be stopped and started again."""

    def __init__(self) -> None:
        self.port = 0
        self.start()

    def start(self) -> None:
        listener = open_socket(self.port)
        self.port = listener.getsockname()[1]
        self.server = make_server()
        run = self.server.run
        self.thread = threading.Thread(target=run, kwargs={"sockets": [listener]}, daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """The server; it identifies with few candidates, which takes a second and not ten."""
    with pytest.MonkeyPatch.context() as patch:
        few = {"algorithms": ["ridge"], "prompts": 8}
        patch.setattr("innerloop.lab.scenes.trained_network.OPTIONS", few)
        patch.setattr("innerloop.lab.scenes.trained_network._verdicts", [])
        lab = Lab()
        yield lab
        lab.stop()


@pytest.fixture(scope="module")
def shared_page(browser: Browser, lab: Lab) -> Iterator[Page]:
    """One page for all tests: its requests, and what it complains about, are kept."""
    page = browser.new_page(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    page.set_default_timeout(PATIENCE)
    yield page
    page.close()


@pytest.fixture
def page(shared_page: Page, lab: Lab) -> Iterator[Page]:
    """The page, which must load nothing from elsewhere and report no error."""
    wrong: list[str] = []

    def note_request(request: Any) -> None:
        if not request.url.startswith(lab.address):
            wrong.append(request.url)

    def note_error(error: Any) -> None:
        wrong.append(str(error))

    shared_page.on("request", note_request)
    shared_page.on("pageerror", note_error)
    yield shared_page
    shared_page.remove_listener("request", note_request)
    shared_page.remove_listener("pageerror", note_error)
    assert not wrong


def open_scene(page: Page, lab: Lab, name: str) -> None:
    """Open a scene afresh, and wait for its first answer."""
    page.goto("about:blank")
    page.goto(f"{lab.address}#{name}")
    page.wait_for_selector(f'body[data-scene="{name}"][data-turn][data-state="idle"]')


def change(page: Page) -> Any:
    """Wait until what was done inside has been answered."""

    class Change:
        def __enter__(self) -> None:
            self.turn = page.get_attribute("body", "data-turn")

        def __exit__(self, *_: object) -> None:
            page.wait_for_selector(f'body:not([data-turn="{self.turn}"])')
            page.wait_for_selector(IDLE)

    return Change()


def find_middle(element: Locator) -> tuple[float, float]:
    box = element.bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def read_lines(page: Page) -> str:
    return page.inner_text("#note")


def test_points_are_dragged_added_and_removed(page: Page, lab: Lab) -> None:
    open_scene(page, lab, "line-fit")
    points = page.locator("#stage .point")
    count, before = points.count(), read_lines(page)
    assert count == 16
    x, y = find_middle(points.nth(3))
    with change(page):
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x + 20, y - 60, steps=3)
        page.mouse.move(x + 30, y - 120)
        page.mouse.up()
    moved = find_middle(points.nth(3))
    assert moved == pytest.approx((x + 30, y - 120), abs=2)
    assert read_lines(page) != before
    box = page.locator("#stage svg").bounding_box()
    assert box is not None
    with change(page):
        page.mouse.click(box["x"] + 60, box["y"] + 40)
    assert points.count() == 17
    assert find_middle(points.nth(16)) == pytest.approx((box["x"] + 60, box["y"] + 40), abs=2)
    with change(page):
        page.mouse.dblclick(box["x"] + 60, box["y"] + 40)
    assert points.count() == 16


def test_points_are_moved_by_the_keyboard(page: Page, lab: Lab) -> None:
    open_scene(page, lab, "line-fit")
    point = page.locator("#stage .point").first
    before = str(point.get_attribute("aria-label"))
    point.focus()
    with change(page):
        page.keyboard.press("ArrowUp")
    after = str(point.get_attribute("aria-label"))
    old, new = (re.findall(r"-?\d+\.\d+", label) for label in (before, after))
    assert float(new[0]) == float(old[0])
    assert float(new[1]) == pytest.approx(float(old[1]) + 0.1, abs=0.011)
    with change(page):
        page.keyboard.press("Delete")
    assert page.locator("#stage .point").count() == 15
    with change(page):
        page.get_by_role("button", name="Add a point").click()
    assert page.locator("#stage .point").count() == 16


def test_play_goes_through_every_step_and_the_slider_back(page: Page, lab: Lab) -> None:
    open_scene(page, lab, "line-fit")
    assert page.inner_text("#step-label") == "after step 16 of 16"
    final = read_lines(page)
    page.click("#play")
    page.wait_for_selector('#play[aria-label="Pause"]')
    page.wait_for_selector('#play[aria-label="Play the steps"]')
    assert page.inner_text("#step-label") == "after step 16 of 16"
    assert read_lines(page) == final
    page.locator("#step").focus()
    page.keyboard.press("Home")
    assert page.inner_text("#step-label") == "before the first step"
    assert read_lines(page).startswith("ŷ = 0.002 + 0.002 x"), "Newton starts from M = αS"
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#step-label") == "after step 1 of 16"
    assert page.inner_text("#layers") == "layer 2 of 18"


def test_another_algorithm_another_certificate(page: Page, lab: Lab) -> None:
    open_scene(page, lab, "line-fit")
    assert page.inner_text("#certificate").startswith("✓ Certificate newton: holds.")
    with change(page):
        page.get_by_text("gradient descent", exact=True).click()
    assert "looped-gradient-descent: holds." in page.inner_text("#certificate")
    page.click("#python-card summary")
    assert "innerloop.build('looped-gradient-descent'" in page.inner_text("#python")


def test_cells_are_read_by_pointer_and_keyboard(page: Page, lab: Lab) -> None:
    open_scene(page, lab, "clusters")
    page.locator("#registers canvas").focus()
    page.keyboard.press("ArrowRight")
    assert re.match(r"x\[0\] of point 1 = ", page.inner_text("#registers .cell"))
    page.locator("#attention canvas").hover()
    assert " of " in page.inner_text("#attention .cell")


def test_a_file_is_fitted_and_a_bad_one_is_refused_by_row(
    page: Page, lab: Lab, tmp_path: Path
) -> None:
    open_scene(page, lab, "your-data")
    good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
    good.write_text("u;<b>v</b>;w\n" + "".join(f"{k};{k * k};{3 * k + 1}\n" for k in range(12)))
    bad.write_text("u,v\n1,2\n2,oops\n3,4\n")
    with change(page):
        page.set_input_files("#tools input[type=file]", good)
    assert "12 rows of good.csv" in page.inner_text("#legend")
    assert "explains 100.0% of the variance" in read_lines(page)
    assert page.locator("#tools b").count() == 0, "names of columns are text"
    with change(page):
        page.get_by_label("<b>v</b>").check()
    assert "predicted after step" in page.inner_text("#legend")
    page.set_input_files("#tools input[type=file]", bad)
    page.wait_for_selector("#notice:not([hidden])")
    assert "column 'v' must hold numbers, row 2 has 'oops'" in page.inner_text("#notice")
    with change(page):
        page.get_by_role("button", name="Example").click()
    assert page.is_hidden("#notice")


def test_a_dropped_file_is_taken(page: Page, lab: Lab) -> None:
    open_scene(page, lab, "your-data")
    with change(page):
        page.evaluate(
            """() => {
              const data = new DataTransfer();
              data.items.add(new File(["a,b\\n1,2\\n2,4\\n3,7\\n4,8\\n"], "dropped.csv"));
              const drop = new DragEvent("drop", {dataTransfer: data, bubbles: true});
              document.querySelector("#stage").dispatchEvent(drop);
            }"""
        )
    assert "4 rows of dropped.csv" in page.inner_text("#legend")


def test_a_broken_weight_is_chosen_and_told(page: Page, lab: Lab) -> None:
    open_scene(page, lab, "break-it")
    assert page.inner_text("#certificate").startswith("✓")
    with change(page):
        page.locator('[data-weight="66"]').click()
    assert page.inner_text("#certificate").startswith("✗ Certificate newton: does not hold.")
    assert "the law is broken" in read_lines(page)
    assert "first in step 5, register m" in page.inner_text("#certificate")


def test_coefficients_are_dragged_and_typed(page: Page, lab: Lab) -> None:
    open_scene(page, lab, "sparse-recovery")
    column = page.locator("#stage .column").nth(1)
    x, y = find_middle(column)
    with change(page):
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x, y - 60, steps=2)
        page.mouse.up()
    value = float(str(column.get_attribute("aria-valuenow")))
    assert value > 0.2
    column.focus()
    with change(page):
        page.keyboard.press("ArrowDown")
    assert float(str(column.get_attribute("aria-valuenow"))) == pytest.approx(value - 0.1)
    assert "(4 in truth)" in read_lines(page)


@pytest.fixture(scope="module")
def phone(browser: Browser) -> Iterator[Page]:
    """A phone: touch, 390 pixels."""
    context = browser.new_context(
        viewport={"width": 390, "height": 844},
        has_touch=True,
        is_mobile=True,
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    yield page
    context.close()


@pytest.mark.parametrize("name", SCENES)
def test_every_scene_is_accessible_and_fits_a_phone(phone: Page, lab: Lab, name: str) -> None:
    """The rules of axe-core (names, roles, contrasts, order), in the light or in the dark."""
    phone.emulate_media(color_scheme="dark" if SCENES.index(name) % 2 else "light")
    open_scene(phone, lab, name)
    violations = Axe().run(phone).response["violations"]
    found = {each["id"]: [node["html"][:160] for node in each["nodes"]] for each in violations}
    assert not found
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390
    small = phone.evaluate(
        "[...document.querySelectorAll('button, select, .segments span')]"
        ".filter((e) => e.offsetParent && e.getBoundingClientRect().height < 24).length"
    )
    assert small == 0, "what is touched is at least 24 pixels high"


def test_points_are_added_and_removed_by_touch(phone: Page, lab: Lab) -> None:
    open_scene(phone, lab, "line-fit")
    points = phone.locator("#stage .point")
    box = phone.locator("#stage svg").bounding_box()
    assert box is not None
    place = box["x"] + 40, box["y"] + 30
    with change(phone):
        phone.touchscreen.tap(*place)
    assert points.count() == 17
    with change(phone):
        phone.touchscreen.tap(*place)
        phone.touchscreen.tap(*place)
    assert points.count() == 16


def test_two_tabs_do_not_disturb_each_other(page: Page, browser: Browser, lab: Lab) -> None:
    open_scene(page, lab, "line-fit")
    before = read_lines(page)
    second = browser.new_page(reduced_motion="reduce")
    second.set_default_timeout(PATIENCE)
    open_scene(second, lab, "line-fit")
    with change(second):
        second.get_by_role("button", name="New points").click()
    assert read_lines(second) != before
    assert read_lines(page) == before
    with change(page):
        page.get_by_role("button", name="Add a point").click()
    assert page.locator("#stage .point").count() == 17
    assert second.locator("#stage .point").count() == 16
    second.close()


def test_the_latest_of_many_requests_is_shown(page: Page, lab: Lab) -> None:
    """A slider that is moved faster than answers come ends at what it says."""
    open_scene(page, lab, "line-fit")
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url))
    with change(page):
        page.evaluate(
            """() => {
              const slider = document.querySelector('[aria-label="noise of new points"]');
              for (let v = 0; v <= 20; v++) { slider.value = v / 20; slider.oninput(); }
              slider.value = 0; slider.oninput();
            }"""
        )
    page.wait_for_selector(IDLE)
    assert len(sent) <= 3, "while one is under way the others wait, and the last is sent"
    page.wait_for_selector("#note:has-text('ŷ = 0.500 + 0.850 x')")


def test_a_failure_without_json_is_shown_and_not_asked_again(page: Page, lab: Lab) -> None:
    open_scene(page, lab, "line-fit")
    asked: list[str] = []

    def fail(route: Route) -> None:
        asked.append(route.request.url)
        route.fulfill(status=500, content_type="text/plain", body="Internal Server Error")

    page.route("**/run/line-fit", fail)
    page.get_by_role("button", name="Add a point").click()
    page.wait_for_selector("#notice:not([hidden])")
    page.unroute("**/run/line-fit", fail)
    assert page.inner_text("#notice") == "The lab failed (status 500). Please report it."
    assert len(asked) == 1
    with change(page):
        page.get_by_role("button", name="Add a point").click()
    assert page.is_hidden("#notice")


def test_the_page_goes_on_when_the_server_comes_back(page: Page, lab: Lab) -> None:
    open_scene(page, lab, "line-fit")
    lab.stop()
    page.get_by_role("button", name="Add a point").click()
    page.wait_for_selector("#notice:has-text('does not answer')")
    turn = page.get_attribute("body", "data-turn")
    lab.start()
    page.wait_for_selector(f'body:not([data-turn="{turn}"])')
    page.wait_for_selector("#notice", state="hidden")
    assert page.locator("#stage .point").count() == 17
