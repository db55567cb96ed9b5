"""Attention on the residual stream: linear, ReLU or softmax, with several masks and normalisations.

    out_i = h_i + c_i Σ_m Σ_j act(⟨Q_m h_i, K_m h_j⟩) V_m h_j        over the keys j the mask admits

Masks           all      every token is a key
                context  only the leading context tokens are (M of Ahn et al. and of Gatmiry et al.)
                causal   tokens 1 … i (Definition 4 of Q. Liu, Definition 3.1 of R. Liu et al.)
Normalisations  c_i is 1/n (n context tokens), 1/N (N tokens), 1/i (i tokens in the prefix), or 1.

Softmax normalises over the keys that the mask admits. Linear attention is computed in the cheaper
of two orders: scores first (quadratic in the number of tokens), or the Gram matrix Σ V h (K h)ᵀ
first (linear in this number). The result is the same up to rounding. Without gradients, zero rows
and columns of the weights are skipped, scores are computed in chunks, and scores of future tokens
are not computed. With gradients, heads of large rank are folded: scores are computed from QᵀK, and
V is applied after the sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.deprecation import RenamedMethod
from innerloop.errors import InputError
from innerloop.transformer import projecting
from innerloop.transformer.attention_settings import (
    Kind,
    Mask,
    Normalisation,
    Order,
    check_setting,
    choose_normalisation,
)
from innerloop.transformer.cache import GatheredStream, LayerCache, Reading
from innerloop.transformer.gradients import is_transformed, needs_gradient
from innerloop.transformer.head import Head, HeadWeights, compile_heads
from innerloop.transformer.layout import Layout
from innerloop.transformer.norms import measure_norms
from innerloop.transformer.remembering import remember

Stream = Float[Tensor, "*batch tokens width"]

_SCORES_PER_CHUNK = 1 << 18
"""Number of scores computed at a time without gradients; they fit into a processor's cache."""
_MIN_PACKING_COST = 1 << 22
"""Number of multiplications by weights from which skipping zero weights saves time."""


class Attention(nn.Module):
    """An attention layer: stacked heads of one kind, added to the stream.

    Use `from_heads` or `with_random_weights` to make one.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    targets: Tensor

    def __init__(
        self,
        weights: HeadWeights,
        *,
        kind: Kind,
        mask: Mask,
        normalisation: Normalisation,
        notes: Sequence[str] = (),
    ) -> None:
        super().__init__()
        check_setting(kind, mask, normalisation)
        self.kind: Kind = kind
        self.mask: Mask = mask
        self.normalisation: Normalisation = normalisation
        self.explicit_split = weights.explicit_split
        self.notes = tuple(notes)
        for name in ("query", "key", "value"):
            self.register_parameter(name, nn.Parameter(getattr(weights, name), requires_grad=False))
        self.register_buffer("targets", weights.targets)

    @classmethod
    def from_heads(
        cls,
        layout: Layout,
        heads: Sequence[Head],
        *,
        kind: Kind = "linear",
        mask: Mask = "context",
        normalisation: Normalisation | None = None,
    ) -> Attention:
        """Build attention from heads.

        Args:
            layout: The registers that the heads refer to.
            heads: The heads of the layer.
            kind: "linear", "relu" or "softmax".
            mask: The keys of each query token: "all", "context" or "causal".
            normalisation: "1/n", "1/N", "1/i" or "1"; None is "1" for softmax, else "1/n".
        """
        notes = [head.describe() for head in heads]
        weights, scale = compile_heads(layout, heads), normalisation or choose_normalisation(kind)
        return cls(weights, kind=kind, mask=mask, normalisation=scale, notes=notes)

    @classmethod
    def with_random_weights(
        cls,
        width: int,
        heads: int,
        *,
        kind: Kind = "linear",
        mask: Mask = "context",
        normalisation: Normalisation | None = None,
        rank: int | None = None,
        scale: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> Attention:
        """Build attention with trainable weights N(0, scale²/width).

        Heads can read and write every place of the stream. `rank` is the number of rows of Q and K
        of a head; None means `width`.
        """
        for name, count in (("heads", heads), ("rank", width if rank is None else rank)):
            if count < 1:
                raise InputError(f"{name} must be at least 1, got {count}")
        deviation = scale / math.sqrt(width)
        shapes = {"query": rank or width, "key": rank or width, "value": width}
        matrices = {
            name: deviation
            * torch.randn(heads, rows, width, generator=generator, dtype=torch.float64)
            for name, rows in shapes.items()
        }
        weights = HeadWeights(
            **matrices, targets=torch.arange(width), explicit_split=(True,) * heads
        )
        attention = cls(
            weights,
            kind=kind,
            mask=mask,
            normalisation=normalisation or choose_normalisation(kind),
        )
        return attention.requires_grad_(True)

    def to_dense(self) -> Attention:
        """Return the same function with trainable weights that read and write every place."""
        heads, rank, width = self.query.shape
        rows = max(rank, width)
        matrices = {
            name: torch.cat([weight, weight.new_zeros(heads, rows - rank, width)], dim=1)
            for name, weight in (("query", self.query), ("key", self.key))
        }
        value = self.value.new_zeros(heads, width, width).index_add(1, self.targets, self.value)
        places = torch.arange(width, device=value.device)
        weights = HeadWeights(
            **matrices, value=value, targets=places, explicit_split=(True,) * heads
        )
        return Attention(
            weights,
            kind=self.kind,
            mask=self.mask,
            normalisation=self.normalisation,
            notes=self.notes,
        ).requires_grad_(True)

    @property
    def heads(self) -> int:
        return self.query.shape[0]

    @property
    def _projection_rows(self) -> int:
        """The number of rows of Q, K and V of a head, added up."""
        return self.query.shape[1] + self.key.shape[1] + self.value.shape[1]

    def forward(self, stream: Stream, context: int, order: Order | None = None) -> Stream:
        """Return the stream after this layer.

        Args:
            stream: The tokens.
            context: Number of leading tokens that are context.
            order: The order in which linear attention is computed; None chooses the cheaper one.
        """
        tokens = stream.shape[-2]
        if context < 1 and (self.mask == "context" or self.normalisation == "1/n"):
            raise InputError(
                f"attention to the context needs at least one context token, got {context}"
            )
        keys = stream[..., :context, :] if self.mask == "context" else stream
        inference = not is_transformed() and not needs_gradient(stream, self)
        if self.kind == "linear" and order is None:
            order = self.choose_order(tokens, keys.shape[-2])
        by_scores = self.kind == "relu" or (self.kind == "linear" and order == "scores")
        if not inference and by_scores and 2 * self.query.shape[1] >= stream.shape[-1]:
            return self._add_update(stream, self._attend_folded(stream, keys, context))
        sparse = (
            inference and stream.numel() * self.heads * self._projection_rows > _MIN_PACKING_COST
        )
        weight, targets = projecting.nonzero_rows(self.value) if sparse else (self.value, None)
        apply = projecting.project_sparse if sparse else projecting.project
        query, key = apply(stream, self.query), apply(keys, self.key)
        value = apply(keys, weight)
        if self.kind == "linear" and order == "gram":
            mixed = (
                projecting.causal_gram(query, key, value)
                if self.mask == "causal"
                else query @ (key.mT @ value)
            )
        elif inference:
            mixed = self._attend_in_chunks(query, key, value)
        else:
            mixed = self._attention_weights(query @ key.mT) @ value
        if targets is None:
            update = mixed.sum(dim=-3)
        else:
            rows = mixed.transpose(-2, -3).flatten(-2)
            update = rows.new_zeros(*rows.shape[:-1], len(self.targets))
            update.index_add_(-1, targets.flatten().to(rows.device), rows)
        return self._add_update(stream, update * self._scale(stream, context, tokens))

    def _attend_folded(
        self, stream: Stream, keys: Float[Tensor, "*batch keys width"], context: int
    ) -> Tensor:
        """Compute c_i Σ_m Σ_j act(h_iᵀQ_mᵀK_m h_j) V_m h_j by few large products.

        The heads of a token are adjacent in memory, so that no factor has to be copied into another
        order.
        """
        heads, _, width = self.query.shape
        score = self.score_matrices().to(stream.device).transpose(0, 1).flatten(1)
        queries = (stream @ score).unflatten(-1, (heads, width)).flatten(-3, -2)
        scores = (queries @ keys.mT).unflatten(-2, (-1, heads))
        weights = scores.relu() if self.kind == "relu" else scores
        scale = self._scale(stream, context, stream.shape[-2])
        if self.mask == "causal":
            scale = scale * scores.new_ones(scores.shape[-3], scores.shape[-1]).tril()
            scale = scale.unsqueeze(-2)
        weights = weights * scale
        sums = (weights.flatten(-3, -2) @ keys).unflatten(-2, (-1, heads))
        return sums.flatten(-2) @ self.value.to(stream.device).mT.flatten(0, 1)

    def _attend_in_chunks(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Compute Σ_j act(s_ij) v_j of every head, for some heads and query tokens at a time."""
        lead, (tokens, keys) = query.shape[:-2], (query.shape[-2], key.shape[-2])
        query, key, value = (part.flatten(0, -3) for part in (query, key, value))
        mixed = value.new_empty(len(value), tokens, value.shape[-1])
        causal = self.mask == "causal"
        rows = min(tokens, projecting.CHUNK) if causal else tokens
        heads = max(1, _SCORES_PER_CHUNK // max(1, rows * keys))
        for chunk in (slice(first, first + heads) for first in range(0, len(query), heads)):
            for first in range(0, tokens, max(rows, 1)):
                queries = slice(first, first + rows)
                visible = slice(0, min(first + rows, keys) if causal else keys)
                weights = self._attention_weights(query[chunk, queries] @ key[chunk, visible].mT)
                mixed[chunk, queries] = weights @ value[chunk, visible]
        return mixed.unflatten(0, lead)

    def extend(self, cache: LayerCache, stream: Stream) -> tuple[Stream, LayerCache]:
        """Run this layer on new tokens after the cached ones; return stream and new cache."""
        self._check_extendable()
        reading = cache.reading or self._make_reading(stream)
        rows = cache.rows.extend(stream[..., reading.places])
        return self._attend_to_rows(reading, rows.tensor, stream), LayerCache(reading, rows)

    def _check_extendable(self) -> None:
        """Raise `InputError` for a layer in which tokens depend on later ones."""
        if self.mask != "causal" or self.normalisation not in ("1/i", "1"):
            raise InputError(
                "tokens can be added to a causal layer of normalisation 1/i or 1, this one has "
                f"mask {self.mask!r} and normalisation {self.normalisation!r}: run all tokens"
            )

    def _attend_to_rows(self, reading: Reading, rows: Tensor, stream: Stream) -> Stream:
        """Run this layer on the last tokens; `rows` are the places that it reads of all tokens."""
        _, score, value = reading
        queries = (stream @ score).unflatten(-1, (self.heads, rows.shape[-1]))
        # Heads and new tokens share a dimension: one product per instance instead of one per head.
        scores = queries.transpose(-2, -3).flatten(-3, -2) @ rows.mT
        weights = self._attention_weights(scores.unflatten(-2, (self.heads, stream.shape[-2])))
        sums = (weights.flatten(-3, -2) @ rows).unflatten(-2, weights.shape[-3:-1])
        mixed = sums.transpose(-2, -3).flatten(-2) @ value
        return self._add_update(stream, mixed * self._scale(stream, 0, rows.shape[-2]))

    def forward_last(self, last: Stream, gathered: GatheredStream) -> Stream:
        """Run this layer on the last token, and overwrite its row in the gathered stream.

        Layers that read the same places share the gathered stream.
        """
        self._check_extendable()
        weights = (self.query, self.key, self.value)
        reading = remember(self, "reading", weights, lambda: self._make_reading(last))
        rows = gathered.gather(reading.places)
        rows[..., -1:, :] = last[..., reading.places]
        return self._attend_to_rows(reading, rows, last)

    def places_read(self) -> set[int]:
        """Return the places of the stream that keys or values read."""
        weights = (self.key, self.value)
        return remember(self, "read", weights, lambda: set(self._key_value_places().tolist()))

    def places_written(self) -> set[int]:
        """Return the places of the stream to which values are added."""

        def find() -> set[int]:
            used = (self.value != 0).any(dim=-1).any(dim=0)
            return set(self.targets[used].tolist())

        return remember(self, "written", (self.value, self.targets), find)

    def _key_value_places(self) -> Tensor:
        read = (self.key != 0).any(dim=1).any(dim=0) | (self.value != 0).any(dim=1).any(dim=0)
        return read.nonzero().squeeze(-1)

    def _make_reading(self, like: Tensor) -> Reading:
        """Return the places that keys and values read, and the weights restricted to them."""
        places = self._key_value_places()
        score = (self.query.mT @ self.key[..., places]).transpose(0, 1).flatten(1)
        value = self.value[..., places].mT.flatten(0, 1)
        return Reading(*(part.to(like.device) for part in (places, score, value)))

    def _add_update(self, stream: Stream, update: Tensor) -> Stream:
        """Add the heads' output to the stream at their target places."""
        if len(self.targets) == stream.shape[-1]:
            return stream + update
        return stream.index_add(-1, self.targets.to(stream.device), update)

    def choose_order(self, tokens: int, keys: int) -> Order:
        """Choose the order of linear attention with fewer multiplications."""
        rank, out = self.query.shape[1], self.value.shape[1]
        if self.mask == "causal":
            visible = min(tokens, projecting.CHUNK)
            gram = tokens * (visible * (rank + out) + 2 * rank * out)
        else:
            gram = (tokens + keys) * rank * out
        return "gram" if gram < tokens * keys * (rank + out) else "scores"

    def _attention_weights(self, scores: Tensor) -> Tensor:
        """Compute act(s_ij) without the keys that the causal mask excludes.

        The queries are the last tokens. The scores are overwritten if no gradient is needed.
        """
        queries, keys = scores.shape[-2:]
        causal = self.mask == "causal" and queries > 1  # the last token attends to all tokens
        if self.kind == "softmax":
            if causal:
                ones = torch.ones(queries, keys, dtype=torch.bool, device=scores.device)
                scores = scores.masked_fill(ones.triu(1 + keys - queries), -math.inf)
            return scores.softmax(dim=-1)
        if scores.requires_grad or is_transformed():
            weights = scores.relu() if self.kind == "relu" else scores
            return weights.tril(keys - queries) if causal else weights
        weights = scores.relu_() if self.kind == "relu" else scores
        return weights.tril_(keys - queries) if causal else weights

    def _scale(self, stream: Tensor, context: int, tokens: int) -> Tensor | float:
        """Return the factors c_i for a stream whose last token is number `tokens` of the prompt."""
        if self.normalisation == "1/i":
            first = tokens - stream.shape[-2] + 1
            count = torch.arange(first, tokens + 1, device=stream.device, dtype=stream.dtype)
            return count.reciprocal().unsqueeze(-1)
        return {"1/n": 1 / max(context, 1), "1/N": 1 / max(tokens, 1), "1": 1.0}[self.normalisation]

    def score_matrices(self) -> Float[Tensor, "heads width width"]:
        """Return QᵀK of every head."""
        return self.query.mT @ self.key

    def operator_norms(self) -> tuple[float, float]:
        """Return max_m max(‖Q_m‖, ‖K_m‖) and Σ_m ‖V_m‖, in operator norm.

        If a head was defined by explicit factors Q and K, their norms count. Otherwise the balanced
        split counts: both its norms are √‖QᵀK‖, the least possible value of the larger norm.
        """
        return measure_norms(self.query, self.key, self.value, self.explicit_split)

    of = RenamedMethod("from_heads")
