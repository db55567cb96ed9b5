"""Files: whole, or refused with one line; and weights that load but break the law."""

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
from innerloop.registry import members
from innerloop.sealed import _digest
from innerloop.transformer import MLP, Attention, Block, Head, Layout, Transformer, soft_threshold
from innerloop.transformer.file import load


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "newton.safetensors"
    innerloop.build("newton", d=2, n=6, steps=2).save(path)
    return path


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        (name, str(dtype).removeprefix("torch."))
        for name, kind in members("constructions", Construction).items()
        for dtype in kind.tolerances
    ],
)
def test_a_saved_file_reloads_to_the_same_certificate(name: str, dtype, tmp_path: Path) -> None:
    steps = members("constructions", Construction)[name].capped("steps", 3)
    built = innerloop.build(name, steps=steps, instances=16, seed=5, dtype=dtype)
    built.save(tmp_path / "file.safetensors")
    again = innerloop.verify(tmp_path / "file.safetensors")
    assert again.certificate == built.certificate
    assert again.transformer.layout == built.transformer.layout
    for key, tensor in built.transformer.state_dict().items():
        assert torch.equal(again.transformer.state_dict()[key], tensor)


def test_matrices_given_outright_survive_the_file(tmp_path: Path) -> None:
    a = torch.randn(3, 2, 2, dtype=torch.float64) * 0.1
    built = innerloop.build("preconditioned-gradient-descent", d=2, steps=3, preconditioners=a)
    built.save(tmp_path / "file.safetensors")
    assert innerloop.verify(tmp_path / "file.safetensors").certificate == built.certificate


def test_free_and_mixed_transformers_survive_the_file(tmp_path: Path) -> None:
    layout = Layout(zeta=2, alpha=(2, 2), y=())
    mixed = Block(
        Attention.of(layout, [Head({("zeta", "zeta"): 2.0}, {("y", "y"): 1.0})], kind="softmax"),
        MLP.of(layout, [soft_threshold("zeta", 0.2)]),
    )
    free = Transformer.free(layout, layers=1, heads=2, hidden=3, kind="relu").blocks()[0]
    transformer = Transformer(layout, [[mixed, free]], loops=3).requires_grad_(True)
    transformer.save(tmp_path / "file.safetensors")
    again = Transformer.load(tmp_path / "file.safetensors")
    tokens = torch.randn(2, 5, layout.width, dtype=torch.float64)
    assert torch.equal(again(tokens), transformer(tokens))
    assert again.count() == transformer.count()
    assert again.operator_norm() == transformer.operator_norm()
    assert list(again.layout.registers) == ["zeta", "alpha", "y"], "registers keep their order"
    assert all(parameter.requires_grad for parameter in again.parameters())
    with pytest.raises(FileError, match="names no construction"):
        innerloop.verify(tmp_path / "file.safetensors")


def test_a_block_used_twice_can_be_saved(tmp_path: Path) -> None:
    layout = Layout(x=2)
    block = Block(mlp=MLP.of(layout, [soft_threshold("x", 0.2)]))
    transformer = Transformer(layout, [[block], [block]])
    transformer.save(tmp_path / "file.safetensors")
    tokens = torch.randn(3, 2, dtype=torch.float64)
    assert torch.equal(Transformer.load(tmp_path / "file.safetensors")(tokens), transformer(tokens))


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 10**9), bit=st.integers(0, 7))
def test_any_flipped_bit_is_noticed(saved: Path, tmp_path: Path, place: int, bit: int) -> None:
    data = bytearray(saved.read_bytes())
    data[place % len(data)] ^= 1 << bit
    (tmp_path / "flipped").write_bytes(data)
    with pytest.raises(FileError) as caught:
        load(tmp_path / "flipped")
    assert "\n" not in str(caught.value)


def test_damage_anywhere_in_the_header_is_noticed(saved: Path, tmp_path: Path) -> None:
    """One bit of every third byte, another one in each."""
    data = saved.read_bytes()
    header = 8 + int.from_bytes(data[:8], "little")
    for place in range(0, header, 3):
        spoiled = bytearray(data)
        spoiled[place] ^= 1 << (place % 8)
        (tmp_path / "flipped").write_bytes(spoiled)
        with pytest.raises(FileError):
            load(tmp_path / "flipped")


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 0.999))
def test_any_truncation_is_noticed(saved: Path, tmp_path: Path, share: float) -> None:
    data = saved.read_bytes()
    (tmp_path / "cut").write_bytes(data[: int(share * len(data))])
    with pytest.raises(FileError):
        load(tmp_path / "cut")


def rewritten(
    source: Path,
    target: Path,
    metadata: Callable[[dict[str, str]], object] | None = None,
    tensors: Callable[[dict[str, torch.Tensor]], object] | None = None,
) -> Path:
    """A file changed by somebody who knows how to sign it again."""
    with safe_open(source, framework="pt") as file:
        said, held = dict(file.metadata()), {k: file.get_tensor(k) for k in sorted(file.keys())}
    if metadata:
        metadata(said)
    if tensors:
        tensors(held)
    said["sha256"] = _digest(said, held)
    save_file(held, target, said)
    return target


def structure(change: Callable[[Any], object]) -> Callable[[dict[str, str]], None]:
    def edit(said: dict[str, str]) -> None:
        described = json.loads(said["structure"])
        change(described)
        said["structure"] = json.dumps(described)

    return edit


QUERY = "body.0.0.attention.query"
FORGERIES: dict[str, tuple[dict[str, Any], str]] = {
    "newer version": ({"metadata": lambda m: m.update(version="99")}, "format version 99"),
    "no version": ({"metadata": lambda m: m.pop("version")}, "no readable format version"),
    "other format": ({"metadata": lambda m: m.update(format="tracr")}, "not the file expected"),
    "wrong shape": (
        {"tensors": lambda t: t.update({QUERY: t[QUERY][:, :, :3].clone()})},
        "should be",
    ),
    "missing tensor": ({"tensors": lambda t: t.pop(QUERY)}, "does not hold the weights"),
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
        {"metadata": structure(lambda s: s["body"][0][0]["attention"].update(kind="cubic"))},
        "kind must be one of",
    ),
    "two precisions": (
        {"tensors": lambda t: t.update({"body.0.0.mlp.bias": t["body.0.0.mlp.bias"].float()})},
        "all float32 or all float64",
    ),
    "about a list": ({"metadata": lambda m: m.update(about="[5]")}, "does not hold"),
    "no loops": ({"metadata": structure(lambda s: s.update(loops=0))}, "loops must be"),
    "no layout": ({"metadata": structure(lambda s: s.pop("layout"))}, "does not hold"),
    "broken structure": ({"metadata": lambda m: m.update(structure="{")}, "does not hold"),
}


@pytest.mark.parametrize("what", FORGERIES)
def test_signed_but_wrong_files_are_refused(what: str, saved: Path, tmp_path: Path) -> None:
    edit, says = FORGERIES[what]
    forged = rewritten(saved, tmp_path / "forged", **edit)
    with pytest.raises(FileError, match=says) as caught:
        load(forged)
    assert "\n" not in str(caught.value)


def about(**changes: Any) -> Callable[[dict[str, str]], None]:
    def edit(said: dict[str, str]) -> None:
        told = json.loads(said["about"])
        told.update(changes)
        said["about"] = json.dumps(told)

    return edit


@pytest.mark.parametrize(
    ("changes", "says"),
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
def test_files_that_lie_about_their_construction(
    changes: dict, says: str, saved: Path, tmp_path: Path, run
) -> None:
    forged = rewritten(saved, tmp_path / "forged", metadata=about(**changes))
    found = run("verify", str(forged))
    assert found.code == 2
    assert says in found.err
    assert len(found.err.splitlines()) == 1


def test_exit_codes_of_verify(saved: Path, tmp_path: Path, run) -> None:
    assert run("verify", str(saved)).code == 0
    broken = rewritten(saved, tmp_path / "broken", tensors=lambda t: t[QUERY].neg_())
    found = run("verify", str(broken))
    assert found.code == 1
    assert "breaks the law: a step deviates by" in found.err
    assert "first in step 1, register m" in found.err
    assert "BROKEN" in found.out
    nan = rewritten(saved, tmp_path / "nan", tensors=lambda t: t[QUERY].fill_(torch.nan))
    found = run("verify", str(nan), "--json")
    assert found.code == 1
    assert json.loads(found.out)["max_deviation"] is None
    assert not json.loads(found.out)["holds"]
    (tmp_path / "text").write_text("not a model")
    for path in (tmp_path / "text", tmp_path / "absent", tmp_path):
        found = run("verify", str(path))
        assert found.code == 2, path
        assert found.err.startswith("innerloop: ")
        assert len(found.err.splitlines()) == 1


def test_an_unwritable_path_is_an_error_and_leaves_nothing(tmp_path: Path, run) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (tmp_path / "no" / "such" / "folder.safetensors", tmp_path, pipe, Path("/proc/x")):
        found = run("build", "newton", "-o", str(path))
        assert found.code == 2, path
        assert "cannot write" in found.err
    assert list(tmp_path.iterdir()) == [pipe]
    assert pipe.is_fifo(), "what is not a file is never replaced"


def test_through_a_link_the_file_is_written(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    innerloop.build("newton", d=2).save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert innerloop.verify(tmp_path / "real").certificate.holds


def test_the_digest_covers_names_types_and_shapes() -> None:
    said, six = {"format": "x"}, torch.arange(6, dtype=torch.float64)
    held = {"a": six.reshape(2, 3)}
    for other in ({"b": six.reshape(2, 3)}, {"a": six.reshape(3, 2)}):
        assert _digest(said, held) != _digest(said, other)
    assert _digest(said, held) != _digest(said, {"a": held["a"].view(torch.int64)})
    assert _digest(said, held) != _digest({"format": "y"}, held)


def test_registers_in_another_order_are_another_layout(saved: Path, tmp_path: Path) -> None:
    assert Layout(x=2, y=()) != Layout(y=(), x=2)
    assert Layout(x=2, y=()) == Layout(x=2, y=())
    swap = structure(lambda s: s["layout"].insert(0, s["layout"].pop(1)))
    forged = rewritten(saved, tmp_path / "forged", metadata=swap)
    with pytest.raises(FileError, match="other registers"):
        innerloop.verify(forged)


def test_files_have_the_usual_permissions_and_are_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with path.open() as old:
        innerloop.build("newton", d=2).save(path)
        assert old.read() == "old", "whoever reads the old file keeps it"
    mask = os.umask(0o022)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask


def test_a_full_disk_leaves_the_old_file(saved: Path, tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "kept.safetensors"
    path.write_bytes(saved.read_bytes())

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileError, match="No space left"):
        innerloop.build("newton", d=3).save(path)
    assert path.read_bytes() == saved.read_bytes()
    assert [p.name for p in tmp_path.iterdir()] == ["kept.safetensors"]
