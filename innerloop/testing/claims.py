"""What every claim must do: say what it tests, give the same twice, and reject what is false."""

from __future__ import annotations

import json
import re
from contextlib import AbstractContextManager, nullcontext

from innerloop.claims.base import PRESETS, Claim
from innerloop.claims.evidence import Evidence
from innerloop.testing.common import require


def check_claim(
    claim: Claim,
    sharing: AbstractContextManager[None] | None = None,
    genuine: Evidence | None = None,
) -> None:
    """Check a claim with its `tiny` settings: words, reproducibility, and falsified forms.

    `genuine` is the evidence of an earlier run at these settings, which is then not run again;
    `sharing` is a context in which runs that differ in one statement may share work. The run that
    shows reproducibility is the first one inside it.
    """
    genuine = claim.check(claim.tiny) if genuine is None else genuine
    _check_words(claim, genuine)
    with sharing or nullcontext():
        _check_reproducible(claim, genuine)
        _check_falsified(claim, genuine)


def _check_words(claim: Claim, genuine: Evidence) -> None:
    require(claim.statement.endswith("."), f"{claim.id}: the statement is a sentence, with a stop")
    require(claim.where, f"{claim.id}: `where` must say where the source states it")
    require(
        genuine.verdict == "out of reach" or claim.falsified,
        f"{claim.id} cannot fail: declare `falsified` forms of the statement that it must reject",
    )
    for part in genuine.parts:
        require(
            re.search(r"\d", part.printed.summary),
            f"{claim.id}: a summary says how often, on what sizes, with what margin; "
            f"got {part.printed.summary!r}",
        )
        if part.printed.passed is False:
            require(
                part.printed.counterexample,
                f"{claim.id}: a form that fails shows a counterexample: {part.printed.statement}",
            )


def _check_reproducible(claim: Claim, genuine: Evidence) -> None:
    """A second run and evidence that is read back are the same; settings are plain data."""
    plain = json.loads(json.dumps(genuine.as_dict(), allow_nan=False))
    again = Evidence.from_dict(plain)
    require(again.verdict == genuine.verdict, f"{claim.id}: evidence read back differs")
    require(
        json.dumps(again.as_dict()) == json.dumps(plain), f"{claim.id}: evidence read back differs"
    )
    repeated = claim.check(claim.tiny)
    require(
        json.dumps(repeated.as_dict()) == json.dumps(plain),
        f"{claim.id}: the same seed must give the same numbers: draw from the generator alone",
    )
    for preset in PRESETS:
        cells = claim.presets[preset]
        require(cells, f"{claim.id} has no cells at {preset}")
        require(
            json.loads(json.dumps(cells)) == cells, f"{claim.id}: settings must be what JSON holds"
        )


def _check_falsified(claim: Claim, genuine: Evidence) -> None:
    """Each declared form is rejected, and together they reach every part that holds."""
    failing: set[int] = set()
    for form, replaced in claim.falsified.items():
        found = claim.check(claim.tiny, **replaced)
        broken = {
            k
            for k, (part, true) in enumerate(zip(found.parts, genuine.parts, strict=True))
            if part.verdict == "fails" and true.verdict != "fails"
        }
        require(broken, f"{claim.id} accepts a falsified form: {form} ({found.summary})")
        failing |= broken
    holding = {k for k, part in enumerate(genuine.parts) if part.verdict.startswith("holds")}
    unreached = [genuine.parts[k].printed.statement for k in sorted(holding - failing)]
    require(not unreached, f"{claim.id}: no falsified form breaks these parts: {unreached}")
