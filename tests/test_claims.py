"""Every claim rejects the falsified forms that it declares, and its evidence is plain data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from remembered import remembering

import innerloop
from innerloop.claims.base import Claim
from innerloop.claims.evidence import Evidence
from innerloop.claims.loading import load_claim_entries, load_claims, select_claims
from innerloop.claims.sources import load_sources, load_statements
from innerloop.errors import InputError
from innerloop.testing import check_claim

CLAIMS = {id: claim for id, claim in load_claims().items() if not claim.original}
"""Restatements share the check of their original."""


@pytest.mark.parametrize("id", CLAIMS)
def test_a_claim(id: str, check_tiny: Callable[[Claim], Evidence]) -> None:
    """Check a claim's words, reproducibility and falsified forms at its tiny settings."""
    assert CLAIMS[id].source in load_sources()
    check_claim(CLAIMS[id], remembering(), check_tiny(CLAIMS[id]))


def test_a_claim_is_checked_from_python(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = CLAIMS["ahn2023.lemma-2"]
    monkeypatch.setitem(cast(dict[str, Any], claim.presets), "quick", claim.tiny)
    assert innerloop.check(claim.id) == claim.check(claim.presets["quick"])
    assert claim.check(claim.tiny, seed=1) != claim.check(claim.tiny, seed=2)
    with pytest.raises(InputError, match=r"did you mean 'ahn2023\.lemma-2'"):
        innerloop.check("ahn2023.lema-2")
    monkeypatch.delitem(load_claim_entries(), "yang2025.lin.theorem-6")
    with pytest.raises(InputError, match="has no check yet"):
        innerloop.check("yang2025.lin.theorem-6")


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
