"""Every claim rejects the falsified forms that it declares, and its evidence is plain data."""

from __future__ import annotations

import json
import re

import pytest
from remembered import remembering

import innerloop
from innerloop.claims.base import PRESETS, Claim, chosen, claims, wanted
from innerloop.claims.evidence import Evidence
from innerloop.claims.sources import SOURCES
from innerloop.errors import InputError

CLAIMS = claims()


@pytest.mark.parametrize("id", CLAIMS)
def test_a_claim(id: str) -> None:
    """One test for each, since a claim may be slow: it runs once, and all is looked at."""
    claim = CLAIMS[id]
    genuine = claim.check(claim.tiny)
    says_what_it_is(claim, genuine)
    with remembering():
        is_reproducible_and_plain(claim, genuine)
        rejects_falsified_statements(claim, genuine)


def says_what_it_is(claim: Claim, genuine: Evidence) -> None:
    assert claim.id in wanted(), "wanted.txt lists every statement"
    assert claim.source in SOURCES
    assert claim.statement.endswith(".")
    assert claim.where
    assert genuine.verdict == "out of reach" or claim.falsified, "a claim that cannot fail"
    for part in genuine.parts:
        assert re.search(r"\d", part.printed.summary), "how often, on what sizes, what margin"
        if part.printed.passed is False:
            assert part.printed.counterexample, "what fails shows a counterexample"


def is_reproducible_and_plain(claim: Claim, genuine: Evidence) -> None:
    told = json.loads(json.dumps(genuine.as_dict(), allow_nan=False))
    again = Evidence.of(told)
    assert again.verdict == genuine.verdict
    assert json.dumps(again.as_dict()) == json.dumps(told)
    repeated = claim.check(claim.tiny)
    assert json.dumps(repeated.as_dict()) == json.dumps(told), "the same seed, the same numbers"
    for preset in PRESETS:
        assert claim.presets[preset]
        assert json.loads(json.dumps(claim.presets[preset])) == claim.presets[preset]


def rejects_falsified_statements(claim: Claim, genuine: Evidence) -> None:
    """Each form that a claim declares, and together they reach every part that holds."""
    failing = set()
    for form, replaced in claim.falsified.items():
        found = claim.check(claim.tiny, **replaced)
        broken = {
            k
            for k, (part, true) in enumerate(zip(found.parts, genuine.parts, strict=True))
            if part.verdict == "fails" and true.verdict != "fails"
        }
        assert broken, f"accepted: {form} ({found.summary})"
        failing |= broken
    holding = {k for k, part in enumerate(genuine.parts) if part.verdict.startswith("holds")}
    unreached = [genuine.parts[k].printed.statement for k in sorted(holding - failing)]
    assert not unreached, "parts that no falsified form can break"


def test_a_claim_is_checked_from_python() -> None:
    claim = CLAIMS["ahn2023.lemma-2"]
    assert innerloop.check(claim.id) == claim.check(claim.presets["quick"])
    assert claim.check(claim.tiny, seed=1) != claim.check(claim.tiny, seed=2)
    with pytest.raises(InputError, match=r"did you mean 'ahn2023\.lemma-2'"):
        innerloop.check("ahn2023.lema-2")
    with pytest.raises(InputError, match="has no check yet"):
        innerloop.check("yang2025.he.real-data")


def test_words_choose_claims() -> None:
    assert chosen([]) == list(dict.fromkeys([*wanted(), *CLAIMS]))
    assert chosen(["ahn2023.theorem-1"]) == ["ahn2023.theorem-1"]
    assert chosen(["yang2025.fu", "ahn2023.lemma-2"])[0] == "ahn2023.lemma-2"
    assert set(chosen(["yang2025.fu"])) == {id for id in wanted() if id.startswith("yang2025.fu")}
    with pytest.raises(InputError, match=r"did you mean 'ahn2023\.lemma-2'"):
        chosen(["ahn2023.lema-2"])
    with pytest.raises(InputError, match="no claim"):
        chosen([""])
