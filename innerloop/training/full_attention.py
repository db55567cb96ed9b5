"""The loss of linear attention with trainable P_l and Q_l: sampled over w*, exact over the query.

Tokens     z = (x, y); every layer applies z ← (I + P_l H_l Q_l) z to all tokens, with
           H_l = (1/n) Σ z zᵀ over the context. All layers depend only on H_0 = [I; w*ᵀ] G [I, w*]
Map        T_0 = I, T_{l+1} = T_l + P_l T_l S_l, S_l = H_0 T_lᵀ Q_l T_l, so that z_L = T_L z_0
Loss       the query is (x_q, 0), so the loss is E‖Cᵀ(t + w*)‖², where t is the first d entries of
           the last row of T_L and Σ = CCᵀ
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.parameters import parameter
from innerloop.training import kernel
from innerloop.training.kernel import Prompts
from innerloop.training.linear_attention import GaussianPrompts, draw_held_out, summarise_losses
from innerloop.training.stacks import FullStack


class FullSampledLoss(GaussianPrompts):
    """The loss averaged over sampled Gram matrices and w*.

    Here labels come before covariates, so that the first row of T_L is the one in the loss.
    """

    batch: int = parameter(20_000, "prompts in a batch", least=1)

    def draw(self, generator: torch.Generator) -> Prompts:
        d, gram = self.d, self.draw_gram(self.batch, generator)
        normals = torch.randn(d, self.batch, generator=generator, dtype=self.dtype)
        truth = self.factor.to(self.dtype) @ normals  # Cᵀw*, for whitened covariates
        H = gram.new_empty(d + 1, d + 1, self.batch)
        H[1:, 1:] = gram
        H[1:, 0] = H[0, 1:] = (gram * truth).sum(1)
        H[0, 0] = (H[0, 1:] * truth).sum(0)
        mass = gram.new_full((d + 1, 1), 1 / self.batch)
        mass[0] = 0.0  # the query has no label
        return Prompts(H, mass, torch.cat([torch.zeros_like(truth[:1]), -truth])[None])

    def loss(self, model: FullStack, batch: Prompts) -> Float[Tensor, ""]:
        order = torch.tensor([self.d, *range(self.d)], device=model.P.device)
        P, Q = (weights[:, order][:, :, order].double() for weights in (model.P, model.Q))
        C = torch.block_diag(self.root.new_ones(1, 1), self.root).to(P)
        P = torch.linalg.solve_triangular(C, P @ C, upper=False).to(self.dtype)
        Q = (C.mT @ Q @ C).to(self.dtype)
        identity = torch.eye(self.d + 1, dtype=self.dtype, device=P.device)
        return kernel.loss(batch, Q, identity, gamma=list(P), code=self.kernel)

    def evaluate(self, model: FullStack) -> dict[str, float]:
        """Return the loss on held-out prompts and its standard error."""
        return summarise_losses([self.loss(model, part) for part in draw_held_out(self, model)])
