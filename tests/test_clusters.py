"""Scores of clusters without names agree with scikit-learn's; losses ignore names and signs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from innerloop.errors import InputError
from innerloop.recipes.clusters import (
    adjusted_rand_index,
    count_pairs,
    mutual_information,
    score_clusters,
)
from innerloop.recipes.points import least_over_names, least_over_signs


def draw_partitions() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Random pairs, and the degenerate ones: one cluster, all apart, equal up to names."""
    generator = torch.Generator().manual_seed(0)

    def draw(classes: int, n: int) -> torch.Tensor:
        return torch.randint(classes, (5, n), generator=generator)

    pairs = [(draw(k, n), draw(m, n)) for n, k, m in ((7, 2, 3), (12, 4, 4), (30, 3, 2), (2, 2, 2))]
    whole, apart = torch.zeros(5, 6, dtype=torch.int64), torch.arange(6).expand(5, 6)
    return [*pairs, (whole, whole), (whole, apart), (apart, apart), (apart % 3, (apart + 1) % 3)]


@pytest.mark.parametrize("case", range(8))
def test_scores_are_those_of_scikit_learn(case: int) -> None:
    one, other = draw_partitions()[case]
    table = count_pairs(one, other)
    expected = [adjusted_rand_score(a, b) for a, b in zip(one, other, strict=True)]
    np.testing.assert_allclose(adjusted_rand_index(table).numpy(), expected, atol=1e-12)
    expected = [normalized_mutual_info_score(a, b) for a, b in zip(one, other, strict=True)]
    np.testing.assert_allclose(mutual_information(table).numpy(), expected, atol=1e-12)


def test_wrong_points_are_counted_over_the_best_names() -> None:
    clouds = torch.tensor([[0, 0, 0, 1, 1, 2]])
    found = torch.tensor([[2, 2, 1, 0, 0, 1]])
    assert score_clusters(found, clouds)["wrong"] == pytest.approx(1 / 6)
    assert score_clusters(clouds, clouds) == pytest.approx({"ari": 1, "nmi": 1, "wrong": 0})
    with pytest.raises(InputError, match="numbered from 0"):
        score_clusters(-found, clouds)


def test_cross_entropy_is_least_over_all_names() -> None:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(4, 9, 3, generator=generator, dtype=torch.float64)
    labels = torch.randint(3, (4, 9), generator=generator)
    tried = [
        torch.nn.functional.cross_entropy(
            logits.mT, torch.tensor(order)[labels], reduction="none"
        ).mean(dim=-1)
        for order in itertools.permutations(range(3))
    ]
    torch.testing.assert_close(least_over_names(logits, labels), torch.stack(tried).amin(dim=0))
    renamed = torch.tensor([2, 0, 1])[labels]
    torch.testing.assert_close(least_over_names(logits, labels), least_over_names(logits, renamed))


def test_a_direction_has_no_sign() -> None:
    generator = torch.Generator().manual_seed(2)
    guess, truth = torch.randn(2, 6, 2, 4, generator=generator, dtype=torch.float64)
    tried = [
        (guess - torch.tensor(signs)[:, None] * truth).square().sum(dim=(-2, -1))
        for signs in itertools.product((1.0, -1.0), repeat=2)
    ]
    torch.testing.assert_close(least_over_signs(guess, truth), torch.stack(tried).amin(dim=0))
