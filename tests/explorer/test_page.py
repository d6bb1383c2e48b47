"""The explorer's page in a real browser: what one draws is read, moved, taken apart, compared."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from helpers.explorer import running_server
from torchcaps.data.strokes.glyphs import GLYPHS
from torchcaps.errors import MissingFileError
from torchcaps.explorer.gallery import DIGITS, PAIRS
from torchcaps.explorer.server import Server
from torchcaps.models.weights.pretrained import shipped

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium on this machine: apt install chromium"
)
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

READY = "html[data-state=ready]"
CONTRAST = """
() => {
  const rgb = (text) => text.match(/[\\d.]+/g).slice(0, 4).map(Number);
  const light = (color) => {
    const [r, g, b] = color.slice(0, 3).map((part) => part / 255)
      .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const color = rgb(getComputedStyle(one).backgroundColor);
      if (color.length < 4 || color[3] > 0) return color;
    }
  };
  const hasText = (one) =>
    [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  const texts = [...document.body.querySelectorAll("*")]
    .filter((one) => one.getClientRects().length && hasText(one) && one.tagName !== "OPTION");
  return texts.map((one) => {
    const style = getComputedStyle(one);
    const color = rgb(one instanceof SVGElement ? style.fill : style.color);
    const [a, b] = [light(color), light(behind(one))];
    return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), one.textContent.slice(0, 30)];
  });
}
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server(DIGITS) as one:
        yield one


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        one = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield one
        one.close()


@pytest.fixture
def page(server: Server, browser: Any) -> Iterator[Any]:
    with opened_page(server, browser) as one:
        yield one


@contextmanager
def opened_page(server: Server, browser: Any) -> Iterator[Any]:
    """The page, ready to draw; at the end no error was logged and no other host was asked."""
    problems: list[str] = []
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    requests: list[str] = []
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(server.url)
    page.wait_for_selector(READY)
    yield page
    page.close()
    assert problems == []
    assert len(requests) > 10
    assert [url for url in requests if not url.startswith(server.url)] == []


def open_view(page: Any, view: str) -> None:
    page.click(f"#tab-{view}")
    page.wait_for_selector(READY)


def take_digit(page: Any, digit: int) -> None:
    page.click(f".digits button:text-is('{digit}')")
    page.wait_for_selector(READY)


def pixels(page: Any, selector: str) -> list[int]:
    script = "c => Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data)"
    colors: list[int] = page.eval_on_selector(selector, script)
    return colors


def ink(page: Any) -> int:
    """Return the sum of all pixels of the pad."""
    script = (
        "c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.reduce((a, b) => a + b)"
    )
    total: int = page.eval_on_selector("#pad canvas", script)
    return total


Strokes = tuple[tuple[tuple[float, float], ...], ...]


def draw(page: Any, strokes: Strokes, *, pad: str = "#pad canvas") -> None:
    """Draw with the mouse: straight lines between control points, not in the pad's middle."""
    page.locator(pad).scroll_into_view_if_needed()
    box = page.locator(pad).bounding_box()
    for stroke in strokes:
        points = [(box["x"] + 135 + 85 * x, box["y"] + 160 + 85 * y) for x, y in stroke]
        page.mouse.move(*points[0])
        page.mouse.down()
        for point in points[1:]:
            page.mouse.move(*point, steps=3)
        page.mouse.up()


def test_nine_of_ten_digits_drawn_with_the_mouse_are_read(page: Any) -> None:
    read = {}
    for digit, strokes in dict(GLYPHS).items():
        page.click("button:text-is('Clear')")
        draw(page, strokes)
        page.wait_for_selector(READY)
        read[digit] = page.inner_text("#reading")
    right = [digit for digit, text in read.items() if f"reads {digit} (" in text]
    assert len(read) == 10
    assert len(right) >= 9, read


def test_a_test_image_is_shown_as_it_is_with_its_label(server: Server, page: Any) -> None:
    try:
        samples = [server.gallery.sample(DIGITS, number) for number in range(3)]
    except MissingFileError as error:
        pytest.skip(str(error))
    for sample in samples:
        page.click("button:text-is('Test image')")
        label = f"Its label is {sample.labels[0]}."
        page.wait_for_selector(f"#reading:has-text('{label}')")
        page.wait_for_selector(READY)
        assert pixels(page, "#view-classes canvas >> nth=0")[::4] == sample.pixels
    page.click("button:text-is('Clear')")
    page.wait_for_selector("#reading:text-is('Nothing is drawn yet.')")


def test_a_network_of_color_images_gets_images_and_its_tree_fits(browser: Any) -> None:
    with running_server("choi2019/cifar10-modern") as server, opened_page(server, browser) as page:
        assert page.inner_text("#input-title") == "Show an image"
        assert not page.is_visible(".digits")
        draw(page, (((-1.0, 0.0), (1.0, 0.0)),))
        page.wait_for_selector(READY)
        assert "32 x 32 pixels" in page.inner_text("#view-classes")
        open_view(page, "routing")
        leaves = page.locator("#view-routing svg .spot").count()
        assert 1 <= leaves <= 9
        panel, tree = (page.locator(one).bounding_box() for one in ("#views", "svg.tree"))
        assert tree["x"] + tree["width"] <= panel["x"] + panel["width"]
        open_view(page, "sliders")
        assert page.inner_text("#view-sliders .slider .line span >> nth=0") == "Number 1"


def test_the_eraser_undo_and_clear_take_ink_away(page: Any) -> None:
    take_digit(page, 8)
    full = ink(page)
    page.click("button:text-is('Eraser')")
    draw(page, (((0.0, -1.0), (0.0, 1.0)),))
    erased = ink(page)
    assert 0 < erased < full
    page.click("button:text-is('Undo')")
    assert ink(page) == full
    page.click("button:text-is('Clear')")
    page.wait_for_selector(READY)
    assert ink(page) == 0
    assert page.inner_text("#reading") == "Nothing is drawn yet."


def test_the_drawing_is_centered_by_its_mass(page: Any) -> None:
    draw(page, (((-0.9, -1.2), (-0.9, -0.4)), ((-0.9, -0.4), (-0.5, -0.4))))
    page.wait_for_selector(READY)
    image = pixels(page, "#view-classes canvas >> nth=0")[::4]
    mass = sum(image)
    x = sum(value * (at % 28 + 0.5) for at, value in enumerate(image)) / mass
    y = sum(value * (at // 28 + 0.5) for at, value in enumerate(image)) / mass
    assert x == pytest.approx(14, abs=0.3)
    assert y == pytest.approx(14, abs=0.3)


def test_sliders_move_the_drawing_and_are_named(page: Any) -> None:
    take_digit(page, 5)
    open_view(page, "sliders")
    page.wait_for_function(
        "() => document.querySelector('#view-sliders .slider').innerText.length > 8"
    )
    names = page.locator("#view-sliders .slider .line span").all_inner_texts()
    assert len(names) == 16
    assert any("wider" in name or "thicker" in name or "leans" in name for name in names)
    before = pixels(page, "#moved")
    count = page.get_attribute("#view-sliders > div", "data-drawn")
    page.focus("#view-sliders input >> nth=2")
    for _ in range(20):
        page.keyboard.press("ArrowRight")
    changed = "count => document.querySelector('#view-sliders > div').dataset.drawn > Number(count)"
    page.wait_for_function(changed, arg=count)
    page.wait_for_timeout(200)
    after = pixels(page, "#moved")
    assert sum(abs(a - b) for a, b in zip(before, after, strict=True)) / 255 > 10
    page.click("button:text-is('Reset the sliders')")
    page.wait_for_timeout(300)
    assert pixels(page, "#moved") == before


@pytest.mark.parametrize("pair", ["3 and 8", pytest.param("2 and 7", marks=pytest.mark.slow)])
def test_two_digits_are_taken_apart(page: Any, pair: str) -> None:
    open_view(page, "pairs")
    page.click(f"button:text-is('{pair}')")
    page.wait_for_function(
        "pair => document.querySelector('#pair').textContent === `It sees ${pair}.` || "
        "document.querySelector('#pair').textContent === "
        "`It sees ${pair.split(' ').reverse().join(' ')}.`",
        arg=pair,
    )
    image = pixels(page, "#apart")
    orange = [at for at in range(0, len(image), 4) if image[at] > image[at + 2] + 60]
    blue = [at for at in range(0, len(image), 4) if image[at + 2] > image[at] + 60]
    assert min(len(orange), len(blue)) > 15
    middle = [sum(at // 4 % 36 for at in color) / len(color) for color in (orange, blue)]
    assert middle[0] + 1.5 < middle[1]  # the second digit lies to the right of the first


def test_two_digits_drawn_with_the_mouse_are_taken_apart(page: Any) -> None:
    open_view(page, "pairs")
    page.wait_for_selector("#pair:text-is('It sees 3 and 8.')")
    assert PAIRS in page.inner_text("#status")
    assert not page.is_visible("#network")
    page.click("#view-pairs button:text-is('Clear')")
    page.wait_for_selector("#pair:text-is('Draw two digits.')")
    glyphs = dict(GLYPHS)
    for pen, digit in (("First digit", "2"), ("Second digit", "0")):
        page.click(f"#view-pairs button:text-is('{pen}')")
        draw(page, glyphs[digit], pad="#view-pairs .pad")
    page.wait_for_function(
        "() => ['It sees 2 and 0.', 'It sees 0 and 2.']"
        ".includes(document.querySelector('#pair').textContent)"
    )
    full = pixels(page, "#view-pairs .pad")
    page.click("#view-pairs button:text-is('Eraser')")
    draw(page, (((-1.0, 0.0), (1.0, 0.0)),), pad="#view-pairs .pad")
    assert sum(pixels(page, "#view-pairs .pad")) < sum(full)


def test_routing_iterations_change_the_couplings_and_a_tree_is_shown(page: Any) -> None:
    take_digit(page, 2)
    open_view(page, "routing")
    last = pixels(page, "#view-routing canvas >> nth=0")
    page.focus("#view-routing input[type=range]")
    page.keyboard.press("Home")
    assert "iteration 1 of 3" in page.inner_text("#view-routing")
    first = pixels(page, "#view-routing canvas >> nth=0")
    assert len({tuple(first[at : at + 3]) for at in range(0, len(first), 4)}) == 1
    assert len({tuple(last[at : at + 3]) for at in range(0, len(last), 4)}) > 20
    assert page.locator("#view-routing svg circle.node").count() == 7
    assert page.locator("#view-routing table tr").count() == 9
    page.click("#view-routing button:text-is('7')")
    page.wait_for_selector(READY)
    assert page.locator("#view-routing button[aria-pressed=true]").inner_text() == "7"


def test_every_demo_network_reads_the_same_drawing(page: Any) -> None:
    take_digit(page, 3)
    open_view(page, "compare")
    cards = page.locator("#view-compare article").all_inner_texts()
    assert len(cards) == sum(name.startswith("demo/") for name in shipped())
    assert len(cards) >= 5
    right = ["Reads 3" in card for card in cards]
    assert sum(right) >= len(cards) - 1, cards


def test_turning_the_drawing_and_switching_children_off_changes_the_reading(page: Any) -> None:
    take_digit(page, 7)
    open_view(page, "whatif")
    start = page.inner_text("#whatif")
    assert "now reads 7" in start
    page.focus("#view-whatif input >> nth=0")
    page.keyboard.press("End")
    page.wait_for_function(
        "() => !document.querySelector('#view-whatif').innerText.includes('by 0.00,')"
    )
    page.click("button:text-is('Undo all changes')")
    page.wait_for_function(
        "() => document.querySelector('#view-whatif').innerText.includes('by 0.00,')"
    )
    page.click("button:text-is('Switch off the strongest place')")
    page.wait_for_function("() => document.querySelector('#whatif').innerText.includes('1 of 36')")
    assert page.locator("#view-whatif .grid button[aria-pressed=true]").count() == 1
    assert page.inner_text("#view-whatif .bars") != start


def test_the_page_works_by_keyboard_alone(page: Any) -> None:
    page.focus("#pad canvas")
    for key in (*["ArrowUp"] * 8, " ", *["ArrowDown"] * 16, " "):
        page.keyboard.press(key)
    page.wait_for_selector(READY)
    assert "reads 1 (" in page.inner_text("#reading")
    page.focus("#tab-classes")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(READY)
    assert page.get_attribute("#tab-routing", "aria-selected") == "true"
    assert page.url.endswith("#routing")


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (400, "dark"),
        (1440, "light"),
        pytest.param(400, "light", marks=pytest.mark.slow),
        pytest.param(1440, "dark", marks=pytest.mark.slow),
    ],
)
def test_no_view_is_wider_than_the_screen_and_all_text_is_readable(
    page: Any, width: int, scheme: str
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    take_digit(page, 6)
    for view in ("classes", "routing", "sliders", "pairs", "compare", "whatif"):
        open_view(page, view)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view
        ratios = page.evaluate(CONTRAST)
        assert len(ratios) > 20
        for ratio, text in ratios:
            assert ratio >= 4.5, (view, text)


def test_a_server_that_has_ended_gets_a_sentence(server: Server, browser: Any) -> None:
    page = browser.new_page()
    page.goto(server.url)
    page.wait_for_selector(READY)
    page.route("**/api/look", lambda route: route.abort())
    take_digit(page, 1)
    assert "start torchcaps explore again" in page.inner_text("#status")
    page.close()
