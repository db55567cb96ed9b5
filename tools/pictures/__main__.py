"""Write all pictures, or those that are named: `python -m tools.pictures [NAME …]`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from tools.pictures import hero, verbs
from tools.pictures.svg import THEMES, Theme

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
DRAWINGS: dict[str, Callable[[Theme], str]] = {
    "hero": hero.draw,
    "build": verbs.draw_build,
    "train": verbs.draw_train,
    "identify": verbs.draw_identify,
    "check": verbs.draw_check,
}


def main(names: list[str]) -> None:
    """Draw each picture, light and dark."""
    for name in names or DRAWINGS:
        for theme, colours in THEMES.items():
            path = FOLDER / f"{name}-{theme}.svg"
            path.write_text(DRAWINGS[name](colours), "utf-8")
            print(f"written to {path.relative_to(FOLDER.parents[1])}")


if __name__ == "__main__":
    main(sys.argv[1:])
