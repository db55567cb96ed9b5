"""Write all pictures, or the named ones: `python -m tools.pictures [NAME …]`."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from tools.pictures import hero, layers, svg, verbs, verdicts
from tools.pictures.svg import THEMES, Theme

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "pictures"
DIGESTS = FOLDER / "digests.json"


class Drawing(NamedTuple):
    """The function that draws a picture, its module, and the recorded files that it reads."""

    draw: Callable[[Theme], str]
    module: ModuleType
    files: tuple[str, ...] = ()

    def digest(self) -> str:
        """Return a digest of a picture's inputs: the code that draws it, and recorded files."""
        paths = [Path(str(module.__file__)) for module in (svg, self.module)]
        paths += [ROOT / name for name in self.files]
        return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:16]


DRAWINGS = {
    "hero": Drawing(hero.draw, hero),
    "build": Drawing(verbs.draw_build, verbs),
    "train": Drawing(verbs.draw_train, verbs, ("results/regression/gpt2.csv",)),
    "identify": Drawing(verbs.draw_identify, verbs),
    "check": Drawing(verbs.draw_check, verbs),
    "verdicts": Drawing(verdicts.draw, verdicts, ("results/verdicts.json",)),
} | {
    name: Drawing(
        layers.get_drawer(name),
        layers,
        tuple(f"results/identified/{group}.json" for group in sorted({p.group for p in panels})),
    )
    for name, (_, panels) in layers.FAMILIES.items()
}


def main(names: list[str]) -> None:
    """Draw each picture for light and dark pages, and record a digest of its inputs."""
    digests = json.loads(DIGESTS.read_text("utf-8")) if DIGESTS.exists() else {}
    for name in names or DRAWINGS:
        for theme, colours in THEMES.items():
            path = FOLDER / f"{name}-{theme}.svg"
            path.write_text(DRAWINGS[name].draw(colours), "utf-8")
            print(f"written to {path.relative_to(ROOT)}")
        digests[name] = DRAWINGS[name].digest()
    DIGESTS.write_text(json.dumps(digests, indent=1, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
