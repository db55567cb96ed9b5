"""Compare a training step of GPT-2 in the recipe with that of the unmodified library.

The recipe gpt2-regression at its defaults (d = 5, n = 10, so 21 tokens; 6 layers, 4 heads, width
64, 64 prompts), float32, one thread. A step is forward, backward and Adam; both versions run
alternately. Both are the network of `transformers` with the same weights; ours computes GELU in one
kernel and uses a fused Adam. Attention is also measured as plain matrix products (`eager`). A
network without attention shows the largest possible saving.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from common import measure_in_turns, record
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from innerloop.models.gpt2 import GPT2
from innerloop.recipes.gpt2_regression import GPT2RegressionRecipe

ROUNDS, CLAIMED = 15, 1.0


def skip_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any
) -> Any:
    """Return every token's own value, to measure the network without the cost of attention."""
    return value.transpose(1, 2), None


def build_models(recipe: GPT2RegressionRecipe) -> dict[str, GPT2]:
    """Build the same network with each kind of attention, and with the library's own."""
    import transformers
    from transformers.activations import NewGELUActivation

    transformers.AttentionInterface.register("skipped", skip_attention)
    transformers.AttentionMaskInterface.register("skipped", lambda *_, **__: None)
    models: dict[str, Any] = {
        name: recipe.build_model(torch.Generator().manual_seed(0))
        for name in ("ours", "library", "eager", "without attention")
    }
    for block in models["library"].network.h:
        block.mlp.act = NewGELUActivation()
    models["eager"].network.set_attn_implementation("eager")
    models["without attention"].network.set_attn_implementation("skipped")
    return models


def make_step(
    recipe: GPT2RegressionRecipe, model: GPT2, optimizer: Optimizer
) -> Callable[[], float]:
    """Make a function that takes one training step and returns the loss before it."""
    objective = recipe.build_objective()
    batch = objective.draw(torch.Generator().manual_seed(1))

    def step() -> float:
        optimizer.zero_grad()
        loss = objective.loss(model, batch)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def main() -> None:
    start = time.perf_counter()
    torch.set_num_threads(1)
    recipe = GPT2RegressionRecipe()
    steps = {}
    for name, model in build_models(recipe).items():
        plain = Adam(model.parameters(), lr=recipe.learning_rate)
        own = plain if name == "library" else recipe.make_optimizer(model)
        steps[name] = make_step(recipe, model, own)
    losses = {name: step() for name, step in steps.items()}
    assert abs(losses["ours"] - losses["library"]) < 1e-4 * losses["library"], "not the same model"
    seconds = measure_in_turns(steps, ROUNDS)
    ratios = {name: seconds["library"] / value for name, value in seconds.items()}
    for name, value in seconds.items():
        print(f"{name}: {1e3 * value:.1f} ms, {ratios[name]:.2f} times the library's speed")
    share = 1 - seconds["without attention"] / seconds["ours"]
    print(f"attention takes {share:.0%} of our step")
    settings = {"rounds": ROUNDS, "recipe": "gpt2-regression", "threads": 1, "seed": 0}
    results = {"seconds": seconds, "library_over": ratios, "attention_share": share}
    record("gpt2_steps", start, settings, results)
    if ratios["ours"] < CLAIMED:
        sys.exit("a claim does not hold in this run")


if __name__ == "__main__":
    main()
