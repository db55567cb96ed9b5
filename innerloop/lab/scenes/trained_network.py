"""A trained network: the predictions of a recorded GPT-2 after every layer.

It was trained on linear regression. It reads ten examples with five features, and predicts every
label from the examples before it. On request, `identify` measures what each layer computes; the
result is cached while the lab runs.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any, ClassVar

import torch
from torch import Tensor

from innerloop.claims.recorded import load_recorded
from innerloop.identification.identification import identify
from innerloop.lab.controls import SEED, Control, Values, read_list, read_number
from innerloop.lab.python import DIGITS, format_value
from innerloop.lab.recording import encode_floats, encode_patterns
from innerloop.lab.scene import Scene
from innerloop.problems.linear_regression import RegressionProblem
from innerloop.progress import Progress

N = 10
REACH = 8.0
OPTIONS: dict[str, Any] = {}
"""Options of `identify`; there are none, so that the page has the result of the default options."""
_lock = threading.Lock()
_verdicts: list[dict[str, Any]] = []


class TrainedNetworkScene(Scene):
    """Display the predictions of a GPT-2 after every layer beside those of least squares."""

    place: ClassVar[int] = 6
    tab: ClassVar[str] = "A trained network"
    title: ClassVar[str] = "What did this GPT-2 learn?"
    hint: ClassVar[str] = (
        "Nobody wrote these weights: they were trained on random regressions. Drag a label: every "
        "prediction to its right changes, since the network learns from the examples it has read. "
        "Below, innerloop says what each layer computes."
    )
    controls: ClassVar[tuple[Control, ...]] = ()

    def run(self, values: Values, progress: Progress) -> dict[str, Any]:
        seed = SEED.read_whole(values)
        run = load_network()
        problem, labels = make_problem(run, values, seed)
        model, tokens = run.model, run.recipe.encode_tokens(problem).unsqueeze(0)
        with torch.no_grad():
            predictions = model.predict_layers(tokens)[:, 0, 0::2].double()
            streams, patterns = look_inside(model, tokens)
        fits = fit_prefixes(problem)
        layers = len(predictions) - 1
        verdicts = find_verdicts(progress) if values.get("identify") is True else None
        names = [f"{kind} {m}" for m in range(1, N + 1) for kind in ("x", "(x, y)")] + ["query"]
        truth = torch.tensor([*labels, float(problem.targets)], dtype=torch.float64)
        return {
            "frames": describe_layers(predictions, fits, layers),
            "picture": {
                "labels": labels,
                "target": float(problem.targets),
                "predictions": predictions.tolist(),
                "fits": fits.tolist(),
                "verdicts": verdicts,
            },
            "error": {
                "label": "distance of predictions from the labels",
                "linear": True,
                "series": [
                    {
                        "name": "GPT-2, read out after each layer",
                        "kind": "transformer",
                        "joined": True,
                        "values": [measure(row, truth) for row in predictions],
                    },
                    {
                        "name": "least squares on the same examples",
                        "kind": "reference",
                        "values": [measure(fits, truth)] * (layers + 1),
                    },
                ],
            },
            "registers": {
                "rows": [{"name": "stream", "size": streams.shape[-1]}],
                "tokens": names,
                "data": encode_floats(streams.mT),
            },
            "attention": {"tokens": names, "heads": describe_heads(patterns)},
            "certificate": {
                "holds": None,
                "line": f"none: these weights were trained, not built ({run.recipe.name}, "
                f"{layers} layers, {sum(p.numel() for p in model.parameters()):,} weights, "
                f"{run.seconds / 60:.0f} minutes on two cores).",
                "here": "What they compute is measured by identify.",
            },
            "python": write_program(labels, seed),
        }


@cache
def load_network() -> Any:
    """Load the recorded GPT-2."""
    return load_recorded("regression", "gpt2")


def make_problem(run: Any, values: Values, seed: int) -> tuple[RegressionProblem, list[float]]:
    """Return a random regression problem and its labels; labels of the request replace them."""
    drawn = run.recipe.build_distribution().sample(generator=torch.Generator().manual_seed(seed))
    sent = values.get("labels")
    labels = [round(label, DIGITS) for label in drawn.y.tolist()]
    if sent is not None:
        labels = [
            round(max(-REACH, min(REACH, read_number(part, f"labels, entry {k}"))), DIGITS)
            for k, part in enumerate(read_list(sent, "labels", N, N), 1)
        ]
    y = torch.tensor(labels, dtype=torch.float32)
    x, x_query = drawn.x.float(), drawn.x_query.float()
    return RegressionProblem(x, y, x_query, drawn.weights.float()), labels


def fit_prefixes(problem: RegressionProblem) -> Tensor:
    """Return the least-squares prediction of every label from the examples before it."""
    rows, y = torch.cat([problem.x, problem.x_query]).double(), problem.y.double()
    fits = [torch.zeros((), dtype=torch.float64)]
    fits += [rows[m] @ torch.linalg.pinv(rows[:m]) @ y[:m] for m in range(1, N + 1)]
    return torch.stack(fits)


def measure(predictions: Tensor, truth: Tensor) -> float:
    """Return the root mean squared difference over all positions."""
    return float((predictions - truth).square().mean().sqrt())


@torch.no_grad()
def look_inside(model: Any, tokens: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Return the stream before the first layer and after each one, and all attention patterns."""
    embedded = model.read_in(tokens)
    hidden = model.network(inputs_embeds=embedded, output_hidden_states=True).hidden_states
    captured: list[Tensor] = []
    # The last hidden state of the library is normalised; capture the stream before that.
    handle = model.network.ln_f.register_forward_pre_hook(
        lambda _, inputs: captured.append(inputs[0])
    )
    try:
        model.network(inputs_embeds=embedded)
    finally:
        handle.remove()
    streams = [*hidden[:-1], captured[0]]
    pairs = zip(model.network.h, streams, strict=False)
    patterns = [attend(block, stream[0]) for block, stream in pairs]
    return torch.stack([stream[0] for stream in streams]), patterns


def attend(block: Any, stream: Tensor) -> Tensor:
    """Return the attention patterns of a block of GPT-2: heads × tokens × tokens."""
    width, heads = stream.shape[-1], block.attn.num_heads
    query, key, _ = block.attn.c_attn(block.ln_1(stream)).split(width, dim=-1)
    query, key = (part.unflatten(-1, (heads, -1)).transpose(0, 1) for part in (query, key))
    scores = query @ key.mT / (width // heads) ** 0.5
    hidden = torch.ones_like(scores[0], dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, -torch.inf).softmax(dim=-1)


def describe_heads(patterns: list[Tensor]) -> list[dict[str, Any]]:
    """Return the patterns of all heads, each with the frame of its layer."""
    return [
        {
            "frame": layer,
            "name": f"layer {layer}, head {m} (softmax)",
            "note": "",
            **pattern,
        }
        for layer, heads in enumerate(patterns, 1)
        for m, pattern in enumerate(encode_patterns(heads), 1)
    ]


def describe_layers(predictions: Tensor, fits: Tensor, layers: int) -> list[dict[str, Any]]:
    """Return for each layer a frame whose note compares its predictions with least squares."""
    frames = []
    for k, row in enumerate(predictions):
        off = measure(row, fits)
        frames.append(
            {
                "label": f"after layer {k} of {layers}" if k else "before the first layer",
                "layers": f"{layers} layers, read out as if each were the last",
                "note": f"it predicts {float(row[-1]):.2f} for the query, least squares "
                f"{float(fits[-1]):.2f}; over all positions they differ by {off:.2g}",
            }
        )
    return frames


def find_verdicts(progress: Progress) -> list[dict[str, Any]]:
    """Return what `identify` finds for each layer; the result is computed once and cached."""
    with _lock:
        if not _verdicts:

            def report(share: float, doing: str = "") -> None:
                progress(share, f"comparing every layer with {doing}")

            identification = identify(load_network(), **OPTIONS, progress=report).as_dict()
            _verdicts.extend(
                {"layer": each["name"], "does": each["does"], "share": each["share"]}
                for each in identification["layers"]
            )
            _verdicts.append({"layer": "verdict", "does": identification["verdict"], "share": None})
    return list(_verdicts)


def write_program(labels: list[float], seed: int) -> str:
    """Write the program that prints every prediction after every layer."""
    return f"""import torch

import innerloop
from innerloop.claims.recorded import load_recorded

run = load_recorded("regression", "gpt2")
generator = torch.Generator().manual_seed({seed})
drawn = run.recipe.build_distribution().sample(generator=generator).to(torch.float32)
labels = torch.tensor({format_value(labels)})
problem = innerloop.RegressionProblem(drawn.x, labels, drawn.x_query)
with torch.no_grad():
    layers = run.model.predict_layers(run.recipe.encode_tokens(problem)[None])
for layer, row in enumerate(layers):
    print(layer, row[0, 0::2].tolist())
# print(innerloop.identify(run)) says what each layer does; it takes some ten seconds.
"""
