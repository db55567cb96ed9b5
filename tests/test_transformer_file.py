"""Files of transformers load exactly; damaged and forged files are rejected."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file

import innerloop
from innerloop.constructions.base import Construction
from innerloop.errors import FileError
from innerloop.registry import load_members
from innerloop.sealed import _compute_digest
from innerloop.transformer import MLP, Attention, Block, Head, Layout, Transformer, soft_threshold
from innerloop.transformer.file import load


@pytest.fixture(scope="module")
def saved_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved Newton construction, the same file for all tests."""
    path = tmp_path_factory.mktemp("saved") / "newton.safetensors"
    innerloop.build("newton", d=2, n=6, steps=2).save(path)
    return path


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        (name, str(dtype).removeprefix("torch."))
        for name, kind in load_members("constructions", Construction).items()
        for dtype in kind.tolerances
    ],
)
def test_a_saved_file_reloads_to_the_same_certificate(name: str, dtype, tmp_path: Path) -> None:
    steps = load_members("constructions", Construction)[name].cap_value("steps", 3)
    built = innerloop.build(name, steps=steps, instances=6, seed=5, dtype=dtype)
    built.save(tmp_path / "file.safetensors")
    again = innerloop.verify(tmp_path / "file.safetensors", instances=6, seed=5)
    assert again.certificate == built.certificate
    assert again.transformer.layout == built.transformer.layout
    for key, tensor in built.transformer.state_dict().items():
        assert torch.equal(again.transformer.state_dict()[key], tensor)


def test_explicit_matrices_survive_saving(tmp_path: Path) -> None:
    a = torch.randn(3, 2, 2, dtype=torch.float64) * 0.1
    built = innerloop.build("preconditioned-gradient-descent", d=2, steps=3, preconditioners=a)
    built.save(tmp_path / "file.safetensors")
    assert innerloop.verify(tmp_path / "file.safetensors").certificate == built.certificate


def test_random_and_constructed_blocks_survive_saving(tmp_path: Path) -> None:
    layout = Layout(zeta=2, alpha=(2, 2), y=())
    constructed = Block(
        Attention.from_heads(
            layout, [Head({("zeta", "zeta"): 2.0}, {("y", "y"): 1.0})], kind="softmax"
        ),
        MLP.from_pieces(layout, [soft_threshold("zeta", 0.2)]),
    )
    random = Transformer.with_random_weights(
        layout, layers=1, heads=2, hidden=3, kind="relu"
    ).blocks()[0]
    transformer = Transformer(layout, [[constructed, random]], loops=3).requires_grad_(True)
    transformer.save(tmp_path / "file.safetensors")
    again = Transformer.load(tmp_path / "file.safetensors")
    tokens = torch.randn(2, 5, layout.width, dtype=torch.float64)
    assert torch.equal(again(tokens), transformer(tokens))
    assert again.count() == transformer.count()
    assert again.operator_norm() == transformer.operator_norm()
    assert list(again.layout.registers) == ["zeta", "alpha", "y"], "registers keep their order"
    assert all(parameter.requires_grad for parameter in again.parameters())
    with pytest.raises(FileError, match="does not name a construction"):
        innerloop.verify(tmp_path / "file.safetensors")


def test_a_block_used_twice_can_be_saved(tmp_path: Path) -> None:
    layout = Layout(x=2)
    block = Block(mlp=MLP.from_pieces(layout, [soft_threshold("x", 0.2)]))
    transformer = Transformer(layout, [[block], [block]])
    transformer.save(tmp_path / "file.safetensors")
    tokens = torch.randn(3, 2, dtype=torch.float64)
    assert torch.equal(Transformer.load(tmp_path / "file.safetensors")(tokens), transformer(tokens))


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 10**9), bit=st.integers(0, 7))
def test_any_flipped_bit_is_noticed(saved_file: Path, tmp_path: Path, place: int, bit: int) -> None:
    data = bytearray(saved_file.read_bytes())
    data[place % len(data)] ^= 1 << bit
    (tmp_path / "flipped").write_bytes(data)
    with pytest.raises(FileError) as caught:
        load(tmp_path / "flipped")
    assert "\n" not in str(caught.value)


def test_damage_anywhere_in_the_header_is_noticed(saved_file: Path, tmp_path: Path) -> None:
    """Flip one bit of every third byte of the header; which bit depends on the position."""
    data = saved_file.read_bytes()
    header = 8 + int.from_bytes(data[:8], "little")
    for place in range(0, header, 3):
        damaged = bytearray(data)
        damaged[place] ^= 1 << (place % 8)
        (tmp_path / "flipped").write_bytes(damaged)
        with pytest.raises(FileError):
            load(tmp_path / "flipped")


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 0.999))
def test_any_truncation_is_noticed(saved_file: Path, tmp_path: Path, share: float) -> None:
    data = saved_file.read_bytes()
    (tmp_path / "cut").write_bytes(data[: int(share * len(data))])
    with pytest.raises(FileError):
        load(tmp_path / "cut")


def rewrite(
    source: Path,
    target: Path,
    metadata: Callable[[dict[str, str]], object] | None = None,
    tensors: Callable[[dict[str, torch.Tensor]], object] | None = None,
) -> Path:
    """Write a changed copy of a file with a correct digest, as a forger could."""
    with safe_open(source, framework="pt") as file:
        header = dict(file.metadata())
        weights = {name: file.get_tensor(name) for name in sorted(file.keys())}
    if metadata:
        metadata(header)
    if tensors:
        tensors(weights)
    header["sha256"] = _compute_digest(header, weights)
    save_file(weights, target, header)
    return target


def edit_structure(change: Callable[[Any], object]) -> Callable[[dict[str, str]], None]:
    """Make an edit of the header that changes the described structure."""

    def edit(header: dict[str, str]) -> None:
        structure = json.loads(header["structure"])
        change(structure)
        header["structure"] = json.dumps(structure)

    return edit


QUERY = "body.0.0.attention.query"
FORGERIES: dict[str, tuple[dict[str, Any], str]] = {
    "newer version": ({"metadata": lambda m: m.update(version="99")}, "format version 99"),
    "no version": ({"metadata": lambda m: m.pop("version")}, "no readable format version"),
    "other format": ({"metadata": lambda m: m.update(format="tracr")}, "expected a file of format"),
    "wrong shape": (
        {"tensors": lambda t: t.update({QUERY: t[QUERY][:, :, :3].clone()})},
        "must have shape",
    ),
    "missing tensor": ({"tensors": lambda t: t.pop(QUERY)}, "does not contain the weights"),
    "extra tensor": ({"tensors": lambda t: t.update(extra=torch.ones(1))}, "unexpected tensor"),
    "far target": (
        {"tensors": lambda t: t["body.0.0.attention.targets"].fill_(99)},
        "places below",
    ),
    "far target of an MLP": (
        {"tensors": lambda t: t["body.0.0.mlp.targets"].fill_(-1)},
        "places below",
    ),
    "unknown kind": (
        {"metadata": edit_structure(lambda s: s["body"][0][0]["attention"].update(kind="cubic"))},
        "kind must be one of",
    ),
    "two precisions": (
        {"tensors": lambda t: t.update({"body.0.0.mlp.bias": t["body.0.0.mlp.bias"].float()})},
        "all float32 or all float64",
    ),
    "about a list": ({"metadata": lambda m: m.update(about="[5]")}, "does not contain"),
    "no loops": ({"metadata": edit_structure(lambda s: s.update(loops=0))}, "loops must be"),
    "no layout": ({"metadata": edit_structure(lambda s: s.pop("layout"))}, "does not contain"),
    "broken structure": ({"metadata": lambda m: m.update(structure="{")}, "does not contain"),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_signed_but_wrong_files_are_refused(forgery: str, saved_file: Path, tmp_path: Path) -> None:
    edit, message = FORGERIES[forgery]
    forged = rewrite(saved_file, tmp_path / "forged", **edit)
    with pytest.raises(FileError, match=message) as caught:
        load(forged)
    assert "\n" not in str(caught.value)


def edit_about(**changes: Any) -> Callable[[dict[str, str]], None]:
    """Make an edit of the header that changes what it says about the construction."""

    def edit(header: dict[str, str]) -> None:
        about = json.loads(header["about"])
        about.update(changes)
        header["about"] = json.dumps(about)

    return edit


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"construction": "newtonn"}, "did you mean 'newton'"),
        ({"settings": {"d": 3, "n": 6, "steps": 2}}, "other registers or steps"),
        ({"settings": {"d": 2, "n": 6, "steps": 3}}, "other registers or steps"),
        ({"settings": {"depth": 3}}, "no parameter called 'depth'"),
        ({"settings": 5}, "does not say what it holds"),
        ({"instances": "many"}, "does not say what it holds"),
        ({"instances": True}, "does not say what it holds"),
    ],
)
def test_files_with_a_wrong_description_are_refused(
    changes: dict, message: str, saved_file: Path, tmp_path: Path, run
) -> None:
    forged = rewrite(saved_file, tmp_path / "forged", metadata=edit_about(**changes))
    result = run("verify", str(forged))
    assert result.code == 2
    assert message in result.err
    assert len(result.err.splitlines()) == 1


def test_exit_codes_of_verify(saved_file: Path, tmp_path: Path, run) -> None:
    assert run("verify", str(saved_file)).code == 0
    broken = rewrite(saved_file, tmp_path / "broken", tensors=lambda t: t[QUERY].neg_())
    result = run("verify", str(broken))
    assert result.code == 1
    assert "breaks the law: a step deviates by" in result.err
    assert "first in step 1, register m" in result.err
    assert "BROKEN" in result.out
    nan = rewrite(saved_file, tmp_path / "nan", tensors=lambda t: t[QUERY].fill_(torch.nan))
    result = run("verify", str(nan), "--json")
    assert result.code == 1
    assert json.loads(result.out)["max_deviation"] is None
    assert not json.loads(result.out)["holds"]
    (tmp_path / "text").write_text("not a model")
    for path in (tmp_path / "text", tmp_path / "absent", tmp_path):
        result = run("verify", str(path))
        assert result.code == 2, path
        assert result.err.startswith("innerloop: ")
        assert len(result.err.splitlines()) == 1


def test_an_unwritable_path_is_an_error_and_leaves_nothing(tmp_path: Path, run) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (tmp_path / "no" / "such" / "folder.safetensors", tmp_path, pipe, Path("/proc/x")):
        result = run("build", "newton", "-o", str(path))
        assert result.code == 2, path
        assert "cannot write" in result.err
    assert list(tmp_path.iterdir()) == [pipe]
    assert pipe.is_fifo(), "only regular files are replaced"


def test_saving_to_a_link_writes_the_file_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    innerloop.build("newton", d=2).save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert innerloop.verify(tmp_path / "real").certificate.holds


def test_the_digest_covers_names_types_and_shapes() -> None:
    header, six = {"format": "x"}, torch.arange(6, dtype=torch.float64)
    weights = {"a": six.reshape(2, 3)}
    for other in ({"b": six.reshape(2, 3)}, {"a": six.reshape(3, 2)}):
        assert _compute_digest(header, weights) != _compute_digest(header, other)
    assert _compute_digest(header, weights) != _compute_digest(
        header, {"a": weights["a"].view(torch.int64)}
    )
    assert _compute_digest(header, weights) != _compute_digest({"format": "y"}, weights)


def test_registers_in_another_order_are_another_layout(saved_file: Path, tmp_path: Path) -> None:
    assert Layout(x=2, y=()) != Layout(y=(), x=2)
    assert Layout(x=2, y=()) == Layout(x=2, y=())
    swap = edit_structure(lambda s: s["layout"].insert(0, s["layout"].pop(1)))
    forged = rewrite(saved_file, tmp_path / "forged", metadata=swap)
    with pytest.raises(FileError, match="other registers"):
        innerloop.verify(forged)


def test_files_have_the_usual_permissions_and_are_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with path.open() as old:
        innerloop.build("newton", d=2).save(path)
        assert old.read() == "old", "a reader of the old file is not disturbed"
    mask = os.umask(0o022)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask


def test_a_full_disk_leaves_the_old_file(saved_file: Path, tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "kept.safetensors"
    path.write_bytes(saved_file.read_bytes())

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(FileError, match="No space left"):
        innerloop.build("newton", d=3).save(path)
    assert path.read_bytes() == saved_file.read_bytes()
    assert [p.name for p in tmp_path.iterdir()] == ["kept.safetensors"]
