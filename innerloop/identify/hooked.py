"""Any `nn.Module`, layer by layer: layers are hooked, and each gets a linear read-out of its own.

The backbone stays as it is. The read-out of a layer maps what the layer gives at the last token to
the truth, by ridge regression with an intercept on prompts of its own; the penalty is the one that
predicts best on a quarter of them that was held out (Fu et al. 2023 refit read-outs alike).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.errors import InputError, unknown
from innerloop.identify.instances import drawn, prefixes, truth
from innerloop.identify.models import Model, Predictions
from innerloop.problems.base import Distribution
from innerloop.problems.linear_regression import RegressionProblem

Features = Float[Tensor, "prompts width"]
PENALTIES = tuple(10.0**power for power in range(-10, 2))
"""Penalties that are tried, as shares of the features' mean power."""


def alternating(problem: RegressionProblem) -> Float[Tensor, "batch tokens d"]:
    """The prompt x₁, (y₁, 0, …), x₂, …, x_query of Garg et al. 2022, a vector for each token."""
    labels = torch.zeros_like(problem.x)
    labels[..., 0] = problem.y
    pairs = torch.stack([problem.x, labels], dim=-2).flatten(-3, -2)
    return torch.cat([pairs, problem.x_query], dim=-2)


@dataclass(frozen=True, eq=False)
class HookedModel(Model):
    """A module, what it is called with for a problem, and the layers to listen to."""

    module: nn.Module
    prompt: Callable[[Any], Any]
    names: tuple[str, ...]
    read_outs: tuple[Float[Tensor, "width1 outputs"], ...]
    trained_on: Distribution

    @classmethod
    def of(
        cls,
        module: nn.Module,
        distribution: Distribution,
        prompt: Callable[[Any], Any] = alternating,
        layers: Sequence[str] | None = None,
        *,
        prompts: int = 2000,
        seed: int = 0,
        everywhere: bool = False,
    ) -> HookedModel:
        """`prompt` makes the module's input from a problem, a dictionary for named arguments;
        `layers` names submodules, by default those of its longest `nn.ModuleList`; `everywhere`
        fits the read-outs at every prefix of the prompts, as for a module that takes them all."""
        names = tuple(_longest(module) if layers is None else layers)
        known = dict(module.named_modules())
        for name in names:
            if name not in known:
                raise unknown("layer", name, [each for each in known if each])
        problem = drawn(distribution, prompts, torch.Generator().manual_seed(seed))
        if truth(problem) is None:
            raise InputError("read-outs are fitted to the truth, and these problems have none")
        ends = prefixes(problem) if everywhere else [problem]
        heard_at = [heard(module, prompt, names, end) for end in ends]
        # Prompt by prompt, so that the quarter that is held out has prompts of its own.
        target = torch.stack([end.targets for end in ends], dim=1).flatten(0, 1)
        features = [torch.stack(each, dim=1).flatten(0, 1) for each in zip(*heard_at, strict=True)]
        read_outs = tuple(_read_out(each, target) for each in features)
        return cls(module, prompt, names, read_outs, distribution)

    @property
    def layers(self) -> list[str]:
        return list(self.names)

    def predict(self, problem: Any) -> Predictions:
        features = heard(self.module, self.prompt, self.names, problem)
        pairs = zip(features, self.read_outs, strict=True)
        return torch.stack([_with_one(each) @ read_out for each, read_out in pairs])

    def distribution(self) -> Distribution:
        return self.trained_on


def heard(
    module: nn.Module, prompt: Callable[[Any], Any], names: Sequence[str], problem: Any
) -> list[Features]:
    """What each layer gives at the last token, in float64."""
    found: dict[str, Any] = {}

    def listen(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(_: nn.Module, __: Any, output: Any) -> None:
            found[name] = output[0] if isinstance(output, tuple | list) else output

        return hook

    known = dict(module.named_modules())
    hooks = [known[name].register_forward_hook(listen(name)) for name in names]
    dtype = next((p.dtype for p in module.parameters()), problem.x.dtype)
    try:
        with torch.no_grad():
            given = prompt(problem.to(dtype))
            module(**given) if isinstance(given, dict) else module(given)
    finally:
        for hook in hooks:
            hook.remove()
    for name in names:
        output = found.get(name)
        if not isinstance(output, Tensor) or output.ndim not in (2, 3):
            came = "it did not run" if name not in found else f"it gives {_kind(found[name])}"
            raise InputError(
                f"layer {name!r} cannot be read: expected a tensor (batch, tokens, width) or "
                f"(batch, width), but {came}"
            )
    last = [found[name] if found[name].ndim == 2 else found[name][:, -1] for name in names]
    return [each.to(problem.x) for each in last]


def _read_out(features: Features, target: Float[Tensor, "prompts outputs"]) -> Tensor:
    """Ridge weights at the best penalty; the intercept comes last."""
    if not bool(torch.isfinite(features).all()):
        raise InputError("a layer gives NaN or infinity: there is no read-out for it")
    rows, cut = _with_one(features), 3 * len(features) // 4
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


def _with_one(features: Features) -> Float[Tensor, "prompts width1"]:
    return torch.cat([features, torch.ones_like(features[:, :1])], dim=-1)


def _longest(module: nn.Module) -> list[str]:
    lists = {n: m for n, m in module.named_modules() if isinstance(m, nn.ModuleList) and len(m)}
    if not lists:
        raise InputError(
            f"{type(module).__name__} has no nn.ModuleList to take its layers from: "
            "name its submodules with layers=[…]"
        )
    name = max(lists, key=lambda each: len(lists[each]))
    return [f"{name}.{k}" if name else str(k) for k in range(len(lists[name]))]


def _kind(value: Any) -> str:
    return f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
