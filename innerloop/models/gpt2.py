"""The `transformers` library's GPT-2 on prompts of numbers: a map in, the network, a map out.

Softmax attention, layer normalisation, learned positions, GELU. A token is what a prompt holds, not
a word; the answer at a token is a linear function of its last hidden state, or, with a query
read-out, the product of such a function, β̂, with the token's x.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.errors import InputError, MissingLibrary


class GPT2(nn.Module):
    """Without dropout, so that a training can be repeated.

    `query`: the read-out is one, and x is the first so many numbers of a token.
    """

    def __init__(
        self,
        inputs: int,
        *,
        width: int,
        layers: int,
        heads: int,
        tokens: int,
        query: int | None = None,
    ) -> None:
        super().__init__()
        if width % heads:
            raise InputError(f"width must be a multiple of heads={heads}, got {width}")
        library = _library()
        config = library.GPT2Config(
            vocab_size=1,
            n_positions=tokens,
            n_embd=width,
            n_layer=layers,
            n_head=heads,
            # The same function as GPT-2's own, in one kernel.
            activation_function="gelu_pytorch_tanh",
            bos_token_id=None,
            eos_token_id=None,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            use_cache=False,
        )
        self.tokens, self.query = tokens, query
        self.read_in = nn.Linear(inputs, width)
        self.network = library.GPT2Model(config)
        self.read_out = nn.Linear(width, query or 1)

    def forward(
        self, prompt: Float[Tensor, "batch tokens inputs"]
    ) -> Float[Tensor, "batch tokens"]:
        """The answer at every token."""
        return self._answers(prompt, self.read(prompt))

    def read(
        self, prompt: Float[Tensor, "batch tokens inputs"]
    ) -> Float[Tensor, "batch tokens read"]:
        """What is read out at every token: the answer, or β̂ of a query read-out."""
        return self.read_out(self._run(prompt).last_hidden_state)

    def layers(self, prompt: Tensor) -> Float[Tensor, "layers batch tokens"]:
        """The answers before the first layer, and after each, as if it were the last."""
        return self._answers(prompt, self.read_out(torch.stack(self.streams(prompt))))

    def streams(self, prompt: Tensor) -> list[Float[Tensor, "batch tokens width"]]:
        """What is read out before the first layer, and after each: normalised as after the last."""
        found = self._run(prompt, output_hidden_states=True)
        # The library has normalised the last of them already.
        hidden = [self.network.ln_f(state) for state in found.hidden_states[:-1]]
        return [*hidden, found.last_hidden_state]

    def _answers(self, prompt: Tensor, read: Tensor) -> Tensor:
        if self.query is None:
            return read.squeeze(-1)
        return (read * prompt[..., : self.query]).sum(dim=-1)

    def _run(self, prompt: Tensor, **wanted: bool) -> Any:
        if prompt.shape[-2] > self.tokens:
            raise InputError(f"at most {self.tokens} tokens have positions, got {prompt.shape[-2]}")
        return self.network(inputs_embeds=self.read_in(prompt), **wanted)


def _library() -> Any:
    """Imported late: it takes seconds, and few need it."""
    try:
        import transformers
    except ImportError:
        raise MissingLibrary(
            "GPT-2 is the transformers library's: pip install 'innerloop[hf]'"
        ) from None
    return transformers
