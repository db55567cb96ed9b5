"""The `transformers` library's GPT-2 on prompts of numbers: a map in, the network, a map out.

Softmax attention, layer normalisation, learned positions, GELU. A token is a vector of numbers, not
a word; the prediction at a token is a linear function of its last hidden state, or, with a query
read-out, the product of such a function, β̂, with the token's x.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.errors import InputError, MissingLibraryError


class GPT2(nn.Module):
    """GPT-2 without dropout, so that a training run can be repeated.

    `query`: use a query read-out, where x is the first `query` numbers of a token.
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
        library = _import_transformers()
        config = library.GPT2Config(
            vocab_size=1,
            n_positions=tokens,
            n_embd=width,
            n_layer=layers,
            n_head=heads,
            # GPT-2's own activation, in one kernel.
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
        """Predict at every token."""
        return self._predict(prompt, self.read(prompt))

    def read(
        self, prompt: Float[Tensor, "batch tokens inputs"]
    ) -> Float[Tensor, "batch tokens read"]:
        """Read out every token: the prediction, or β̂ of a query read-out."""
        return self.read_out(self._run(prompt).last_hidden_state)

    def predict_layers(self, prompt: Tensor) -> Float[Tensor, "layers batch tokens"]:
        """Predict before the first layer and after each, as if it were the last."""
        return self._predict(prompt, self.read_out(torch.stack(self.compute_streams(prompt))))

    def compute_streams(self, prompt: Tensor) -> list[Float[Tensor, "batch tokens width"]]:
        """Compute the streams before the first layer and after each, normalised as the last."""
        outputs = self._run(prompt, output_hidden_states=True)
        # The library has already normalised the last one.
        hidden = [self.network.ln_f(state) for state in outputs.hidden_states[:-1]]
        return [*hidden, outputs.last_hidden_state]

    def _predict(self, prompt: Tensor, read: Tensor) -> Tensor:
        if self.query is None:
            return read.squeeze(-1)
        return (read * prompt[..., : self.query]).sum(dim=-1)

    def _run(self, prompt: Tensor, **options: bool) -> Any:
        if prompt.shape[-2] > self.tokens:
            raise InputError(
                f"this GPT-2 has positions for {self.tokens} tokens, got {prompt.shape[-2]}"
            )
        return self.network(inputs_embeds=self.read_in(prompt), **options)


def _import_transformers() -> Any:
    """Import `transformers` on first use: it takes seconds, and few commands need it."""
    try:
        import transformers
    except ImportError:
        raise MissingLibraryError(
            "GPT-2 needs the transformers library: pip install 'innerloop[hf]'"
        ) from None
    return transformers
