"""Every claim rejects the falsified forms that it declares, and its evidence is plain data."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from remembered import remembering

import innerloop
from innerloop.claims.base import Claim
from innerloop.claims.evidence import Evidence
from innerloop.claims.loading import load_claims, select_claims
from innerloop.claims.sources import load_sources, load_statements
from innerloop.errors import InputError
from innerloop.testing import check_claim
from innerloop.testing.claims import check_falsified_data, is_judged_apart

CLAIMS = {id: claim for id, claim in load_claims().items() if not claim.original}
"""Restatements share the check of their original."""
NOT_YET_JUDGED_APART = [
    "ahn2023.distorted-view",
    "ahn2023.figure-1",
    "ahn2023.figure-2",
    "ahn2023.figure-3",
    "ahn2023.figure-4",
    "ahn2023.gdpp",
    "ahn2023.lemma-10",
    "ahn2023.lemma-6",
    "ahn2023.lemma-7",
    "ahn2023.lemma-8",
    "ahn2023.lemma-9",
    "ahn2023.moments-16-21",
    "ahn2023.theorem-1",
    "ahn2023.theorem-3",
    "ahn2023.theorem-4",
    "ahn2023.theorem-5",
    "liu2025.corollary-D.1",
    "liu2025.corollary-E.1",
    "liu2025.eq-4.3",
    "liu2025.figure-1a",
    "liu2025.figure-1b",
    "liu2025.figure-1c",
    "liu2025.lemma-1",
    "liu2025.lemma-2",
    "liu2025.lemma-3",
    "liu2025.lemma-4",
    "liu2025.proposition-1",
    "liu2025.proposition-2",
    "liu2025.theorem-4.1",
    "liu2025.theorem-5.1",
    "liu2025.theorem-5.2",
    "liu2025.theorem-D.1",
    "liu2025.theorem-E.1",
    "qliu2025.definition-masks",
    "qliu2025.lemma-8",
    "qliu2025.lipschitz",
    "qliu2025.proposition-6",
    "qliu2025.theorem-7",
    "yang2025.bai.theorem-1",
    "yang2025.fu.best-match",
    "yang2025.fu.convergence",
    "yang2025.fu.ill-conditioned",
    "yang2025.fu.lstm",
    "yang2025.fu.newton",
    "yang2025.fu.rates",
    "yang2025.he.em-steps",
    "yang2025.he.gmm",
    "yang2025.he.minimax",
    "yang2025.he.pca",
    "yang2025.jin.theorem-3.1",
    "yang2025.jin.theorem-3.2",
    "yang2025.jin.theorem-3.3",
    "yang2025.lin.theorem-10",
    "yang2025.lin.theorem-12",
    "yang2025.lin.theorem-8",
    "yang2025.wu.theorem-1",
]
"""Claims whose parts have no data declared yet on which they must say no."""


@pytest.mark.parametrize("id", CLAIMS)
def test_a_claim(id: str, check_tiny: Callable[[Claim], Evidence]) -> None:
    """Check a claim's words, reproducibility and falsified forms at its tiny settings."""
    assert CLAIMS[id].source in load_sources()
    check_claim(CLAIMS[id], remembering(), check_tiny(CLAIMS[id]))


@pytest.mark.parametrize("id", CLAIMS)
def test_every_part_can_fail_through_its_data(id: str) -> None:
    """Those that are not moved yet may only become fewer: one that is fine leaves the list."""
    claim = CLAIMS[id]
    if id not in NOT_YET_JUDGED_APART:
        assert is_judged_apart(claim), f"{id}: declare `judge`, and forms that change its data"
        return  # test_a_claim feeds the data
    if not is_judged_apart(claim):
        return
    with pytest.raises(AssertionError):  # else it is fine: remove it from the list
        check_falsified_data(claim)


def test_the_list_of_claims_to_be_moved_is_sorted_and_has_claims_only() -> None:
    assert sorted(set(NOT_YET_JUDGED_APART)) == NOT_YET_JUDGED_APART
    assert set(NOT_YET_JUDGED_APART) <= set(CLAIMS)


@pytest.mark.slow
def test_a_claim_is_checked_from_python() -> None:
    claim = CLAIMS["ahn2023.lemma-2"]
    assert innerloop.check(claim.id) == claim.check(claim.presets["quick"])
    assert claim.check(claim.tiny, seed=1) != claim.check(claim.tiny, seed=2)
    with pytest.raises(InputError, match=r"did you mean 'ahn2023\.lemma-2'"):
        innerloop.check("ahn2023.lema-2")
    with pytest.raises(InputError, match="has no check yet"):
        innerloop.check("yang2025.he.real-data")


def test_words_choose_claims() -> None:
    assert select_claims([]) == [id for id in load_statements() if "." in id]
    assert set(CLAIMS) <= set(load_statements()), "the documents' own statements come first"
    assert select_claims(["ahn2023.theorem-1"]) == ["ahn2023.theorem-1"]
    assert select_claims(["yang2025.fu", "ahn2023.lemma-2"])[0] == "ahn2023.lemma-2"
    assert set(select_claims(["yang2025.fu"])) == {
        id for id in load_statements() if id.startswith("yang2025.fu")
    }
    with pytest.raises(InputError, match=r"did you mean 'ahn2023\.lemma-2'"):
        select_claims(["ahn2023.lema-2"])
    with pytest.raises(InputError, match="no claim"):
        select_claims([""])
