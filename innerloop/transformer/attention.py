"""Attention on the residual stream: linear, ReLU or softmax, mask and normalisation by name.

    out_i = h_i + c_i Σ_m Σ_j act(⟨Q_m h_i, K_m h_j⟩) V_m h_j        over the keys j the mask admits

Masks           all      every token is a key
                context  only the leading context tokens are (M of Ahn et al. and of Gatmiry et al.)
                causal   tokens 1 … i (Definition 4 of Q. Liu, Definition 3.1 of R. Liu et al.)
Normalisations  1/n, 1/N, 1/i, 1 for c_i: by context tokens, by all tokens, by the prefix, or none.

Softmax normalises over the keys that the mask admits. Linear attention is computed in whichever
order is cheaper: the scores (quadratic in the number of tokens) or the Gram matrix Σ V h (K h)ᵀ
(linear in it); the result is the same up to rounding. Without gradients, rows and columns of the
weights that are zero take no time, and scores are made a few at a time, and none for the future.
With gradients, heads of large rank are folded: scores from QᵀK, and values after the sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.errors import InputError
from innerloop.transformer.cache import Kept, Reading
from innerloop.transformer.head import Compiled, Head, compiled
from innerloop.transformer.layout import Layout

Kind = Literal["linear", "relu", "softmax"]
Mask = Literal["all", "context", "causal"]
Normalisation = Literal["1/n", "1/N", "1/i", "1"]
Order = Literal["scores", "gram"]
Stream = Float[Tensor, "*batch tokens width"]

_CHUNK = 64
"""Tokens per chunk of causal linear attention: scores inside a chunk, Gram matrices between."""
_SCORES = 1 << 18
"""Scores that are made at a time, without gradients: as many as a processor keeps close by."""
_WORTH_PACKING = 1 << 22
"""Multiplications by weights that take longer than finding out which of them are zero."""


class Attention(nn.Module):
    """Stacked heads of one kind. Build it from heads (`of`) or with free weights (`free`)."""

    query: Tensor
    key: Tensor
    value: Tensor
    targets: Tensor

    def __init__(
        self,
        weights: Compiled,
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
        self.given = weights.given
        self.notes = tuple(notes)
        for name in ("query", "key", "value"):
            self.register_parameter(name, nn.Parameter(getattr(weights, name), requires_grad=False))
        self.register_buffer("targets", weights.targets)

    @classmethod
    def of(
        cls,
        layout: Layout,
        heads: Sequence[Head],
        *,
        kind: Kind = "linear",
        mask: Mask = "context",
        normalisation: Normalisation | None = None,
    ) -> Attention:
        """Attention that runs these heads. The normalisation is 1/n unless given, 1 for softmax."""
        notes = [head.describe() for head in heads]
        weights, scale = compiled(layout, heads), normalisation or _usual(kind)
        return cls(weights, kind=kind, mask=mask, normalisation=scale, notes=notes)

    @classmethod
    def free(
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
        """Dense trainable weights, N(0, scale²/width): every place may be read and written."""
        for name, count in (("heads", heads), ("rank", width if rank is None else rank)):
            if count < 1:
                raise InputError(f"{name} must be at least 1, got {count}")
        deviation = scale / math.sqrt(width)
        shapes = {"query": rank or width, "key": rank or width, "value": width}
        drawn = {
            name: deviation
            * torch.randn(heads, rows, width, generator=generator, dtype=torch.float64)
            for name, rows in shapes.items()
        }
        weights = Compiled(**drawn, targets=torch.arange(width), given=(True,) * heads)
        attention = cls(weights, kind=kind, mask=mask, normalisation=normalisation or _usual(kind))
        return attention.requires_grad_(True)

    def dense(self) -> Attention:
        """The same function with trainable weights for every place that is read or written."""
        heads, rank, width = self.query.shape
        rows = max(rank, width)
        drawn = {
            name: torch.cat([weight, weight.new_zeros(heads, rows - rank, width)], dim=1)
            for name, weight in (("query", self.query), ("key", self.key))
        }
        value = self.value.new_zeros(heads, width, width).index_add(1, self.targets, self.value)
        places = torch.arange(width, device=value.device)
        weights = Compiled(**drawn, value=value, targets=places, given=(True,) * heads)
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
    def _rank(self) -> int:
        """Rows of Q, K and V of a head."""
        return self.query.shape[1] + self.key.shape[1] + self.value.shape[1]

    def forward(self, stream: Stream, context: int, order: Order | None = None) -> Stream:
        """The stream after this layer. `order` forces an order of linear attention."""
        tokens = stream.shape[-2]
        if context < 1 and (self.mask == "context" or self.normalisation == "1/n"):
            raise InputError(f"attention to the context needs context tokens, got {context}")
        keyed = stream[..., :context, :] if self.mask == "context" else stream
        lean = not _transformed() and not _differentiated(stream, self)
        if self.kind == "linear" and order is None:
            order = self.cheaper_order(tokens, keyed.shape[-2])
        by_scores = self.kind == "relu" or (self.kind == "linear" and order == "scores")
        if not lean and by_scores and 2 * self.query.shape[1] >= stream.shape[-1]:
            return self._added(stream, self._folded(stream, keyed, context))
        sparse = lean and stream.numel() * self.heads * self._rank > _WORTH_PACKING
        weight, written = _rows(self.value) if sparse else (self.value, None)
        project = _projected_sparsely if sparse else _projected
        query, key = project(stream, self.query), project(keyed, self.key)
        value = project(keyed, weight)
        if self.kind == "linear" and order == "gram":
            mixed = (
                _causal_gram(query, key, value)
                if self.mask == "causal"
                else query @ (key.mT @ value)
            )
        elif lean:
            mixed = self._mixed(query, key, value)
        else:
            mixed = self._weights(query @ key.mT) @ value
        if written is None:
            update = mixed.sum(dim=-3)
        else:
            rows = mixed.transpose(-2, -3).flatten(-2)
            update = rows.new_zeros(*rows.shape[:-1], len(self.targets))
            update.index_add_(-1, written.flatten().to(rows.device), rows)
        return self._added(stream, update * self._scale(stream, context, tokens))

    def _folded(
        self, stream: Stream, keyed: Float[Tensor, "*batch keys width"], context: int
    ) -> Tensor:
        """c_i Σ_m Σ_j act(h_iᵀQ_mᵀK_m h_j) V_m h_j, with as few and large products as can be.

        Heads stand side by side in a token, so no product needs its factors rearranged.
        """
        heads, _, width = self.query.shape
        score = self.score_matrices().to(stream.device).transpose(0, 1).flatten(1)
        sought = (stream @ score).unflatten(-1, (heads, width)).flatten(-3, -2)
        scores = (sought @ keyed.mT).unflatten(-2, (-1, heads))
        weights = scores.relu() if self.kind == "relu" else scores
        share = self._scale(stream, context, stream.shape[-2])
        if self.mask == "causal":
            share = share * scores.new_ones(scores.shape[-3], scores.shape[-1]).tril()
            share = share.unsqueeze(-2)
        weights = weights * share
        found = (weights.flatten(-3, -2) @ keyed).unflatten(-2, (-1, heads))
        return found.flatten(-2) @ self.value.to(stream.device).mT.flatten(0, 1)

    def _mixed(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Σ_j act(s_ij) v_j of every head, some heads and query tokens at a time."""
        lead, (tokens, keys) = query.shape[:-2], (query.shape[-2], key.shape[-2])
        query, key, value = (part.flatten(0, -3) for part in (query, key, value))
        mixed = value.new_empty(len(value), tokens, value.shape[-1])
        causal = self.mask == "causal"
        rows = min(tokens, _CHUNK) if causal else tokens
        heads = max(1, _SCORES // max(1, rows * keys))
        for some in (slice(first, first + heads) for first in range(0, len(query), heads)):
            for first in range(0, tokens, max(rows, 1)):
                asked = slice(first, first + rows)
                seen = slice(0, min(first + rows, keys) if causal else keys)
                weights = self._weights(query[some, asked] @ key[some, seen].mT)
                mixed[some, asked] = weights @ value[some, seen]
        return mixed.unflatten(0, lead)

    def extend(self, kept: Kept, stream: Stream) -> tuple[Stream, Kept]:
        """The new tokens after this layer, which keeps what it reads of those before them."""
        if self.mask != "causal" or self.normalisation not in ("1/i", "1"):
            raise InputError(
                "tokens can be added to a causal layer of normalisation 1/i or 1, this one has "
                f"mask {self.mask!r} and normalisation {self.normalisation!r}: run all tokens"
            )
        reading = kept.reading or self._reading(stream)
        places, score, value = reading
        rows = kept.rows.extended(stream[..., places])
        sought = (stream @ score).unflatten(-1, (self.heads, len(places)))
        # Heads and new tokens side by side: one product for each instance, not one for each head.
        scores = sought.transpose(-2, -3).flatten(-3, -2) @ rows.all.mT
        weights = self._weights(scores.unflatten(-2, (self.heads, stream.shape[-2])))
        found = (weights.flatten(-3, -2) @ rows.all).unflatten(-2, weights.shape[-3:-1])
        mixed = found.transpose(-2, -3).flatten(-2) @ value
        scale = self._scale(stream, 0, rows.length)
        return self._added(stream, mixed * scale), Kept(reading, rows)

    def _reading(self, like: Tensor) -> Reading:
        """What keys and values read of the stream, and the weights as they act on that."""
        read = (self.key != 0).any(dim=1).any(dim=0) | (self.value != 0).any(dim=1).any(dim=0)
        places = read.nonzero().squeeze(-1)
        score = (self.query.mT @ self.key[..., places]).transpose(0, 1).flatten(1)
        value = self.value[..., places].mT.flatten(0, 1)
        return Reading(*(part.to(like.device) for part in (places, score, value)))

    def _added(self, stream: Stream, update: Tensor) -> Stream:
        """The stream with what the heads found, in their targets."""
        if len(self.targets) == stream.shape[-1]:
            return stream + update
        return stream.index_add(-1, self.targets.to(stream.device), update)

    def cheaper_order(self, tokens: int, keys: int) -> Order:
        """The order of linear attention with fewer multiplications."""
        rank, out = self.query.shape[1], self.value.shape[1]
        if self.mask == "causal":
            keys_seen = min(tokens, _CHUNK)
            gram = tokens * (keys_seen * (rank + out) + 2 * rank * out)
        else:
            gram = (tokens + keys) * rank * out
        return "gram" if gram < tokens * keys * (rank + out) else "scores"

    def _weights(self, scores: Tensor) -> Tensor:
        """act(s_ij), with the keys that the causal mask forbids taken out: queries come last.

        Overwrites the scores where no gradient is taken.
        """
        queries, keys = scores.shape[-2:]
        if self.kind == "softmax":
            if self.mask == "causal":
                ones = torch.ones(queries, keys, dtype=torch.bool, device=scores.device)
                scores = scores.masked_fill(ones.triu(1 + keys - queries), -math.inf)
            return scores.softmax(dim=-1)
        if scores.requires_grad or _transformed():
            weights = scores.relu() if self.kind == "relu" else scores
            return weights.tril(keys - queries) if self.mask == "causal" else weights
        weights = scores.relu_() if self.kind == "relu" else scores
        return weights.tril_(keys - queries) if self.mask == "causal" else weights

    def _scale(self, stream: Tensor, context: int, tokens: int) -> Tensor | float:
        """c_i of a stream that ends with token number `tokens`."""
        if self.normalisation == "1/i":
            first = tokens - stream.shape[-2] + 1
            count = torch.arange(first, tokens + 1, device=stream.device, dtype=stream.dtype)
            return count.reciprocal().unsqueeze(-1)
        return {"1/n": 1 / max(context, 1), "1/N": 1 / max(tokens, 1), "1": 1.0}[self.normalisation]

    def score_matrices(self) -> Float[Tensor, "heads width width"]:
        """QᵀK of every head."""
        return self.query.mT @ self.key

    def operator_norms(self) -> tuple[float, float]:
        """max_m max(‖Q_m‖, ‖K_m‖) and Σ_m ‖V_m‖, in operator norm.

        A head whose split into Q and K was given keeps it; any other counts with the balanced
        split, for which both norms are √‖QᵀK‖, the smallest that the larger can be.
        """
        with torch.no_grad():
            # ‖QᵀK‖ = ‖RSᵀ‖ where Qᵀ and Kᵀ are R and S after orthogonal matrices: small ones.
            query, key = (torch.linalg.qr(part.mT, mode="r").R for part in (self.query, self.key))
            balanced = torch.linalg.matrix_norm(query @ key.mT, ord=2).sqrt()
            largest = torch.maximum(
                torch.linalg.matrix_norm(query, ord=2), torch.linalg.matrix_norm(key, ord=2)
            )
            given = torch.tensor(self.given, device=balanced.device)
            scores = torch.where(given, largest, balanced).max()
            value = _rows(_rows(self.value)[0].mT)[0]
            return float(scores), float(torch.linalg.matrix_norm(value, ord=2).sum())


def _transformed() -> bool:
    """Whether this is compiled, or run by torch.func: neither choices by numbers nor in place."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


def _differentiated(stream: Tensor, module: nn.Module) -> bool:
    """Whether gradients are taken through this module now."""
    taking = stream.requires_grad or any(part.requires_grad for part in module.parameters())
    return taking and torch.is_grad_enabled()


def _rows(weight: Float[Tensor, "heads rows width"]) -> tuple[Tensor, Tensor]:
    """The rows of every head that are not zero, filled up to as many for each, and which they are.

    What fills them up is zero, and no row comes twice.
    """
    used = (weight != 0).any(dim=-1)
    most = max(1, int(used.sum(dim=-1).max()))
    places = used.byte().argsort(dim=-1, descending=True, stable=True)[:, :most]
    return weight.gather(1, places.unsqueeze(-1).expand(-1, -1, weight.shape[-1])), places


def _projected_sparsely(
    stream: Stream, weight: Float[Tensor, "heads rows width"]
) -> Float[Tensor, "*batch heads tokens rows"]:
    """As `_projected`, from the places that any weight reads alone."""
    read = (weight != 0).flatten(0, 1).any(dim=0).nonzero().squeeze(-1)
    if 2 * len(read) <= weight.shape[-1]:
        stream, weight = stream.index_select(-1, read.to(stream.device)), weight[..., read]
    return _projected(stream, weight)


def _projected(
    stream: Stream, weight: Float[Tensor, "heads rows width"]
) -> Float[Tensor, "*batch heads tokens rows"]:
    """W h of every head and token. One product for all heads is many times faster than one each."""
    rows = stream @ weight.to(stream.device).flatten(0, 1).mT
    return rows.unflatten(-1, weight.shape[:2]).transpose(-2, -3)


def _causal_gram(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Σ_{j ≤ i} ⟨q_i, k_j⟩ v_j in time linear in the number of tokens, chunk by chunk."""
    tokens = query.shape[-2]
    spare = -tokens % _CHUNK
    query, key, value = (
        nn.functional.pad(part, (0, 0, 0, spare)).unflatten(-2, (-1, _CHUNK))
        for part in (query, key, value)
    )
    inside = (query @ key.mT).tril() @ value
    grams = key.mT @ value
    # Shifted, not grams.cumsum() - grams: subtracting a chunk again would let its rounding through.
    before = nn.functional.pad(grams.cumsum(dim=-3)[..., :-1, :, :], (0, 0, 0, 0, 1, 0))
    return (inside + query @ before).flatten(-3, -2)[..., :tokens, :]


def _usual(kind: Kind) -> Normalisation:
    """What a source that says nothing means: softmax already divides."""
    return "1" if kind == "softmax" else "1/n"


def check_setting(kind: str, mask: str, normalisation: str) -> None:
    """Refuse a kind, mask or normalisation that does not exist, or that do not go together."""
    for name, value, allowed in (
        ("kind", kind, get_args(Kind)),
        ("mask", mask, get_args(Mask)),
        ("normalisation", normalisation, get_args(Normalisation)),
    ):
        if value not in allowed:
            raise InputError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
    if normalisation == "1/i" and mask != "causal":
        raise InputError(f"normalisation 1/i needs the causal mask, got mask {mask!r}")
    if kind == "softmax" and normalisation != "1":
        raise InputError(f"softmax is normalised by itself: normalisation 1, got {normalisation!r}")
