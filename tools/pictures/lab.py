"""The screenshot of the lab, light and dark: needs Chromium, so it is drawn apart from the others.

python -m tools.pictures.lab
"""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

from playwright.sync_api import sync_playwright

from innerloop.lab.serving import HOST, make_server, open_socket

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
SIZE = {"width": 1120, "height": 860}


def main() -> None:
    """Start the lab, open its first scene, and take a picture of it in both themes."""
    listener, server = open_socket(0), make_server()
    port = listener.getsockname()[1]
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    path = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for theme in ("light", "dark"):
            page = browser.new_page(viewport=SIZE, color_scheme=theme)
            page.goto(f"http://{HOST}:{port}/")
            page.wait_for_selector("body[data-turn][data-state='idle']")
            page.screenshot(path=FOLDER / f"lab-{theme}.png")
            print(f"written to docs/pictures/lab-{theme}.png")
        browser.close()
    server.should_exit = True
    thread.join()


if __name__ == "__main__":
    main()
