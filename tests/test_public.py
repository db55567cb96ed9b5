"""What a user would guess can be imported from `innerloop`, and old names warn for one release."""

from __future__ import annotations

import importlib
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch

import innerloop
from innerloop.errors import InputError
from innerloop.policies.base import Policy
from innerloop.problems.base import Distribution
from innerloop.registry import load_members
from innerloop.transformer import MLP, Attention, Head, Layout, affine


def test_every_name_of_the_stub_is_there_and_documented() -> None:
    names = vars(innerloop)["_load_homes"]()
    assert len(names) > 40
    for name in names:
        assert getattr(innerloop, name).__doc__, name
        assert name in dir(innerloop)
    folder = Path(innerloop.__file__).parent
    modules = {path.stem for path in folder.iterdir()} - {"identify"}
    assert not modules & set(names), "a module of that name would take the place of the function"
    for function in ("build", "certify", "verify", "identify", "train", "check", "show", "rollout"):
        assert isinstance(getattr(innerloop, function), types.FunctionType)


def test_every_problem_distribution_and_policy_is_public() -> None:
    for kind in load_members("problems", Distribution).values():
        assert getattr(innerloop, kind.__name__) is kind
        assert getattr(innerloop, kind.problem_type.__name__) is kind.problem_type
    for policy in load_members("policies", Policy).values():
        assert getattr(innerloop, policy.__name__) is policy
    for error in InputError.__subclasses__():
        if error.__module__ == "innerloop.errors":
            assert getattr(innerloop, error.__name__) is error


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'innerloop' has no attribute 'buidl'"):
        innerloop.buidl  # noqa: B018  # pyright: ignore


@pytest.mark.parametrize(("old", "new"), vars(innerloop)["_RENAMED"].items())
def test_old_public_names_warn(old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"innerloop.{old} is now innerloop.{new}"):
        assert getattr(innerloop, old) is getattr(innerloop, new)


def test_old_methods_warn() -> None:
    layout = Layout(x=2, y=())
    head = Head(score={("x", "x"): 1.0}, value={("y", "y"): 1.0})
    with pytest.warns(DeprecationWarning, match="Attention.of is now Attention.from_heads"):
        Attention.of(layout, [head])
    with pytest.warns(DeprecationWarning, match="MLP.of is now MLP.from_pieces"):
        MLP.of(layout, [affine("x", "x")])
    with pytest.warns(DeprecationWarning, match="Layout.tokens is now Layout.make_tokens"):
        tokens = layout.tokens(x=torch.ones(3, 2))
    assert tokens.shape == (3, 3)
    with pytest.warns(DeprecationWarning, match="signed is now innerloop.transformer.make_signed"):
        importlib.import_module("innerloop.transformer").signed  # noqa: B018


def test_the_old_module_identify_can_be_imported_and_called() -> None:
    """In a process of its own: importing it puts it in the function's place."""
    code = (
        "import warnings; warnings.simplefilter('ignore');"
        "from innerloop.identify import HookedModel, identify, gpt2; import innerloop;"
        "assert HookedModel is innerloop.HookedModel and gpt2 is innerloop.wrap_gpt2;"
        "assert callable(innerloop.identify) and callable(identify);"
        "warnings.simplefilter('error'); import importlib, sys;"
        "del sys.modules['innerloop.identify']\n"
        "try:\n importlib.import_module('innerloop.identify')\n"
        "except DeprecationWarning as told:\n print(told)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("innerloop.identify is a function now"), done.stderr
