"""Check the state of an optimiser from a file against the model's weights.

The fused kernels of torch do not check the shapes of their state: with a tensor smaller than its
weight, they write beyond its end. So every tensor must have the shape and dtype of its weight, or
be a single number if the optimiser stores one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim import LBFGS, SGD, Adam, Optimizer

from innerloop.training.restoring import check_tensor, is_count, is_number, require, shorten


def check_optimizer(optimizer: Optimizer, saved: Any, step: int) -> dict[str, Any]:
    """Check the state of an optimiser after `step` steps; return it in the form that torch loads.

    The options of groups (learning rate, betas, …) that both have must be equal. They are then
    taken from the settings, because other versions of torch have other options.
    """
    whole = isinstance(saved, dict) and isinstance(saved.get("state"), dict)
    require(whole and isinstance(saved.get("param_groups"), list), "it has no optimiser")
    groups = optimizer.state_dict()["param_groups"]
    _check_groups(saved["param_groups"], groups)
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    for number, slots in saved["state"].items():
        require(
            is_count(number, len(weights) - 1),
            "the optimiser has state of a weight that the model does not have",
        )
        require(isinstance(slots, dict), "the optimiser has state without names")
        if isinstance(optimizer, LBFGS):
            _check_lbfgs(slots, weights, groups[0]["history_size"])
        elif isinstance(optimizer, Adam):
            _check_adam(slots, weights[number], step)
        elif isinstance(optimizer, SGD):
            _check_names(slots, optional=("momentum_buffer",))
            present = {name: value for name, value in slots.items() if value is not None}
            _check_any(present, weights[number], numbers=False)
        else:
            _check_any(slots, weights[number], numbers=True)
    return {"state": saved["state"], "param_groups": groups}


def _check_groups(saved: list[Any], groups: list[dict[str, Any]]) -> None:
    require(len(saved) == len(groups), "the optimiser has other groups of weights")
    for group, expected in zip(saved, groups, strict=True):
        named = isinstance(group, dict) and "params" in group
        require(named, "the optimiser has other groups of weights")
        # The learning rate depends on the step.
        for name in expected.keys() & group.keys() - {"lr"}:
            same = type(group[name]) is type(expected[name])
            same = same and repr(group[name]) == repr(expected[name])
            require(same, f"the optimiser's {name} differs from the settings")


def _check_names(
    slots: dict[Any, Any], needed: tuple[str, ...] = (), optional: tuple[str, ...] = ()
) -> None:
    for name in needed:
        require(name in slots, f"the optimiser has no {name}")
    for name in slots:
        require(name in needed or name in optional, f"the optimiser has a {shorten(name)}")


def _check_adam(slots: dict[Any, Any], weight: Tensor, step: int) -> None:
    _check_names(slots, ("step", "exp_avg", "exp_avg_sq"), ("max_exp_avg_sq",))
    check_tensor("the optimiser's step", slots["step"], torch.zeros(()))
    count = float(slots["step"])
    # A weight that a recipe leaves out at first has taken fewer steps than the run.
    require(count in range(1, step + 1), f"the optimiser's step is {count} after {step} steps")
    _check_any({k: v for k, v in slots.items() if k != "step"}, weight, numbers=False)
    for name in ("exp_avg_sq", "max_exp_avg_sq"):
        positive = name not in slots or bool((slots[name] >= 0).all())
        require(positive, f"the optimiser's {name} has negative entries")


def _check_any(slots: dict[Any, Any], weight: Tensor, numbers: bool) -> None:
    """Check that tensors have their weight's shape; `numbers` also allows single numbers."""
    for name, value in slots.items():
        label = f"the optimiser's {shorten(name)}"
        single = isinstance(value, Tensor) and value.ndim == 0
        if numbers and not isinstance(value, Tensor):
            plain = value is None or is_number(value) or type(value) is bool
            require(plain, f"{label} is not a number")
            continue
        if not (numbers and single):
            check_tensor(label, value, weight)
        require(bool(torch.isfinite(torch.as_tensor(value)).all()), f"{label} is not finite")


def _check_lbfgs(slots: dict[Any, Any], weights: list[Tensor], most: int) -> None:
    """Check the state of L-BFGS: vectors of all weights one after another, and counts."""
    if not slots:
        return
    flat = torch.cat([weight.detach().flatten() for weight in weights])
    vectors, lists = ("d", "prev_flat_grad"), ("old_dirs", "old_stps", "ro")
    others = ("t", "H_diag", "prev_loss", "al")
    _check_names(slots, ("func_evals", "n_iter"), (*vectors, *lists, *others))
    for name in ("func_evals", "n_iter"):
        require(is_count(slots[name]), f"the optimiser's {name} is not a count")
    if slots["n_iter"] == 0:
        require(len(slots) == 2, "the optimiser has directions before its first iteration")
        return
    _check_names(slots, ("func_evals", "n_iter", *vectors, *lists, *others[:3]), ("al",))
    histories = [slots[name] for name in lists]
    require(all(isinstance(each, list) for each in histories), "the optimiser has no history")
    lengths = {len(each) for each in histories}
    require(len(lengths) == 1 and max(lengths) <= most, "the optimiser's history has other lengths")
    past = slots.get("al", [None] * most)
    require(isinstance(past, list) and len(past) == most, "the optimiser does not have a list 'al'")
    long = [slots[name] for name in vectors] + slots["old_dirs"] + slots["old_stps"]
    short = [slots["t"], slots["H_diag"], slots["prev_loss"], *slots["ro"], *past]
    for value in long:
        check_tensor("a direction of the optimiser", value, flat)
        require(bool(torch.isfinite(value).all()), "a direction of the optimiser is not finite")
    for value in short:
        if isinstance(value, Tensor):
            check_tensor("a number of the optimiser", value, flat[0])
        number = float(value) if isinstance(value, Tensor) else 0 if value is None else value
        require(is_number(number), "a number of the optimiser is not finite")
    missing = any(value is None for value in short[: 3 + len(slots["ro"])])
    require(not missing, "the optimiser lacks a number")
