"""Check the properties of every claim: complete texts, reproducible results, and checks that fail.

A claim measures in one function and judges in another one (`judge` or `conclude`). It can therefore
be tested on falsified data that contradict it. Each of its checks must reject some of them.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from innerloop.claims.base import PRESETS, Claim
from innerloop.claims.evidence import Evidence
from innerloop.mathtext import MathError, check_text, iterate_texts
from innerloop.testing.common import require


def check_claim(
    claim: Claim,
    sharing: AbstractContextManager[None] | None = None,
    genuine: Evidence | None = None,
) -> None:
    """Check a claim with its `tiny` settings: words, reproducibility, and falsified forms.

    Args:
        claim: The claim.
        sharing: A context manager under which runs of the claim may share results that they have
            in common. The first run in it is the one that tests reproducibility.
        genuine: The evidence of an earlier run with the same settings. If None, the claim is run.

    Raises:
        AssertionError: A property does not hold. The message states the mistake and how to correct
            it.
    """
    genuine = claim.check(claim.tiny) if genuine is None else genuine
    _check_words(claim, genuine)
    with sharing or nullcontext():
        data = [claim.gather(settings) for settings in claim.tiny]
        _check_reproducible(claim, genuine, data)
        _check_falsified(claim, genuine, data)


def _check_words(claim: Claim, genuine: Evidence) -> None:
    """Check that texts can be parsed, and that a claim declares all required fields."""
    for text in iterate_texts([claim.statement, dict(claim.hypotheses), genuine.as_dict()]):
        try:
            check_text(text)
        except MathError as error:
            require(False, f"{claim.id}: {error}")
    require(
        claim.statement.endswith("."),
        f"{claim.id}: the statement must be a sentence that ends with a full stop",
    )
    require(claim.where, f"{claim.id}: `where` must name the place of the statement in the source")
    require(
        genuine.verdict == "out of reach" or claim.falsified,
        f"{claim.id} cannot fail: declare `falsified` forms of the statement that it must reject",
    )
    for part in genuine.parts:
        require(
            re.search(r"\d", part.printed.summary),
            f"{claim.id}: a summary must state the number of cases or a measured value; "
            f"got {part.printed.summary!r}",
        )
    printed = [part.printed for part in genuine.parts] + [e.printed for e in genuine.errata]
    for check in printed:
        require(
            check.passed is not False or check.counterexample,
            f"{claim.id}: a form that fails must have a counterexample: {check.statement}",
        )
    for check in (*printed, *genuine.beyond):
        require(
            not re.match(r"(the )?same\b", check.statement),
            f"{claim.id}: the statement must name its subject, not `the same`: {check.statement!r}",
        )
    for erratum in genuine.errata:
        require(
            erratum.stands,
            f"{claim.id}: a printed form that holds cannot be an erratum: "
            f"{erratum.printed.statement}",
        )
        require(erratum.where, f"{claim.id}: an erratum must name its place in the source")


def _check_reproducible(claim: Claim, genuine: Evidence, data: Sequence[Any]) -> None:
    """Check that a second run and stored evidence are equal, and that settings are plain data."""
    plain = json.loads(json.dumps(genuine.as_dict(), allow_nan=False))
    again = Evidence.from_dict(plain)
    require(again.verdict == genuine.verdict, f"{claim.id}: evidence read back differs")
    require(
        json.dumps(again.as_dict()) == json.dumps(plain), f"{claim.id}: evidence read back differs"
    )
    repeated = claim.judge_cells(copy.deepcopy(list(data)))
    require(
        json.dumps(repeated.as_dict()) == json.dumps(plain),
        f"{claim.id}: the same seed must give the same numbers: draw from the generator alone",
    )
    for preset in PRESETS:
        cells = claim.presets[preset]
        require(cells, f"{claim.id} has no cells at {preset}")
        require(
            json.loads(json.dumps(cells)) == cells,
            f"{claim.id}: settings must be values that JSON can represent",
        )


def check_falsified_data(claim: Claim, data: Sequence[Any] | None = None) -> None:
    """Check that each check of a claim rejects some falsified data.

    The checks are those of the parts, of their corrections, and of corrected errata. A printed form
    that fails on the measured data needs no falsified data.
    """
    if data is None:
        data = [claim.gather(settings) for settings in claim.tiny]
    genuine = dict(claim.judge_cells(copy.deepcopy(data)).list_checks())
    open_checks = {name for name, check in genuine.items() if check.passed is not False}
    reached: set[str] = set()
    for form, change in claim.falsified.items():
        require(callable(change), f"{claim.id}: {form!r} must be a function from data to data")
        checks = dict(claim.judge_cells(copy.deepcopy(data), change).list_checks())
        require(
            checks.keys() == genuine.keys(),
            f"{claim.id}, {form}: the parts must not depend on the data; these differ: "
            f"{sorted(checks.keys() ^ genuine.keys())}",
        )
        broken = {name for name in open_checks if checks[name].passed is False}
        require(broken, f"{claim.id} accepts falsified data: {form}")
        reached |= broken
    missing = [f"{name} ({genuine[name].statement})" for name in sorted(open_checks - reached)]
    require(
        not missing,
        f"{claim.id}: no falsified data are rejected by these checks: {'; '.join(missing)}",
    )


def _check_falsified(claim: Claim, genuine: Evidence, data: Sequence[Any]) -> None:
    """Check that a claim rejects data that contradict it."""
    if genuine.verdict == "out of reach":
        return
    require(
        claim.judge or claim.conclude,
        f"{claim.id} cannot be tested on falsified data: return the measured data, and "
        "compute the evidence from them in `judge` or `conclude`",
    )
    check_falsified_data(claim, data)
