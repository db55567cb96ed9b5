"""A training step of Small TF: our transformer against a plain one with D×D matrices per head.

d = 20, n = 10 (21 tokens of width 42), 12 layers, 4 heads, MLPs of 84 units, 64 prompts, float32,
one thread. Forward, backward and Adam: ours with the recipe's fused Adam, the plain one with the
default Adam; both from the same weights, in turns, in one run.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import torch
from common import record
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from innerloop.models.decoder import Decoder
from innerloop.problems.linear_regression import RegressionProblem
from innerloop.recipes.small_transformer import SmallTransformerRecipe

PAIRS = 40
Step = Callable[[], float]
CLAIMED = 1.5


class PlainDecoder(nn.Module):
    """Definition 3.1 as it is printed: every head computes its own Q h, K h and V h."""

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


def main() -> None:
    start = time.perf_counter()
    torch.set_num_threads(1)
    recipe = SmallTransformerRecipe(learning_rate=1e-4)
    ours, base = (recipe.build_model(torch.Generator().manual_seed(0)) for _ in range(2))
    plain = PlainDecoder(base)
    plain_optimizer = Adam(
        [w for w in plain.parameters() if w.requires_grad], lr=recipe.learning_rate
    )
    problem = recipe.build_distribution().sample(recipe.batch, dtype=torch.float32)
    steps = {
        "ours": make_step(ours, recipe.make_optimizer(ours), recipe, problem),
        "plain": make_step(plain, plain_optimizer, recipe, problem),
    }
    losses = {name: step() for name, step in steps.items()}
    assert abs(losses["ours"] - losses["plain"]) < 1e-4 * losses["plain"], "not the same model"
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(PAIRS):
        for name, step in steps.items():
            begin = time.process_time()
            step()
            times[name].append(time.process_time() - begin)
    medians = {f"{name}_ms": 1e3 * statistics.median(values) for name, values in times.items()}
    ratio = medians["plain_ms"] / medians["ours_ms"]
    print(
        f"a step: ours {medians['ours_ms']:.0f} ms, plain {medians['plain_ms']:.0f} ms (CPU time)"
    )
    print(f"{ratio:.2f} times faster (claimed: at least {CLAIMED})")
    settings = {"pairs": PAIRS, "batch": recipe.batch, "dtype": "float32", "threads": 1}
    record("small_transformer", start, settings, {**medians, "ratio": ratio})
    if ratio < CLAIMED:
        sys.exit("a claim does not hold in this run")


if __name__ == "__main__":
    main()
