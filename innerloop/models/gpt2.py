"""The GPT-2 of the `transformers` library, with linear maps from and to vectors of numbers.

The network has softmax or ReLU attention, layer normalisation, learned positions and GELU. A token
is a vector of numbers, not a word. The prediction at a token is a linear function of its last
hidden state. With a query read-out, it is ⟨β̂, x⟩, where β̂ is a linear function of the hidden
state and x belongs to the token. With ReLU attention (Lin et al. 2023), the weight of token j at
the i-th token is

    max(0, ⟨q, k_j⟩ / √r) / i
"""

from __future__ import annotations

import copy
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.errors import InputError, MissingLibraryError


class GPT2(nn.Module):
    """GPT-2 without dropout, so that a training run can be repeated.

    Args:
        inputs: Numbers of a token.
        width: Width of the hidden states, a multiple of `heads`.
        layers: Number of layers.
        heads: Heads of each layer.
        tokens: Largest number of tokens of a prompt.
        query: Use a query read-out, where x is the first `query` numbers of a token.
        outputs: Numbers that are read out of every token. With 1, results have no dimension for
            outputs.
        attention: "softmax" or "relu".
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
        outputs: int = 1,
        attention: Literal["softmax", "relu"] = "softmax",
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
            # GPT-2's activation function, computed by a single kernel.
            activation_function="gelu_pytorch_tanh",
            bos_token_id=None,
            eos_token_id=None,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            use_cache=False,
            **({"attn_implementation": _register_relu()} if attention == "relu" else {}),
        )
        self.tokens, self.query, self.outputs = tokens, query, outputs
        self.read_in = nn.Linear(inputs, width)
        self.network = library.GPT2Model(config)
        self.read_out = nn.Linear(width, query or outputs)

    def forward(self, prompt: Float[Tensor, "batch tokens inputs"]) -> Float[Tensor, ...]:
        """Return the prediction at every token: batch × tokens, or batch × tokens × outputs."""
        return self._predict(prompt, self.read(prompt))

    def read(
        self, prompt: Float[Tensor, "batch tokens inputs"]
    ) -> Float[Tensor, "batch tokens read"]:
        """Return the linear read-out of every token: the prediction, or β̂ with a query read-out."""
        return self.read_out(self._run(prompt).last_hidden_state)

    def extend(
        self, cache: Any, tokens: Float[Tensor, "batch tokens inputs"]
    ) -> tuple[Float[Tensor, ...], Any]:
        """Return the predictions at further tokens and the new cache; `cache` itself does not
        change.

        Pass None as the cache before the first token.
        """
        if cache is not None:
            cache = copy.copy(cache)
            cache.layers = [copy.copy(layer) for layer in cache.layers]
        seen = 0 if cache is None else cache.get_seq_length()
        self._check_length(seen + tokens.shape[-2])
        done = self.network(
            inputs_embeds=self.read_in(tokens), past_key_values=cache, use_cache=True
        )
        return self._predict(tokens, self.read_out(done.last_hidden_state)), done.past_key_values

    def predict_layers(self, prompt: Tensor) -> Float[Tensor, "layers batch ..."]:
        """Apply the read-out before the first layer and after each layer."""
        return self._predict(prompt, self.read_out(torch.stack(self.compute_streams(prompt))))

    def compute_streams(self, prompt: Tensor) -> list[Float[Tensor, "batch tokens width"]]:
        """Compute the streams before the first layer and after each layer, with the final layer
        norm."""
        outputs = self._run(prompt, output_hidden_states=True)
        # The library has already normalised the last one.
        hidden = [self.network.ln_f(state) for state in outputs.hidden_states[:-1]]
        return [*hidden, outputs.last_hidden_state]

    def _predict(self, prompt: Tensor, read: Tensor) -> Tensor:
        if self.query is None:
            return read.squeeze(-1) if self.outputs == 1 else read
        return (read * prompt[..., : self.query]).sum(dim=-1)

    def _run(self, prompt: Tensor, **options: bool) -> Any:
        self._check_length(prompt.shape[-2])
        return self.network(inputs_embeds=self.read_in(prompt), **options)

    def _check_length(self, tokens: int) -> None:
        if tokens > self.tokens:
            raise InputError(f"this GPT-2 has positions for {self.tokens} tokens, got {tokens}")


def _import_transformers() -> Any:
    """Import `transformers` on first use, because the import takes seconds."""
    try:
        import transformers
    except ImportError:
        raise MissingLibraryError(
            "GPT-2 needs the transformers library: pip install 'innerloop[hf]'"
        ) from None
    return transformers


def _register_relu() -> str:
    """Register ReLU attention with the library, and return its registered name."""
    library, name = _import_transformers(), "innerloop_relu"
    library.AttentionInterface.register(name, attend_by_relu)
    # These masks are added to scores: a hidden token's score falls below 0, where ReLU returns 0.
    library.AttentionMaskInterface.register(name, library.masking_utils.eager_mask)
    return name


def attend_by_relu(
    module: nn.Module,
    query: Float[Tensor, "batch heads tokens rank"],
    key: Float[Tensor, "batch heads keys rank"],
    value: Float[Tensor, "batch heads keys rank"],
    attention_mask: Float[Tensor, ...] | None,
    scaling: float | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor]:
    """Compute attention with weights max(0, score) / number of visible tokens."""
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if attention_mask is None:
        visible: float | Tensor = float(key.shape[-2])
    else:
        scores = scores + attention_mask
        visible = (attention_mask == 0).sum(dim=-1, keepdim=True)
    weights = scores.relu() / visible
    return (weights @ value).transpose(1, 2), weights
