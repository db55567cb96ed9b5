"""Compare a training step of our Small TF with that of a plain transformer.

d = 20, n = 10 (21 tokens of width 42), 12 layers, 4 heads, MLPs of 84 units, 64 prompts, one
thread. A step is forward, backward and Adam. Ours runs with the recipe's fused Adam in float32 and
with precision=bfloat16. The plain one has D×D matrices per head and runs in float32 with the
default
Adam. All start from the same weights and run alternately. The matrix products of a float32 step are
also measured alone, because they are a lower bound on its time. The losses of both precisions are
compared over STEPS steps.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from common import measure_in_turns, median_seconds, record
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from innerloop.models.decoder import Decoder
from innerloop.problems.linear_regression import RegressionProblem
from innerloop.recipes.base import train
from innerloop.recipes.small_transformer import SmallTransformerRecipe

PAIRS, STEPS = 20, 80
Step = Callable[[], float]
CLAIMED = {"ours": 1.3, "bfloat16": 2.0}


class PlainDecoder(nn.Module):
    """The transformer of Definition 3.1 as printed: every head computes its own Q h, K h and V
    h."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder
        blocks = [(b.attention, b.mlp) for b in decoder.machine.blocks()]
        self.heads = nn.ModuleList(
            nn.ParameterList(
                nn.Parameter(weight[m].detach().clone())
                for m in range(attention.heads)
                for weight in (attention.query, attention.key, attention.value)
            )
            for attention, _ in blocks
            if attention is not None
        )
        self.mlps = nn.ModuleList(mlp for _, mlp in blocks if mlp is not None)

    def forward(self, tokens: Tensor) -> Tensor:
        count = tokens.shape[-2]
        share = torch.ones(count, count).tril() / torch.arange(1, count + 1).unsqueeze(-1)
        stream = tokens
        for heads, mlp in zip(self.heads, self.mlps, strict=True):
            assert isinstance(heads, nn.ParameterList)
            added = stream
            for query, key, value in zip(heads[0::3], heads[1::3], heads[2::3], strict=True):
                scores = (stream @ query.mT) @ (stream @ key.mT).mT
                added = added + (scores.relu() * share) @ (stream @ value.mT)
            stream = mlp(added)
        return self.decoder.read(tokens, stream)


def make_step(
    model: nn.Module,
    optimizer: Optimizer,
    recipe: SmallTransformerRecipe,
    problem: RegressionProblem,
) -> Step:
    """Make a function that takes one training step and returns the loss before it."""

    def step() -> float:
        optimizer.zero_grad()
        loss = recipe.build_objective().label_errors(model, problem).mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def measure_products(recipe: SmallTransformerRecipe) -> float:
    """Measure the matrix products of a step alone, forward and backward, in seconds."""
    heads, width, tokens = recipe.heads, 2 * recipe.d + 2, 2 * recipe.n + 1
    rows, hidden = recipe.batch * tokens, 4 * recipe.d + 4
    plain = [(rows, width, heads * width), (rows, heads * width, width)]
    plain += [(rows, width, hidden), (rows, hidden, width)]
    batched = [(heads * tokens, width, tokens), (heads * tokens, tokens, width)]
    total = 0.0
    for (m, k, n), batch in [(s, 0) for s in plain] + [(s, recipe.batch) for s in batched]:
        # The product, and the gradients in its two factors.
        for shape in ((m, k, n), (m, n, k), (k, m, n)):
            a, b = (
                torch.randn(*([batch] if batch else []), *pair) for pair in (shape[:2], shape[1:])
            )
            total += median_seconds(lambda a=a, b=b: a @ b, 9, time.process_time)
    return recipe.blocks * total


def compare_losses() -> dict[str, list[float]]:
    """Train a few steps in each precision, from the same start on the same batches."""
    curves = {}
    for precision in ("float32", "bfloat16"):
        values: dict[str, Any] = {
            "steps": STEPS,
            "evaluate_every": STEPS // 4,
            "warmup": STEPS // 4,
        }
        run = train("small-transformer", precision=precision, learning_rate=1e-3, **values)
        curves[precision] = [row["loss"] for row in run.history]
    return curves


def main() -> None:
    start = time.perf_counter()
    torch.set_num_threads(1)
    recipe = SmallTransformerRecipe(learning_rate=1e-4)
    ours, half, base = (recipe.build_model(torch.Generator().manual_seed(0)) for _ in range(3))
    plain = PlainDecoder(base)
    plain_optimizer = Adam(
        [w for w in plain.parameters() if w.requires_grad], lr=recipe.learning_rate
    )
    problem = recipe.build_distribution().sample(
        recipe.batch, generator=torch.Generator().manual_seed(1), dtype=torch.float32
    )
    in_half = make_step(half, recipe.make_optimizer(half), recipe, problem)

    def step_in_bfloat16() -> float:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return in_half()

    steps: dict[str, Step] = {
        "ours": make_step(ours, recipe.make_optimizer(ours), recipe, problem),
        "bfloat16": step_in_bfloat16,
        "plain": make_step(plain, plain_optimizer, recipe, problem),
    }
    losses = {name: step() for name, step in steps.items()}
    assert abs(losses["ours"] - losses["plain"]) < 1e-4 * losses["plain"], "not the same model"
    seconds = measure_in_turns(steps, PAIRS)
    medians = {f"{name}_ms": 1e3 * value for name, value in seconds.items()}
    medians["products_ms"] = 1e3 * measure_products(recipe)
    ratios = {name: seconds["plain"] / seconds[name] for name in ("ours", "bfloat16")}
    print("a step in ms of CPU time:", ", ".join(f"{k} {v:.1f}" for k, v in medians.items()))
    for name, ratio in ratios.items():
        print(f"{name}: {ratio:.2f} times faster than plain (claimed: {CLAIMED[name]})")
    curves = compare_losses()
    print(*(f"{name}: {[round(x, 4) for x in curve]}" for name, curve in curves.items()), sep="\n")
    settings = {"rounds": PAIRS, "batch": recipe.batch, "threads": 1, "seed": 0, "steps": STEPS}
    record("small_transformer", start, settings, {**medians, "ratio": ratios, "losses": curves})
    if any(ratios[name] < claimed for name, claimed in CLAIMED.items()):
        sys.exit("a claim does not hold in this run")


if __name__ == "__main__":
    main()
