"""A stranger's model: hooked layers with read-outs, GPT-2, and `module:attribute`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.linear_model import Ridge
from torch import Tensor, nn

from innerloop.constructions.newton import NewtonConstruction
from innerloop.errors import InputError
from innerloop.identification.hooked import (
    PENALTIES,
    HookedModel,
    read_features,
)
from innerloop.identification.identification import check_request, identify
from innerloop.identification.instances import draw_prompts
from innerloop.identification.models import ConstructionModel, predict_layers
from innerloop.identification.modules import (
    ModuleModel,
    build_alternating_prompt,
    build_flag_prompt,
    build_token_prompt,
)
from innerloop.problems.linear_regression import LinearRegression, RegressionProblem
from innerloop.problems.mixture_of_regressions import MixtureOfRegressions

PROBLEMS = LinearRegression(d=3, n=8, noise=0.1)


class Stranger(nn.Module):
    """A stack of causal encoder layers, as anybody would write it."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.embed = nn.Linear(3, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 2, 32, dropout=0.0, batch_first=True)
            for _ in range(2)
        )
        self.unused = nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        stream = self.embed(tokens)
        for block in self.blocks:
            stream = block(stream)
        return stream


class Solver(nn.Module):
    """One layer writes the moments of a prompt, the next the least-squares weights times x."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Identity(), nn.Identity()])

    def forward(self, x: Tensor, y: Tensor, query: Tensor) -> Tensor:
        moment = (x.mT @ y.unsqueeze(-1)).squeeze(-1)
        first = self.layers[0](moment * query)
        weights = torch.linalg.solve(x.mT @ x, moment)
        parts = torch.stack([2 + weights * query, first], dim=1).flip(1)
        return self.layers[1](parts).sum() + first.sum()


def make_inputs(problem: RegressionProblem) -> dict[str, Any]:
    return {"x": problem.x, "y": problem.y, "query": problem.x_query[:, 0]}


def test_read_outs_find_what_is_linear_in_a_layer() -> None:
    """The sum of x·w is linear in the entries of x·w, whatever was added to them."""
    model = HookedModel.fit(Solver(), LinearRegression(d=3, n=8), make_inputs, prompts=400)
    assert model.layers == ["layers.0", "layers.1"]
    found = identify(model, algorithms=["least-squares", "ridge", "averaging"], prompts=64)
    assert found.layers[1].algorithm == "least-squares"
    assert found.layers[1].fit == "match"
    assert found.layers[0].algorithm != "least-squares"


def test_the_read_out_is_ridge_regression() -> None:
    torch.manual_seed(1)
    module = Stranger()
    model = HookedModel.fit(module, PROBLEMS, prompts=200, seed=3)
    problem = draw_prompts(PROBLEMS, 200, torch.Generator().manual_seed(3))
    assert problem.weights is not None
    features = read_features(module, build_alternating_prompt, model.layers, problem)
    rows, target = features[1].numpy(), problem.targets.numpy()
    scale = float(features[1].square().mean()) * 150
    fits = [Ridge(alpha=p * scale).fit(rows[:150], target[:150]) for p in PENALTIES]
    best = min(fits, key=lambda fit: ((fit.predict(rows[150:]) - target[150:, 0]) ** 2).mean())
    predictions = predict_layers(model, problem)[1, :, 0]
    torch.testing.assert_close(
        predictions, torch.as_tensor(best.predict(rows)), rtol=1e-5, atol=1e-6
    )


class Regressor(nn.Module):
    """Tokens [x, y], with a head of its own, which `identify` takes as it is."""

    def __init__(self, extra: int = 1) -> None:
        super().__init__()
        self.embed = nn.Linear(3 + extra, 8)
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
        self.head = nn.Linear(8, 1)

    def forward(self, tokens: Tensor) -> tuple[Tensor, None]:
        stream = self.embed(tokens)
        for block in self.blocks:
            stream = stream + block(stream).tanh().mean(dim=1, keepdim=True)
        return self.head(stream), None


@pytest.mark.parametrize("extra", [0, 1, 2])
def test_the_last_layer_of_a_hooked_module_is_its_own_prediction(extra: int) -> None:
    torch.manual_seed(2)
    module = Regressor(extra)
    model = HookedModel.fit(module, PROBLEMS, prompts=40)
    assert model.layers == ["blocks.0", "blocks.1", "output"]
    problem = draw_prompts(PROBLEMS, 8, torch.Generator().manual_seed(1))
    rows, (own,) = predict_layers(model, problem), predict_layers(ModuleModel(module), problem)
    assert torch.equal(rows[-1], own)
    assert not torch.allclose(rows[-2], own, rtol=1e-3)
    # A prompt of the user's own: the output is known by its shape.
    formats = {0: build_alternating_prompt, 1: build_token_prompt, 2: build_flag_prompt}
    build = formats[extra]
    again = HookedModel.fit(module, PROBLEMS, build, prompts=40)
    assert torch.equal(predict_layers(again, problem), rows)


def test_a_random_stranger_fits_nothing() -> None:
    torch.manual_seed(0)
    model = HookedModel.fit(Stranger(), PROBLEMS, prompts=400)
    names = ["averaging", "gradient-descent", "least-squares", "nearest-neighbours", "ridge"]
    found = identify(model, algorithms=names, prompts=64, steps=6)
    assert all(layer.fit != "match" for layer in found.layers)


def test_what_cannot_be_hooked_is_said() -> None:
    module = Stranger()
    refused: list[tuple[Callable[[], Any], str]] = [
        (lambda: HookedModel.fit(nn.Linear(3, 3), PROBLEMS), "no nn.ModuleList"),
        (lambda: HookedModel.fit(module, PROBLEMS, layers=["blocks.7"]), "no layer called"),
        (lambda: HookedModel.fit(module, PROBLEMS, layers=["unused"]), "it did not run"),
        (
            lambda: HookedModel.fit(Solver(), PROBLEMS, make_inputs, layers=[""]),
            r"it gives shape \(\)",
        ),
        (lambda: HookedModel.fit(module, PROBLEMS, "token"), "no format called 'token'"),
        (lambda: HookedModel.fit(module, LinearRegression(d=5, n=8)), "cannot guess the format"),
        (
            lambda: HookedModel.fit(module, MixtureOfRegressions(d=3, n=8)),
            "have none",
        ),
    ]
    for make, message in refused:
        with pytest.raises(InputError, match=message):
            make()
    assert not any(block._forward_hooks for block in module.modules())


def test_gpt2_of_the_transformers_library() -> None:
    transformers = pytest.importorskip("transformers")
    from innerloop.identification.hugging_face import wrap_gpt2

    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=2, n_embd=16, n_head=2, vocab_size=1, n_positions=32)
    backbone, read_in = transformers.GPT2Model(config), nn.Linear(3, 16)
    model = wrap_gpt2(backbone, read_in, PROBLEMS, prompts=200)
    assert model.layers == ["h.0", "h.1"]
    found = identify(model, algorithms=["ridge", "gradient-descent"], prompts=32, steps=4)
    assert all(layer.fit != "match" for layer in found.layers)
    with pytest.raises(InputError, match="35 tokens, and this GPT-2 takes at most 32"):
        identify(model, LinearRegression(d=3, n=17), prompts=8)
    with pytest.raises(InputError, match="GPT2Model, got Linear"):
        wrap_gpt2(read_in, read_in, PROBLEMS)

    # What edits its input in place is read as what edits a copy.
    read_ins = nn.Linear(3, 16), nn.Linear(3, 16)
    read_ins[1].load_state_dict(read_ins[0].state_dict())
    read_ins[0].register_forward_pre_hook(lambda _, given: given[0].clamp_(-1, 1))
    read_ins[1].register_forward_pre_hook(lambda _, given: given[0].clamp(-1, 1))
    problem = draw_prompts(PROBLEMS, 8, torch.Generator().manual_seed(1))
    answers = [
        predict_layers(wrap_gpt2(backbone, each, PROBLEMS, prompts=40), problem)
        for each in read_ins
    ]
    assert torch.equal(*answers)


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make a folder with a user's model, and work in it."""
    (tmp_path / "somebodys.py").write_text(
        "def average(X, y, query):\n"
        "    return ((X * y[..., None]).mean(dim=1) * query).sum(dim=-1)\n"
        "def made():\n"
        "    return average\n"
        "class Holder:\n"
        "    number = 3\n"
    )
    (tmp_path / "broken.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    sys.modules.pop("somebodys", None)


WORDS = ("--problem", "linear-regression", "-s", "d=2", "-s", "n=6", "--prompts", "32")


def test_a_module_and_its_attribute_on_the_command_line(run, own_folder: Path) -> None:
    some = ("--candidate", "averaging", "--candidate", "ridge")
    for name in ("somebodys:average", "somebodys:made"):
        found = run("identify", name, *WORDS, *some)
        assert found.code == 0, found.err
        assert "verdict: averaging\n" in found.out
    for words, message in (
        (("somebodys:nothing", *WORDS), "no attribute called 'nothing'"),
        (("somebodys:Holder.number", *WORDS), "expected a Model"),
        (("nobodys:model", *WORDS), "cannot import 'nobodys'"),
        (("broken:model", *WORDS), "ZeroDivisionError"),
        (("somebodys:average",), "--problem linear-regression"),
        (("missing.safetensors",), "no such file"),
        (("somebodys:average", *WORDS, "--figure", "f.pdf"), ".html, .png, .svg"),
        (("somebodys:average", *WORDS, "--candidate", "rdge"), "did you mean 'ridge'?"),
    ):
        found = run("identify", *words)
        assert found.code == 2
        assert message in found.err
        assert found.err.count("\n") == 1


def test_a_file_on_the_command_line(run, own_folder: Path) -> None:
    import json

    run("build", "newton", "-s", "d=2", "-s", "n=8", "-s", "steps=3", "-o", "n.safetensors")
    some = ("--candidate", "newton", "--candidate", "ridge", "--prompts", "32", "--steps", "4")
    found = json.loads(run("identify", "n.safetensors", *some, "--json").out)
    assert found["verdict"] == "newton"
    assert found["fitted"]["newton"] == found["hyperparameters"]
    assert found["hyperparameters"]["alpha"] > 0
    fields = {"layer", "algorithm", "step", "score", "low", "high", "runner_up"}
    fields |= {"runner_up_score", "also_fits", "measures", "error"}
    for k, layer in enumerate(found["layers"], 1):
        assert set(layer) >= fields
        assert (layer["layer"], layer["algorithm"], layer["step"]) == (k, "newton", k)
        assert layer["runner_up"] == "ridge"
        assert layer["measures"]["similarity of errors"] == pytest.approx(1.0)
        assert layer["measures"]["similarity of induced weights"] == pytest.approx(1.0)
        assert layer["measures"]["cosine of sensitivities"] == pytest.approx(1.0)
        assert layer["measures"]["distance of sensitivities"] < 1e-6
    for kind, start in (("svg", b"<svg"), ("png", b"\x89PNG"), ("html", b"<!doctype html>")):
        printed = run("identify", "n.safetensors", *some, "--figure", f"f.{kind}").out
        assert f"figure written to f.{kind}" in printed
        assert (own_folder / f"f.{kind}").read_bytes().startswith(start)
    assert b"newton" in (own_folder / "f.svg").read_bytes()


def test_every_measure_has_a_table_of_layers_and_steps() -> None:
    construction = NewtonConstruction(d=2, n=8, steps=3)
    model = ConstructionModel(construction, construction.transformer)
    names = ["newton", "least-squares", "gradient-descent"]
    tables = identify(model, algorithms=names, prompts=32, steps=6).compute_tables(model, 6)
    for label, steps in (("newton", 7), ("gradient-descent (per step)", 4), ("least-squares", 1)):
        assert len(tables[label]) == 9
        for name, table in tables[label].items():
            assert table.shape == (3, steps), name
    best = tables["newton"]["similarity of errors"].argmax(dim=-1)
    assert best.tolist() == [1, 2, 3]


@pytest.mark.parametrize("steps", [2, 5])
def test_a_function_alone_is_any_step(steps: int) -> None:
    """One layer is seen: which step it is must be found, and the step size with it."""

    def descent(X: Tensor, y: Tensor, x_query: Tensor) -> Tensor:
        w = torch.zeros_like(x_query)
        for _ in range(steps):
            residual = y - torch.einsum("bnd,bd->bn", X, w)
            w = w + 0.4 * torch.einsum("bnd,bn->bd", X, residual) / X.shape[1]
        return (w * x_query).sum(-1)

    problems = LinearRegression(d=3, n=12, kappa=5.0)
    found = identify(descent, problems, algorithms=["gradient-descent", "newton"], prompts=64)
    (layer,) = found.layers
    assert (found.verdict, layer.step) == ("gradient-descent", steps)
    assert layer.score > 1 - 1e-9


def test_what_is_no_distribution_or_no_list_is_refused() -> None:
    check_request(PROBLEMS, ["newton"])
    for distribution, algorithms, message in (
        (None, None, "this model does not declare one"),
        (
            "linear-regression",
            None,
            r"such as LinearRegression\(d=3, n=12\), got 'linear-regression'",
        ),
        (PROBLEMS, "newton", "a list of candidates, got 'newton' alone"),
    ):
        with pytest.raises(InputError, match=message):
            check_request(distribution, algorithms)
