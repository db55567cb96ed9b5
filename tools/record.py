"""Record a finished training with the package: history, description and weights.

    innerloop train gpt2-regression --seed 1 -o RUN
    python tools/record.py RUN regression/gpt2-seed-1 --no-weights
    python tools/record.py results/sparse/gpt2.safetensors sparse/gpt2      records it again

The second command writes `results/regression/gpt2-seed-1.json` and `.csv`; without
`--no-weights`, it also writes `.safetensors`. The JSON file contains the command, the final
measures, the SHA-256 of the weights, and the opening of the run (the results of its first steps),
which a test repeats. An error is raised if the current code starts the run differently, with
another loss before the first step or another opening. If the run contains no opening, it is
computed
by the current code.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
from pathlib import Path
from typing import Any

import torch

from innerloop.errors import InputError
from innerloop.files import write_atomically
from innerloop.recipes.base import format_command, load, replay
from innerloop.recipes.runs import find_model
from innerloop.training.folder import MODEL
from innerloop.training.history import read_history
from innerloop.training.loop import OPENING
from innerloop.training.opening import TOLERANCE, Opening

RESULTS = Path(__file__).resolve().parent.parent / "results"


def record(run: Path, place: Path, *, weights: bool = True) -> dict[str, Any]:
    """Copy a run to `place`.json, .csv and .safetensors; return its description."""
    path = find_model(run)
    data = path.read_bytes()
    table = path.with_name("history.csv") if path.name == MODEL else path.with_suffix(".csv")
    recipe, _, about = load(path)
    seed, threads = about["seed"], about.get("threads", 1)
    history = read_history(table, about.get("history_sha256"))
    opening = replay(recipe, seed, threads)
    if OPENING in about:
        difference = opening.describe_difference(Opening.from_dict(about[OPENING]))
    else:
        difference = compare_start(recipe, seed, history[0]["loss"])
    if difference:
        raise InputError(f"{path} is not what this code trains: {difference}; train it again")
    description = {
        "command": format_command(recipe, seed, {"threads": threads}),
        "recipe": recipe.name,
        "settings": recipe.values(),
        "seed": seed,
        "final": about["final"],
        "seconds": about["seconds"],
        "versions": about["versions"],
        "weights_sha256": hashlib.sha256(data).hexdigest(),
        "opening": opening.as_dict(),
    }
    lines = table.read_bytes()
    write_atomically(place.with_name(f"{place.name}.csv"), lines)
    text = json.dumps(description, indent=2, ensure_ascii=False) + "\n"
    write_atomically(place.with_name(f"{place.name}.json"), text.encode())
    if weights:
        write_atomically(place.with_name(f"{place.name}.safetensors"), data)
    return description


def compare_start(recipe: Any, seed: int, recorded: float) -> str:
    """Compare the loss before the first step with a history; return an empty text if they agree."""
    model = recipe.build_model(torch.Generator().manual_seed(seed))
    recipe.prepare_model(model, 0)
    with torch.no_grad():
        loss = recipe.build_objective().evaluate(model)["loss"]
    if math.isclose(loss, recorded, rel_tol=TOLERANCE):
        return ""
    return f"the loss before its first step is {loss:.9g} here, {recorded:.9g} there"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path, help="folder of a finished run, or its model file")
    parser.add_argument("name", help="where it is recorded below results, as regression/gpt2")
    parser.add_argument("--no-weights", action="store_true", help="leave the weights out")
    options = parser.parse_args()
    try:
        record(options.run, RESULTS / options.name, weights=not options.no_weights)
    except InputError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
