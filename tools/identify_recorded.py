"""Identify every recorded network, and write the results to results/identified.

    python tools/identify_recorded.py                       all networks, six minutes of one core
    python tools/identify_recorded.py unlabelled/pca-relu   one network; other entries stay

`results/identified/GROUP.json` has an entry per network: the command that gives the same result,
the digest of the weights, the verdict, and a row per layer. For the best candidates, it contains
the
share of each layer's answers that the candidate explains after each of its steps. The pictures of
the guide are drawn from it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import innerloop
from innerloop.errors import InputError
from innerloop.files import write_atomically
from innerloop.identification.comparison import compare_candidates
from innerloop.identification.conclusion import Identification
from innerloop.identification.drawing import select_best
from innerloop.identification.identification import identify
from innerloop.identification.models import Model
from innerloop.identification.trained import TrainedModel
from innerloop.provenance import collect_versions

RESULTS = Path(innerloop.__file__).resolve().parents[1] / "results"
FOLDER = "identified"
GROUPS = ("unlabelled", "decisions", "regression", "sparse")
STEPS, DIGITS, CANDIDATES = 32, 4, 4
ALSO = {
    "bernoulli-bandits": ("probability-matching",),
    "gaussian-mixture": ("em", "soft-k-means"),
    "mixture-of-regressions": ("gradient-em",),
    "pca": ("power-method", "subspace-iteration"),
    "gpt2-regression": ("newton", "gradient-descent"),
}
"""Candidates that are always reported, because the papers discuss them."""
SETTINGS: dict[str, Any] = {"prompts": 256, "steps": 64, "seed": 0}
KEPT = ("name", "does", "fit", "nearest", "share", "similarity", "error", "runner_up_share")


def describe(path: Path) -> dict[str, Any]:
    """Identify one network; return its entry."""
    began = time.process_time()
    model = TrainedModel.read(path)
    identification = identify(model, **SETTINGS)
    about = identification.as_dict()
    return {
        "command": f"innerloop identify results/{path.parent.name}/{path.name}",
        **SETTINGS,
        "recipe": model.recipe.name,
        "weights_sha256": digest_weights(path),
        "verdict": identification.verdict,
        "layers": [_round({name: layer[name] for name in KEPT}) for layer in about["layers"]],
        "candidates": _list_candidates(identification, model, ALSO.get(model.recipe.name, ())),
        "cpu_seconds": round(time.process_time() - began, 1),
        "versions": collect_versions(),
    }


def digest_weights(path: Path) -> str:
    """Return a digest of the file of a network."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _list_candidates(
    identification: Identification, model: Model, also: tuple[str, ...]
) -> list[dict[str, Any]]:
    """List the best candidates with their shares after each step, for every layer."""
    matches = select_best(identification, CANDIDATES)
    matched = {match.candidate.name for match in matches}
    matches += [
        m
        for m in identification.matches
        if m.candidate.label in also and m.candidate.name not in matched
    ]
    tables = compare_candidates(model, matches, identification.problem, STEPS)
    return [
        _round(
            {
                "name": match.candidate.label,
                "free_numbers": match.parameter_count,
                "values": match.values,
                "steps": None if match.candidate.schedule == "exact" else match.steps,
                "shares": tables[match.candidate.label]["share"].clamp_min(-1).tolist(),
            }
        )
        for match in matches
    ]


def _round(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, DIGITS)
    if isinstance(value, dict):
        return {name: _round(each) for name, each in value.items()}
    return [_round(each) for each in value] if isinstance(value, list) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("networks", nargs="*", help="GROUP/NAME; all if none are named")
    names = parser.parse_args().networks or [
        f"{group}/{path.stem}"
        for group in GROUPS
        for path in sorted((RESULTS / group).glob("*.safetensors"))
    ]
    for name in names:
        group, stem = name.split("/")
        target = RESULTS / FOLDER / f"{group}.json"
        entries = json.loads(target.read_text("utf-8")) if target.exists() else {}
        path = RESULTS / group / f"{stem}.safetensors"
        try:
            entries[stem] = describe(path)
        except InputError as error:  # such as a network that diverges on some prompt
            about = {"weights_sha256": digest_weights(path), "versions": collect_versions()}
            entries[stem] = {"verdict": f"refused: {error}", **SETTINGS, **about}
        lines = [
            f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in entries.items()
        ]
        target.parent.mkdir(exist_ok=True)
        write_atomically(target, ("{\n" + ",\n".join(lines) + "\n}\n").encode())
        print(f"{name}: {entries[stem]['verdict']}", flush=True)


if __name__ == "__main__":
    main()
