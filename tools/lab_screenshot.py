"""Take pictures of the running lab: `python -m tools.lab_screenshot FOLDER`.

`take_screenshots` starts the lab at a free port, opens a scene in Chromium and stops the lab again.
The times in the footer are hidden, so equal scenes, steps and sizes give equal pictures.
"""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SET_STEP = """(step) => {
  const slider = document.getElementById("step");
  slider.value = step;
  slider.dispatchEvent(new Event("input"));
}"""
READY = 'body[data-turn][data-state="idle"]'


@contextmanager
def run_lab() -> Iterator[str]:
    """Serve the lab at a free port and yield its address."""
    from innerloop.lab.serving import make_server, open_socket

    listener, server = open_socket(0), make_server()
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def take_screenshots(
    folder: Path,
    scenes: Sequence[str] = ("line-fit",),
    *,
    step: int | None = None,
    themes: Sequence[str] = ("light", "dark"),
    size: tuple[int, int] = (1280, 860),
    scale: float = 2.0,
) -> list[Path]:
    """Write `lab-SCENE-THEME.png` for each scene and theme, and return the files."""
    from playwright.sync_api import sync_playwright

    path = next((executable for name in BROWSERS if (executable := shutil.which(name))), None)
    files = []
    with run_lab() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for theme in themes:
            page = browser.new_page(
                viewport={"width": size[0], "height": size[1]},
                device_scale_factor=scale,
                color_scheme="dark" if theme == "dark" else "light",
                reduced_motion="reduce",
            )
            for scene in scenes:
                page.goto("about:blank")
                page.goto(f"{address}/#/{scene}")
                page.wait_for_selector(READY, timeout=120_000)
                if step is not None:
                    page.evaluate(SET_STEP, step)
                page.evaluate("document.getElementById('speed').textContent = ''")
                files.append(folder / f"lab-{scene}-{theme}.png")
                page.screenshot(path=files[-1])
            page.close()
        browser.close()
    return files


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    target.mkdir(parents=True, exist_ok=True)
    for written in take_screenshots(target, sys.argv[2:] or ("line-fit",)):
        print(written)
