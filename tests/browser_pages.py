"""Pages in chromium, for the tests marked `browser`: fixtures that tests/conftest.py names."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import headcount as hc

VIEWS = ("watch", "problem", "interference", "transition", "plan", "weights")
FRAMES = "explorer.views.watch.trainer.frames"
_READY = "window.explorer !== undefined"


@pytest.fixture(scope="module")
def browser():
    """Chromium, offline in every test that uses it. Whoever asks for these tests must have it."""
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        pytest.fail("playwright is not installed; `make browser` installs it")
    program = (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    if program is None:
        pytest.fail("there is no chromium; `make browser` installs Debian's")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def offline_tab(browser):
    """Open an empty tab; network requests and logged errors fail the test at the end."""
    contexts, asked, errors = [], [], []

    def open_tab(width: int, schemes: tuple[str, ...], **options):
        def gate(route):
            if route.request.url.startswith(schemes):
                route.continue_()
            else:
                asked.append(route.request.url)
                route.abort()

        size = {"width": width, "height": 800}
        context = browser.new_context(**{"viewport": size, "offline": True, **options})
        contexts.append(context)
        tab = context.new_page()
        tab.route("**/*", gate)
        tab.on(
            "console",
            lambda message: errors.append(message.text) if message.type == "error" else None,
        )
        tab.on("pageerror", lambda error: errors.append(str(error)))
        return tab

    yield open_tab
    for context in contexts:
        context.close()
    assert asked == []
    assert errors == []


@pytest.fixture(scope="session")
def explorer_file(tmp_path_factory) -> Path:
    return hc.explore(tmp_path_factory.mktemp("explorer") / "explorer.html")


@pytest.fixture
def explorer(offline_tab, explorer_file):
    """Open the explorer in a state, offline."""

    def open_page(hash: str = "", width: int = 1280, page: Path = explorer_file, **options):
        tab = offline_tab(width, ("file:", "data:", "blob:"), **options)
        tab.goto(page.as_uri() + hash)
        tab.wait_for_function(_READY)
        return tab

    return open_page


@pytest.fixture(scope="session")
def own_files(tmp_path_factory) -> dict[str, Path]:
    """Weights that are exact on a graph and a table."""
    folder = tmp_path_factory.mktemp("files")
    graph, table = hc.permutation_graph(24, seed=0), hc.gaussian_embeddings(24, 12, seed=0)
    hc.compile(graph, table, budget=12).weights.save(folder / "weights.safetensors")
    hc.write_graph(graph, folder / "graph.csv")
    hc.save_embeddings(table, folder / "table.npy")
    return {path.suffix: path for path in folder.iterdir()}


def drop_file(page, path: Path) -> None:
    """Let go of a file over the page."""
    page.evaluate(
        """([bytes, name]) => {
          const transfer = new DataTransfer();
          transfer.items.add(new File([new Uint8Array(bytes)], name));
          document.dispatchEvent(new DragEvent("drop", { dataTransfer: transfer }));
        }""",
        [list(path.read_bytes()), path.name],
    )
