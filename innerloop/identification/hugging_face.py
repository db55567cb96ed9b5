"""GPT-2 of the `transformers` library as a model to identify, with a read-out for every block.

    from transformers import GPT2Config, GPT2Model
    backbone = GPT2Model(GPT2Config(n_layer=6, n_embd=64, n_head=4, vocab_size=1))
    read_in = torch.nn.Linear(5, 64)
    model = wrap_gpt2(backbone, read_in, LinearRegression(d=5, n=20))

Prompts are alternating (hooked.py). The token embedding is not used: `read_in` maps the vectors of
the prompt into the stream.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from innerloop.errors import InputError
from innerloop.identification.hooked import HookedModel
from innerloop.identification.modules import build_alternating_prompt
from innerloop.problems.base import Distribution


def wrap_gpt2(
    backbone: nn.Module, read_in: nn.Module, distribution: Distribution, **settings: Any
) -> HookedModel:
    """Wrap a GPT-2 of the `transformers` library, so that `identify` sees each of its layers.

    Args:
        backbone: A `GPT2Model`.
        read_in: The module that maps the numbers of a token to GPT-2's width.
        distribution: The problems that the read-outs of the layers are fitted on.
        **settings: Settings of `HookedModel.fit`.

    Returns:
        The model with a fitted read-out for each layer.
    """
    try:
        from transformers import GPT2Model  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise InputError(
            "GPT-2 needs the transformers library: pip install 'innerloop[hf]'"
        ) from None
    if not isinstance(backbone, GPT2Model):
        raise InputError(f"expected a transformers.GPT2Model, got {type(backbone).__name__}")
    config: Any = backbone.config

    def prompt(problem: Any) -> dict[str, Any]:
        tokens = build_alternating_prompt(problem)
        if tokens.shape[-2] > config.n_positions:
            raise InputError(
                f"a prompt of {problem.n} examples has {tokens.shape[-2]} tokens, "
                f"and this GPT-2 takes at most {config.n_positions}"
            )
        return {"inputs_embeds": read_in(tokens)}

    layers = [f"h.{k}" for k in range(config.n_layer)]
    return HookedModel.fit(backbone, distribution, prompt, layers, **settings)
