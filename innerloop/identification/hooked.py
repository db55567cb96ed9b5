"""Any `nn.Module` as a model to identify: hooked layers, each with its own linear read-out.

The backbone is not changed. The read-out of a layer maps its output at the last token to the truth,
by ridge regression with an intercept on separate prompts; the penalty is the one that predicts best
on a held-out quarter of them (Fu et al. 2023 refit read-outs alike).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.arrays import as_tensor
from innerloop.deprecation import RenamedMethod
from innerloop.errors import InputError, unknown_name_error
from innerloop.identification.instances import copy_problem, draw_prompts, find_targets
from innerloop.identification.models import Model, Predictions
from innerloop.identification.modules import (
    build_alternating_prompt,
    evaluate_module,
    move_problem,
)
from innerloop.limits import check_count, check_seed
from innerloop.problems.base import Distribution

Features = Float[Tensor, "prompts width"]
PENALTIES = tuple(10.0**power for power in range(-10, 2))
"""Ridge penalties to choose from, as shares of the features' mean power."""
MIN_PROMPTS = 4
"""A quarter of the prompts that read-outs are fitted to is held out."""


@dataclass(frozen=True, eq=False)
class HookedModel(Model):
    """A module, the prompt it is called with, and the layers to read out."""

    module: nn.Module
    prompt: Callable[[Any], Any]
    layer_names: tuple[str, ...]
    read_outs: tuple[Float[Tensor, "width1 outputs"], ...]
    training_distribution: Distribution

    @classmethod
    def fit(
        cls,
        module: nn.Module,
        distribution: Distribution,
        prompt: Callable[[Any], Any] = build_alternating_prompt,
        layers: Sequence[str] | None = None,
        *,
        prompts: int = 2000,
        seed: int = 0,
        everywhere: bool = False,
    ) -> HookedModel:
        """Fit a read-out to each layer of a module.

        `prompt` makes the module's input from a problem, a dictionary for named arguments;
        `layers` names submodules, by default those of its longest `nn.ModuleList`; `everywhere`
        fits the read-outs at every prefix of the prompts, for a module that accepts all of them.
        """
        names = tuple(_find_layers(module) if layers is None else layers)
        known = dict(module.named_modules())
        for name in names:
            if name not in known:
                raise unknown_name_error("layer", name, [each for each in known if each])
        prompts, seed = check_count("prompts", prompts, MIN_PROMPTS), check_seed(seed)
        problem = draw_prompts(distribution, prompts, torch.Generator().manual_seed(seed))
        if find_targets(problem) is None:
            raise InputError(
                "read-outs are fitted to the noiseless answers, and these problems have none: "
                "pass a distribution whose problems have targets"
            )
        ends = problem.prefixes() if everywhere else [problem]
        heard_at = [read_features(module, prompt, names, end) for end in ends]
        # Ordered by prompt, so that the held-out quarter shares no prompt with the rest.
        target = torch.stack([end.targets for end in ends], dim=1).flatten(0, 1)
        features = [torch.stack(each, dim=1).flatten(0, 1) for each in zip(*heard_at, strict=True)]
        read_outs = tuple(_fit_read_out(each, target) for each in features)
        return cls(module, prompt, names, read_outs, distribution)

    @property
    def layers(self) -> list[str]:
        return list(self.layer_names)

    def predict(self, problem: Any) -> Predictions:
        features = read_features(self.module, self.prompt, self.layer_names, problem)
        pairs = zip(features, self.read_outs, strict=True)
        return torch.stack([_append_one(each) @ read_out for each, read_out in pairs])

    def distribution(self) -> Distribution:
        return self.training_distribution

    of = RenamedMethod("fit")


def read_features(
    module: nn.Module, prompt: Callable[[Any], Any], names: Sequence[str], problem: Any
) -> list[Features]:
    """Read the output of each layer at the last token, in float64."""
    found: dict[str, Any] = {}

    def listen(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(_: nn.Module, __: Any, output: Any) -> None:
            output = output[0] if isinstance(output, tuple | list) and output else output
            # A copy: later layers may add to the stream in place.
            found[name] = output.clone() if isinstance(output, Tensor) else output

        return hook

    known = dict(module.named_modules())
    hooks = [known[name].register_forward_hook(listen(name)) for name in names]
    try:
        with evaluate_module(module):
            given = prompt(move_problem(copy_problem(problem), module))
            module(**given) if isinstance(given, dict) else module(given)
    finally:
        for hook in hooks:
            hook.remove()
    for name in names:
        output = found.get(name)
        if not isinstance(output, Tensor) or output.ndim not in (2, 3):
            came = (
                "it did not run"
                if name not in found
                else f"it gives {_describe_value(found[name])}"
            )
            raise InputError(
                f"layer {name!r} cannot be read: expected a tensor (batch, tokens, width) or "
                f"(batch, width), but {came}"
            )
    tensors = [as_tensor(found[name], f"layer {name!r}") for name in names]
    last = [each if each.ndim == 2 else each[:, -1] for each in tensors]
    return [each.to(problem.x) for each in last]


def _fit_read_out(features: Features, target: Float[Tensor, "prompts outputs"]) -> Tensor:
    """Fit ridge weights at the best penalty; the intercept comes last."""
    if not bool(torch.isfinite(features).all()):
        raise InputError("the output of a layer is NaN or infinite: no read-out fits it")
    rows, cut = _append_one(features), 3 * len(features) // 4
    scale = float(features.square().mean()) * cut + 1e-300

    def ridge(penalty: float) -> Tensor:
        weight = torch.full((rows.shape[-1],), penalty * scale).to(rows)
        weight[-1] = 0.0  # the intercept is free
        stacked = torch.cat([rows[:cut], weight.sqrt().diag()])
        padded = torch.cat([target[:cut], target.new_zeros(len(weight), target.shape[-1])])
        return torch.linalg.lstsq(stacked, padded, driver="gelsd").solution

    fits = [ridge(penalty) for penalty in PENALTIES]
    missed = [float((rows[cut:] @ fit - target[cut:]).square().mean()) for fit in fits]
    return fits[missed.index(min(missed))]


def _append_one(features: Features) -> Float[Tensor, "prompts width1"]:
    return torch.cat([features, torch.ones_like(features[:, :1])], dim=-1)


def _find_layers(module: nn.Module) -> list[str]:
    lists = {n: m for n, m in module.named_modules() if isinstance(m, nn.ModuleList) and len(m)}
    if not lists:
        raise InputError(
            f"{type(module).__name__} has no nn.ModuleList to take its layers from: "
            "name its submodules with layers=[…]"
        )
    name = max(lists, key=lambda each: len(lists[each]))
    return [f"{name}.{k}" if name else str(k) for k in range(len(lists[name]))]


def _describe_value(value: Any) -> str:
    return f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
