"""`kernel=c` computes the loss and the gradient of `kernel.py`, for every shape that it takes."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from innerloop.errors import MissingLibraryError
from innerloop.recipes.linear_attention import LinearAttentionRecipe
from innerloop.training import compiled, kernel
from innerloop.training.kernel import Code, Prompts


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def draw_prompts(
    d: int, read: int, batch: int, *, shared: bool, dtype: torch.dtype = torch.float64
) -> Prompts:
    """Symmetric G; mass and target shared by the prompts, or of each column and prompt its own."""
    T = draw(d, 2 * d, batch, dtype=dtype)
    gram = torch.einsum("ikb,jkb->ijb", T, T) / (2 * d)
    if shared:
        mass, target = gram.new_full((1, 1), 1 / batch), draw(read, d, 1, seed=1, dtype=dtype)
    else:
        mass = draw(d, batch, seed=2, dtype=dtype).square() / batch
        target = draw(read, d, batch, seed=3, dtype=dtype)
    return Prompts(gram, mass, target)


def compute(code: Code, prompts: Prompts, weights: list[Tensor], moves: int) -> list[Tensor]:
    """The loss and its gradient in A, Y_0 and O, or in A, O and every Γ."""
    leaves = [w.clone().requires_grad_() for w in weights]
    A, first, offset, *gamma = leaves
    value = kernel.loss(prompts, A, first, offset, gamma, code)
    inputs = [A, offset, *gamma] if moves else [A, first, offset]
    return [value.detach(), *torch.autograd.grad(3 * value, inputs)]


@pytest.mark.parametrize(
    ("d", "layers", "above", "read", "moves", "batch", "shared"),
    [
        (3, 2, 3, 3, 0, 21, True),  # fixed tokens, no multiple of a register
        (2, 3, 3, 3, 0, 7, False),  # with the row of u
        (3, 3, 3, 3, 2, 700, True),  # form (13), more than one flush
        (4, 1, 0, 1, 1, 8, False),  # all weights free, one layer
        (3, 3, 0, 1, 3, 19, False),  # and three
    ],
)
def test_value_and_gradient_are_those_of_torch(
    d: int, layers: int, above: int, read: int, moves: int, batch: int, shared: bool
) -> None:
    prompts = draw_prompts(d, read, batch, shared=shared)
    first = draw(above, d, seed=4)
    if moves:
        first = torch.cat([first, torch.eye(d, dtype=torch.float64)])
    gamma = list(0.3 * draw(moves, d, d, seed=5))
    weights = [0.3 * draw(layers, d, d, seed=6), first, draw(read, d, seed=7), *gamma]
    expected = compute("torch", prompts, weights, moves)
    found = compute("c", prompts, weights, moves)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)
    with torch.no_grad():
        A, first, offset, *gamma = weights
        value = kernel.loss(prompts, A, first, offset, gamma, "c")
    torch.testing.assert_close(value, expected[0], rtol=1e-10, atol=0)


def test_single_precision_is_as_near_to_double_as_torchs_own() -> None:
    exact = draw_prompts(3, 3, 5000, shared=True)
    single = Prompts(*(part.float() for part in exact))
    weights = [0.3 * draw(2, 3, 3, seed=6), draw(3, 3, seed=4), draw(3, 3, seed=7)]
    truth = compute("torch", exact, weights, 0)

    def measure_error(code: Code) -> float:
        parts = compute(code, single, [w.float() for w in weights], 0)
        pairs = zip(parts, truth, strict=True)
        return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)

    assert measure_error("c") < max(2 * measure_error("torch"), 1e-6)


def test_a_recipe_trains_with_it(run: Any, tmp_path: Any) -> None:
    words = ["-s", "d=3", "-s", "n=6", "-s", "batch=40", "-s", "steps=6", "-s", "evaluate_every=3"]
    losses = []
    for code in ("torch", "c"):
        command = ["train", "linear-attention", *words, "-s", f"kernel={code}"]
        done = run(*command, "-o", str(tmp_path / code))
        assert done.code == 0, done.err
        rows = (tmp_path / code / "seed-0" / "history.csv").read_text().splitlines()
        columns = rows[0].split(",")
        losses.append([float(row.split(",")[columns.index("loss")]) for row in rows[1:]])
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)
    assert losses[0][-1] < losses[0][0]


@pytest.fixture
def compute_afresh(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], float]:
    """Compute a loss with the compiler that CC names, compiled again each time."""
    monkeypatch.setattr(compiled, "_load", compiled._load.__wrapped__)
    prompts = draw_prompts(2, 2, 3, shared=True)
    weights = [draw(1, 2, 2), draw(2, 2), draw(2, 2)]

    def compute_with(command: str) -> float:
        monkeypatch.setenv("CC", command)
        loss = float(compute("c", prompts, weights, 0)[0])
        assert loss == pytest.approx(float(compute("torch", prompts, weights, 0)[0]))
        return loss

    return compute_with


def write_script(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("command", ["a-compiler-that-nobody-has", " ", "cc '", "/", "''", "-O2"])
def test_a_machine_without_a_compiler_gives_an_error(
    command: str, compute_afresh: Callable[[str], float]
) -> None:
    with pytest.raises(MissingLibraryError, match=f"needs a C compiler, got CC=.{command}"):
        compute_afresh(command)
    with pytest.raises(MissingLibraryError, match="needs a C compiler"):
        LinearAttentionRecipe(kernel="c")  # before a folder is made


FAILURES = {
    "exit 3": "it exited with status 3",
    "exit 0": "cannot open shared object file",
    "echo 'a.c:1: error: no' >&2; exit 1": "a.c:1: error: no",
    'for out; do :; done; echo text >"$out"': "file too short|invalid ELF",
    'for out; do :; done; echo "int x;" | cc -shared -fPIC -x c - -o "$out"': "count_totals",
    "kill -9 $$": "it exited with status -9",
}
"""Programs that are not a compiler, and what is reported of each."""


@pytest.mark.parametrize("text", FAILURES)
def test_a_program_that_does_not_compile_gives_an_error(
    text: str, compute_afresh: Callable[[str], float], tmp_path: Path
) -> None:
    with pytest.raises(MissingLibraryError, match=FAILURES[text]) as raised:
        compute_afresh(str(write_script(tmp_path / "cc", text)))
    assert "\n" not in str(raised.value)


def test_a_compiler_that_hangs_is_killed_with_all_its_processes(
    compute_afresh: Callable[[str], float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "SECONDS", 0.3)
    script = f"sleep 60 & echo $! >'{tmp_path}/pid'; wait"
    with pytest.raises(MissingLibraryError, match="it ran for more than"):
        compute_afresh(str(write_script(tmp_path / "cc", script)))
    state = Path("/proc", (tmp_path / "pid").read_text().strip(), "stat")
    for _ in range(100):
        if not state.exists() or state.read_text().split()[2] == "Z":
            return
        time.sleep(0.02)
    pytest.fail("a process that the compiler started still runs")


def test_a_compiler_may_have_options_quotes_and_spaces(
    compute_afresh: Callable[[str], float], tmp_path: Path
) -> None:
    spaced = write_script(tmp_path / "my tools" / "the cc", 'exec cc "$@"')
    for command in ("cc -O1", f"'{spaced}' -O1 '-DNAME=\"a b\"'", str(spaced)):
        compute_afresh(command)


def test_the_folder_of_the_library_is_private_and_removed(
    compute_afresh: Callable[[str], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    folders: list[tuple[Path, int]] = []
    load = ctypes.CDLL

    def look(path: str) -> ctypes.CDLL:
        folder = Path(path).parent
        folders.append((folder, folder.stat().st_mode & 0o777))
        return load(path)

    monkeypatch.setattr(ctypes, "CDLL", look)
    compute_afresh("cc")
    ((folder, mode),) = folders
    assert mode == 0o700
    assert not folder.exists()
