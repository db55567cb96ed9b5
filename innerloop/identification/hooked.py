"""Any `nn.Module` as a model to identify: hooked layers, each with its own linear read-out.

The backbone is not changed. The read-out of a layer maps its output at the last token to the truth,
by ridge regression with an intercept on separate prompts; the penalty is the one that predicts best
on a held-out quarter of them (Fu et al. 2023 refit read-outs alike). Where the module returns a
prediction of its own, that is the last layer, called `output`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
    FORMATS,
    call_module,
    check_format,
    evaluate_module,
    guess_format,
    move_problem,
    read_output,
    read_predictions,
    take_first,
)
from innerloop.limits import check_count, check_seed
from innerloop.problems.base import Distribution

Features = Float[Tensor, "prompts width"]
PENALTIES = tuple(10.0**power for power in range(-10, 2))
"""Ridge penalties to choose from, as shares of the features' mean power."""
MIN_PROMPTS = 4
"""A quarter of the prompts that read-outs are fitted to is held out."""
DEFAULT_FORMAT = "alternating"
"""The format of a module that has no linear layer to guess it from."""
OUTPUT = "output"
"""The name of the last layer: the module's own prediction."""


@dataclass(frozen=True, eq=False)
class HookedModel(Model):
    """A module, the prompt it is called with, and the layers to read out."""

    module: nn.Module
    prompt: Callable[[Any], Any]
    layer_names: tuple[str, ...]
    read_outs: tuple[Float[Tensor, "width1 outputs"], ...]
    training_distribution: Distribution
    format: str | None = None
    """The format of the prompts, unless `prompt` is the user's own function."""
    answers_itself: bool = False
    """Whether the module's own prediction follows after the layers."""

    @classmethod
    def fit(
        cls,
        module: nn.Module,
        distribution: Distribution,
        prompt: Callable[[Any], Any] | str | None = None,
        layers: Sequence[str] | None = None,
        *,
        prompts: int = 2000,
        seed: int = 0,
        everywhere: bool = False,
    ) -> HookedModel:
        """Fit a read-out to each layer of a module.

        `prompt` is a format (see modules.py), by default the one that `identify` guesses, or a
        function that makes the module's input from a problem: a tensor, a tuple of arguments, or a
        dictionary of named arguments. `layers` names submodules, by default those of its longest
        `nn.ModuleList`; `everywhere` fits the read-outs at every prefix of the prompts, for a
        module that accepts all of them.
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
        kind = prompt if isinstance(prompt, str) else None
        kind = guess_format(module, problem.d, DEFAULT_FORMAT) if prompt is None else kind
        if kind is not None:
            check_format(kind)
        build = FORMATS[kind] if kind is not None else prompt
        assert callable(build)
        ends = problem.prefixes() if everywhere else [problem]
        outputs = [read_features(module, build, names, end) for end in ends]
        # Ordered by prompt, so that the held-out quarter shares no prompt with the rest.
        target = torch.stack([end.targets for end in ends], dim=1).flatten(0, 1)
        features = [torch.stack(each, dim=1).flatten(0, 1) for each in zip(*outputs, strict=True)]
        read_outs = tuple(_fit_read_out(each, target) for each in features)
        model = cls(module, build, names, read_outs, distribution, kind)
        _, output = model._run(problem[:MIN_PROMPTS])
        return replace(model, answers_itself=output is not None)

    @property
    def layers(self) -> list[str]:
        return [*self.layer_names, *([OUTPUT] if self.answers_itself else [])]

    def predict(self, problem: Any) -> Predictions:
        features, output = self._run(problem)
        pairs = zip(features, self.read_outs, strict=True)
        rows = [_append_one(each) @ read_out for each, read_out in pairs]
        if self.answers_itself:
            if output is None:
                raise InputError(
                    "the module must return a prediction for each prompt, as it did where its "
                    "read-outs were fitted"
                )
            rows.append(output.to(rows[0]))
        return torch.stack(rows)

    def without_output(self) -> HookedModel:
        """Return the model without the layer that is the module's own prediction."""
        return replace(self, answers_itself=False)

    def _run(self, problem: Any) -> tuple[list[Features], Tensor | None]:
        """Return the output of each layer, and the module's own prediction if it makes one."""
        inputs, outputs, output = run_hooked(self.module, self.prompt, self.layer_names, problem)
        return _select_last(outputs, self.layer_names, problem), self._read(inputs, output, problem)

    def _read(self, inputs: Any, output: Any, problem: Any) -> Tensor | None:
        output = take_first(output)
        if not isinstance(output, Tensor):
            return None
        if self.format is not None:
            try:
                return read_output(output, problem, self.format)
            except InputError:  # the stream, without a head
                return None
        values = list(inputs.values()) if isinstance(inputs, dict) else [inputs]
        lengths = [len(each[0]) for each in values if isinstance(each, Tensor) and each.ndim == 3]
        return read_predictions(output, len(problem.x), lengths[0] if lengths else None)

    def distribution(self) -> Distribution:
        return self.training_distribution

    of = RenamedMethod("fit")


def read_features(
    module: nn.Module, prompt: Callable[[Any], Any], names: Sequence[str], problem: Any
) -> list[Features]:
    """Read the output of each layer at the last token, in float64."""
    _, outputs, _ = run_hooked(module, prompt, names, problem)
    return _select_last(outputs, names, problem)


def run_hooked(
    module: nn.Module, prompt: Callable[[Any], Any], names: Sequence[str], problem: Any
) -> tuple[Any, dict[str, Any], Any]:
    """Call a module, and return its input, the output of each layer by name, and its own output."""
    outputs: dict[str, Any] = {}

    def listen(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(_: nn.Module, __: Any, output: Any) -> None:
            output = take_first(output)
            # A copy: later layers may add to the stream in place.
            outputs[name] = output.clone() if isinstance(output, Tensor) else output

        return hook

    known = dict(module.named_modules())
    hooks = [known[name].register_forward_hook(listen(name)) for name in names]
    try:
        with evaluate_module(module):
            inputs = prompt(move_problem(copy_problem(problem), module))
            return inputs, outputs, call_module(module, inputs)
    finally:
        for hook in hooks:
            hook.remove()


def _select_last(outputs: dict[str, Any], names: Sequence[str], problem: Any) -> list[Features]:
    """Select the last token of each layer's output, in float64."""
    for name in names:
        output = outputs.get(name)
        if not isinstance(output, Tensor) or output.ndim not in (2, 3):
            reason = (
                "it did not run"
                if name not in outputs
                else f"it gives {_describe_value(outputs[name])}"
            )
            raise InputError(
                f"layer {name!r} cannot be read: expected a tensor (batch, tokens, width) or "
                f"(batch, width), but {reason}"
            )
    tensors = [as_tensor(outputs[name], f"layer {name!r}") for name in names]
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
