"""The transformer: order of blocks, loops, traces, counts, batches, precision, random weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import innerloop
from innerloop.errors import InputError
from innerloop.problems.linear_regression import LinearRegression
from innerloop.transformer import (
    MLP,
    Attention,
    Block,
    Head,
    Layout,
    Transformer,
    affine,
    soft_threshold,
)

LAYOUT = Layout(x=2, y=(), count=())


def make_affine_block(factor: float, bias: float = 0.0) -> Block:
    """A block that computes count ← factor · count + bias."""
    return Block(mlp=MLP.from_pieces(LAYOUT, [affine("count", "count", factor - 1.0, bias=bias)]))


def make_counting_transformer(loops: int = 1) -> Transformer:
    """A transformer whose blocks change `count` in ways that do not commute."""
    return Transformer(
        LAYOUT,
        body=[[make_affine_block(2.0)], [make_affine_block(3.0), make_affine_block(1.0, bias=1.0)]],
        prologue=[make_affine_block(0.0, bias=1.0)],
        epilogue=[make_affine_block(-1.0)],
        loops=loops,
    )


def test_blocks_run_in_order_and_the_body_loops() -> None:
    tokens = LAYOUT.make_tokens(x=torch.zeros(3, 2).double())
    for loops, expected in ((1, -7), (2, -43), (3, -259)):
        out = LAYOUT.read(make_counting_transformer(loops)(tokens), "count")
        assert out.tolist() == [expected] * 3
        assert make_counting_transformer(loops).steps == 2 * loops


def test_trace_has_every_block_by_name_and_ends_with_the_output() -> None:
    transformer = make_counting_transformer(loops=2)
    tokens = LAYOUT.make_tokens(x=torch.randn(4, 3, 2).double())
    trace = transformer.trace(tokens)
    assert [float(snapshot["count"][0, 0]) for snapshot in trace] == [
        *(0, 1),
        *(2, 6, 7),
        *(14, 42, 43),
        -43,
    ]
    assert trace.labels[:3] == ["prompt", "prologue", "step 1"]
    assert torch.equal(trace[-1].stream, transformer(tokens))
    assert [float(trace.after_step(k)["count"][0, 0]) for k in range(5)] == [1, 2, 7, 14, 43]
    with pytest.raises(InputError, match="no step 5"):
        trace.after_step(5)


@pytest.mark.parametrize("context", [None, 2])
def test_prologue_steps_and_epilogue_compose_to_forward(context: int | None) -> None:
    attend = Block(Attention.from_heads(LAYOUT, [Head({("x", "x"): 1.0}, {("x", "x"): 0.5})]))
    transformer = Transformer(LAYOUT, [[attend], [attend]], prologue=[attend], epilogue=[attend])
    tokens = LAYOUT.make_tokens(x=torch.randn(2, 5, 2).double())
    stream = transformer.run_prologue(tokens, context)
    for k in range(transformer.steps):
        stream = transformer.step(stream, k, context)
    assert torch.equal(transformer.run_epilogue(stream, context), transformer(tokens, context))
    assert not torch.equal(transformer(tokens, 2), transformer(tokens))
    transformer = make_counting_transformer(loops=3)
    with pytest.raises(InputError, match="step must be in 0 … 5"):
        transformer.step(stream, 6)


def test_count_and_operator_norm() -> None:
    head = Head({("x", "x"): 4.0}, {("y", "y"): 3.0})
    attention = Attention.from_heads(LAYOUT, [head, head])
    block = Block(attention, MLP.from_pieces(LAYOUT, [soft_threshold("x", 0.1)]))
    transformer = Transformer(LAYOUT, [[block]], loops=5)
    count = transformer.count()
    assert count["layers"] == 5
    assert count["heads"] == 2
    assert count["width"] == 4
    assert count["hidden"] == 8
    assert count["parameters"] == 2 * (2 * 4 + 2 * 4 + 1 * 4) + 3 * 4
    # Balanced split: both Q and K have norm √4; two heads of ‖V‖ = 3. W₁ᵀW₁ of the soft threshold
    # is diag(4, 4) and, for its bias column, 4θ² with nothing across; W₂ has norm 2.
    assert transformer.operator_norm() == pytest.approx(2 + 6 + 2 + 2)


def test_count_and_norm_take_the_largest_block() -> None:
    def make_block(heads: int, width: float, thresholds: int) -> Block:
        head = Head({("x", "x"): 1.0}, {("y", "y"): width})
        pieces = [soft_threshold("x", 0.0)] * thresholds
        return Block(Attention.from_heads(LAYOUT, [head] * heads), MLP.from_pieces(LAYOUT, pieces))

    small, large = make_block(1, 1.0, 1), make_block(3, 5.0, 2)
    for body in ([[small], [large]], [[large], [small]]):
        transformer = Transformer(LAYOUT, body)
        assert transformer.count()["heads"] == 3
        assert transformer.count()["hidden"] == 16
        assert transformer.operator_norm() == max(small.operator_norm(), large.operator_norm())


def test_random_weights_have_the_declared_scale_and_follow_the_seed() -> None:
    layout = Layout(x=400)

    def make_transformer(seed: int) -> Transformer:
        generator = torch.Generator().manual_seed(seed)
        return Transformer.with_random_weights(
            layout, layers=2, hidden=100, loops=3, scale=2.0, generator=generator
        )

    transformer = make_transformer(1)
    assert transformer.steps == 6
    block = transformer.blocks()[0]
    assert block.attention is not None
    assert block.mlp is not None
    for weight, fan in (
        (block.attention.query, 400),
        (block.mlp.inner, 400),
        (block.mlp.outer, 100),
    ):
        assert weight.requires_grad
        assert float(weight.detach().std()) == pytest.approx(2 / fan**0.5, rel=0.02)
    again, other = make_transformer(1), make_transformer(2)
    for name, tensor in transformer.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name])
    assert not torch.equal(
        block.attention.query,
        other.blocks()[0].attention.query,  # pyright: ignore[reportOptionalMemberAccess]
    )


@pytest.mark.parametrize("batch", [(), (3,), (2, 3), (1, 2, 2)])
def test_leading_batch_dimensions_are_independent(batch: tuple[int, ...]) -> None:
    transformer = innerloop.build("newton", d=3, n=6, steps=3).transformer
    tokens = torch.randn(*batch, 8, transformer.layout.width, dtype=torch.float64)
    batched = transformer(tokens, 6)
    for index in np.ndindex(*batch):
        torch.testing.assert_close(batched[index], transformer(tokens[index], 6))


def test_context_defaults_to_all_but_the_last_token() -> None:
    transformer = innerloop.build("preconditioned-gradient-descent", d=2, n=4).transformer
    tokens = torch.randn(5, 3, dtype=torch.float64)
    assert torch.equal(transformer(tokens), transformer(tokens, 4))
    assert not torch.equal(transformer(tokens), transformer(tokens, 3))


def test_random_weights_can_be_trained() -> None:
    """A trainable linear transformer learns one step of gradient descent."""
    generator = torch.Generator().manual_seed(0)
    layout = Layout(x=3, y=())
    transformer = Transformer.with_random_weights(layout, layers=1, scale=0.3, generator=generator)
    problem = LinearRegression(d=3, n=12).sample(256, generator=generator)
    registers = problem.to_encoder_format()
    tokens = layout.make_tokens(x=registers["x"], y=registers["y"])
    optimiser = torch.optim.Adam(transformer.parameters(), lr=0.02)
    losses = []
    for _ in range(150):
        prediction = -layout.read(transformer(tokens), "y")[:, -1:]
        loss = (prediction - problem.targets).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]


def test_a_construction_can_be_unfrozen_and_has_gradients() -> None:
    transformer = innerloop.build("relu-newton", d=2, n=4, steps=2).transformer
    assert not any(parameter.requires_grad for parameter in transformer.parameters())
    transformer.requires_grad_(True)
    transformer(torch.randn(5, transformer.layout.width, dtype=torch.float64)).sum().backward()
    assert all(parameter.grad is not None for parameter in transformer.parameters())


def test_random_transformers_of_every_kind_run() -> None:
    for kind, mask, normalisation in [
        ("linear", "context", "1/n"),
        ("relu", "causal", "1/i"),
        ("softmax", "all", "1"),
    ]:
        transformer = Transformer.with_random_weights(
            LAYOUT,
            layers=2,
            heads=3,
            hidden=5,
            kind=kind,  # pyright: ignore[reportArgumentType]
            mask=mask,  # pyright: ignore[reportArgumentType]
            normalisation=normalisation,  # pyright: ignore[reportArgumentType]
            rank=2,
        )
        assert all(b.attention and b.attention.kind == kind for b in transformer.blocks())
        assert all(b.attention and b.attention.mask == mask for b in transformer.blocks())
        count = transformer.count()
        assert (count["layers"], count["heads"], count["hidden"]) == (2, 3, 5)
        assert count["parameters"] == 2 * (3 * (2 * 4 + 2 * 4 + 4 * 4) + 5 * 4 + 5 + 4 * 5)
        out = transformer.float()(torch.randn(2, 3, 4))
        assert out.dtype == torch.float32
        assert bool(torch.isfinite(out).all())


@pytest.mark.parametrize(
    ("tokens", "context", "message"),
    [
        (torch.ones(3, 5).double(), None, "tokens must have shape"),
        (torch.ones(3, 4), None, "tokens are torch.float32, but weights are torch.float64"),
        (torch.full((3, 4), torch.nan).double(), None, "must be finite"),
        (torch.ones(3, 4).double(), -1, "context must be in 0 … 3"),
        (torch.ones(3, 4).double(), 4, "context must be in 0 … 3"),
    ],
)
def test_bad_tokens_are_named(tokens: torch.Tensor, context: int | None, message: str) -> None:
    transformer = make_counting_transformer()
    for run in (transformer, transformer.trace, transformer.run_prologue):
        with pytest.raises(InputError, match=message):
            run(tokens, context)


def test_bad_structures_are_named() -> None:
    with pytest.raises(InputError, match="attention, an MLP, or both"):
        Block()
    with pytest.raises(InputError, match="loops must be at least 1"):
        make_counting_transformer(loops=0)
    with pytest.raises(InputError, match="expected blocks of width"):
        Transformer(Layout(x=9), [[make_affine_block(2.0)]])
    with pytest.raises(InputError, match="layers must be at least 1"):
        Transformer.with_random_weights(LAYOUT, layers=0)
    with pytest.raises(InputError, match="hidden must be at least 0"):
        Transformer.with_random_weights(LAYOUT, layers=1, hidden=-1)


@pytest.mark.parametrize("name", ["newton", "relu-newton", "relu-gradient-descent"])
def test_the_device_follows_the_input(name: str) -> None:
    """Tensors on the meta device refuse to mix with any other, as a GPU's do."""
    transformer = innerloop.build(name, d=3, n=8, steps=2).transformer
    stream = torch.empty(2, 9, transformer.layout.width, device="meta", dtype=torch.float64)
    blocks = [*transformer.blocks(), Block(mlp=MLP.from_pieces(LAYOUT, [soft_threshold("x", 0.1)]))]
    for block in blocks[:-1]:
        stream = block(stream, 8)
    causal = Attention.with_random_weights(4, 2, mask="causal", normalisation="1/i")
    narrow = causal(blocks[-1](stream[..., :4], 8), 8)
    assert narrow.device.type == "meta"
    assert stream.shape == (2, 9, transformer.layout.width)
