"""Verdicts depend on the assertion of a source only; errata and findings do not change them."""

from __future__ import annotations

import ast
import importlib.util
import json
import math
import operator
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from innerloop.claims.base import Claim, claim
from innerloop.claims.cases import Case
from innerloop.claims.encoders import join_checks
from innerloop.claims.evidence import Check, Erratum, Evidence, Part, Verdict, misprint
from innerloop.claims.falsifying import change_column
from innerloop.claims.figures import draw_lines
from innerloop.claims.gatmiry2024.landscape import delta
from innerloop.claims.gatmiry2024.theorem_3_4 import get_law
from innerloop.claims.intervals import (
    Interval,
    check_around,
    check_rate,
    check_within,
    estimate_mean,
    take_central,
)
from innerloop.claims.liu2025.measurements import add_violation_rate
from innerloop.claims.loading import load_claims
from innerloop.claims.searching import list_families, search_counterexample, with_examples
from innerloop.claims.shrinking import shrink
from innerloop.claims.trials import Equality, Expectation, Inequality, take_worst
from innerloop.errors import InputError
from innerloop.ledger.code import collect_dependencies
from innerloop.ledger.run import Outcome, Run
from innerloop.ledger.store import Cell, Store, finish_cell
from innerloop.ledger.tables import unpack_tables
from innerloop.report.claims import _render_check, render_claims
from innerloop.report.findings import list_findings, summarise
from innerloop.report.text import format_sentence
from innerloop.results import find_recorded
from innerloop.terminal import _print_check, print_outcomes
from innerloop.testing import check_claim
from innerloop.theory.looped import LoopedLoss
from tools.docs import findings as findings_page

HELD = Check(statement="a = b", passed=True, summary="12 cases")
FAILED = replace(HELD, passed=False, counterexample="a = 1, b = 2")
OPEN = replace(HELD, passed=None)


def test_errata_and_findings_do_not_change_the_verdict() -> None:
    errata = [Erratum(where="(3)", printed=FAILED), misprint("(4)", "x", "y", "x = 1")]
    found = Evidence(parts=[Part(printed=HELD)], errata=errata, beyond=[FAILED])
    assert (found.verdict, found.label) == ("holds", "holds · 2 errata")
    assert Evidence.from_dict(found.as_dict()).as_dict() == found.as_dict()
    assert [name for name, _ in found.list_checks()] == ["part 1, printed"]
    mended = [Part(printed=FAILED, corrected=HELD).as_erratum("(5)", "print")]
    found = Evidence(parts=[Part(printed=FAILED, corrected=HELD)], errata=mended)
    assert found.label == "holds as corrected · 1 erratum"
    names = ["part 1, printed", "part 1, corrected", "erratum 1, corrected"]
    assert [name for name, _ in found.list_checks()] == names


def test_the_authors_reading_decides() -> None:
    part = Part(printed=HELD, reading="δ = 1: the proof", other_readings={"δ = 2": FAILED})
    assert part.verdict == "holds"
    found = Evidence(parts=[part])
    assert Evidence.from_dict(found.as_dict()).as_dict() == found.as_dict()
    with pytest.raises(ValueError, match="which is the author's"):
        Part(printed=HELD, other_readings={"δ = 2": FAILED})


def test_a_failing_form_with_an_open_correction_fails() -> None:
    part = Part(printed=FAILED, corrected=OPEN)
    evidence = Evidence(parts=[part])
    assert (evidence.verdict, evidence.label) == ("fails", "fails · correction open")
    assert Evidence(parts=[Part(printed=FAILED, corrected=HELD)]).label == "holds as corrected"
    assert Evidence(parts=[Part(printed=FAILED, corrected=FAILED)]).label == "fails"


@pytest.mark.parametrize("correction", [OPEN, HELD, FAILED])
def test_a_statement_with_an_open_correction_is_listed_once(
    correction: Check, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    """The page of findings, the report and the terminal say what would decide the correction."""

    @claim("toy.open", "a", where="b", kind="figure", quick={}, full={}, decided_by="longer runs")
    def toy_open(generator: torch.Generator) -> Evidence:
        return Evidence(parts=[Part(printed=FAILED, corrected=replace(correction, statement="c"))])

    evidence = toy_open.check([{}])
    outcome = Outcome(toy_open.id, "checked", evidence=evidence, claim=toy_open).as_dict()
    (finding,) = list_findings([outcome])
    assert finding["kind"] == "statement"
    path = tmp_path / "verdicts.json"
    path.write_text(json.dumps(summarise([outcome])), "utf-8")
    monkeypatch.setattr(findings_page, "RECORDED", path)
    print_outcomes([outcome])
    texts = [capsys.readouterr().out, render_claims([outcome], {}, {}), findings_page.make_page()]
    is_open = correction is OPEN
    assert ["longer runs" in text for text in texts] == [is_open] * 3
    assert texts[2].count("toy.open</code>") == 1
    labels = {OPEN: "correction, open", HELD: "corrected", FAILED: "correction, refuted"}
    assert f"<dt>{labels[correction]}</dt><dd>c</dd>" in texts[2]


def test_a_weaker_statement_does_not_change_the_verdict() -> None:
    weaker = replace(HELD, statement="a ≤ 2b")
    evidence = Evidence(parts=[Part(printed=FAILED, weaker=weaker)])
    assert evidence.label == "fails"
    assert Evidence.from_dict(evidence.as_dict()).as_dict() == evidence.as_dict()
    assert "part 1, weaker" in dict(evidence.list_checks())
    outcome = Outcome("ahn2023.gdpp", "checked", evidence=evidence).as_dict()
    assert "a ≤ 2b" in render_claims([outcome], {}, {})
    assert list_findings([outcome])[0]["weaker"] == "a ≤ 2b"


@pytest.mark.parametrize(
    ("reason", "verdict"),
    [
        ("decided_by", "undecided"),
        ("missing", "not decidable from the source"),
        ("out_of_reach", "out of reach"),
    ],
)
def test_an_undecided_claim_gives_its_reason(
    reason: str, verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reason counts only where data leave a part undecided, and it is printed then."""
    text = "The number of loops is not printed"
    settings: dict[str, Any] = {"kind": "figure", "quick": {}, "full": {}, reason: text}
    checks = [(OPEN, verdict), (FAILED, "fails"), (HELD, "holds")]
    for check, expected in checks:

        @claim("toy.open", "a", where="b", **settings)
        def toy_open(generator: torch.Generator, check: Check = check) -> Evidence:
            return Evidence(parts=[Part(printed=check), Part(printed=HELD)])

        evidence = toy_open.check([{}])
        stored = toy_open.build_evidence([toy_open.run({})])
        assert evidence.verdict == stored.verdict == expected
        outcome = Outcome(toy_open.id, "checked", evidence=evidence, claim=toy_open).as_dict()
        print_outcomes([outcome])
        pages = (capsys.readouterr().out, render_claims([outcome], {}, {}))
        assert [text in page for page in pages] == [check is OPEN] * 2
        kinds = [each["kind"] for each in list_findings([outcome])]
        kind = {"decided_by": ["open"], "missing": ["missing"], "out_of_reach": []}[reason]
        assert kinds == {OPEN: kind, FAILED: ["statement"], HELD: []}[check]


def test_a_claim_accepts_one_reason_for_being_undecided() -> None:
    with pytest.raises(InputError, match="one reason for being undecided"):
        claim(
            "toy.open", "a", where="b", kind="rate", quick={}, full={}, missing="n", decided_by="k"
        )(lambda generator: Evidence(parts=[Part(printed=OPEN)]))


def test_a_vacuous_claim_must_be_true() -> None:
    empty = Part(printed=HELD, vacuous="the probability is at most 0")
    assert Evidence(parts=[empty, empty]).verdict == "vacuous"
    assert Evidence(parts=[empty, Part(printed=HELD)]).verdict == "holds", "a part says something"
    assert Evidence(parts=[empty, empty]).label == "vacuous", "not told twice"
    errata = [Erratum(where="(3)", printed=FAILED)]
    mixed = Evidence(parts=[empty, Part(printed=HELD)], errata=errata)
    assert mixed.label == "holds · 1 part vacuous · 1 erratum"
    worse = Evidence(parts=[empty, empty, Part(printed=FAILED)])
    assert worse.label == "fails · 2 parts vacuous"
    false = replace(empty, printed=FAILED)
    assert Evidence(parts=[false, Part(printed=HELD)]).label == "fails", "what is false says much"
    assert replace(empty, printed=FAILED).verdict == "fails"
    assert replace(empty, printed=OPEN).verdict == "undecided"


@pytest.mark.parametrize(
    ("counts", "label"),
    [((1, 3), "holds · one training"), ((2, None), "holds · 2 trainings"), ((3, 5), "holds")],
)
def test_a_small_number_of_trainings_is_displayed(
    counts: tuple[int | None, ...], label: str
) -> None:
    assert Evidence(parts=[Part(printed=HELD, trainings=k) for k in counts]).label == label


def test_stored_evidence_in_the_old_format_loads() -> None:
    """Cells that were recorded before: each part has `matters`, and there are no errata."""
    for path in sorted((find_recorded() / "cells" / "full").glob("*/*.json")):
        data = unpack_tables(json.loads(path.read_bytes())["content"]["found"])
        if "parts" in data:
            found = Evidence.from_dict(data)
            assert found.verdict in get_args(Verdict)
            assert len(found.parts) == len(data["parts"])
    former = {**vars(FAILED)}
    del former["ours"]
    part = {"printed": former, "corrected": None, "matters": "print"}
    data: dict[str, Any] = {"parts": [part], "numbers": {}, "table": [], "figures": []}
    assert Evidence.from_dict({**data, "out_of_reach": ""}).verdict == "fails", "as it was shown"


def test_an_undecided_claim_shows_what_would_decide_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Not where it is decided; in former results it was among the numbers."""

    @claim("toy.open", "a", where="b", kind="figure", quick={}, full={}, decided_by="a longer run")
    def toy_open(generator: torch.Generator) -> Evidence:
        return Evidence(parts=[Part(printed=OPEN)])

    former = {**Evidence(parts=[Part(printed=HELD)]).as_dict(), "numbers": {"k": 1}}
    former["numbers"]["what would decide it"] = "a longer run"
    shown = []
    for evidence in (toy_open.check([{}]), Evidence.from_dict(former)):
        made = Outcome(toy_open.id, "checked", evidence=evidence, claim=toy_open)
        outcome = made.as_dict()
        print_outcomes([outcome])
        shown.append((capsys.readouterr().out, render_claims([outcome], {}, {})))
        kinds = [each["kind"] for each in list_findings([outcome])]
        assert kinds == (["open"] if evidence.verdict == "undecided" else [])
    assert all("would be decided by: a longer run" in text for text in shown[0])
    assert not any("a longer run" in text for text in shown[1])


def test_every_open_claim_states_what_would_decide_it() -> None:
    path = Path(__file__).parents[1] / "results" / "verdicts.json"
    recorded = json.loads(path.read_bytes())["claims"]
    reasons = {"undecided": "decided_by", "not decidable from the source": "missing"}
    for verdict, reason in reasons.items():
        ids = [id for id, each in recorded.items() if each["verdict"] == verdict]
        assert ids
        assert [id for id in ids if not getattr(load_claims()[id], reason)] == []


def test_a_case_orders_and_describes() -> None:
    matrix = torch.tensor([[1.0, 31.77], [0.0, 1e6]], dtype=torch.float64)
    case = Case(d=2, L=3, n=10**6, A=matrix, eps=0.25, note="Σ* = I")
    assert case.size == (2, 3, 10**6, 0.25)
    text = "$d = 2$, $L = 3$, $n = 10^6$, $A = [[1, 31.77], [0, 1000000]]$, $eps = 0.25$, Σ* = I"
    assert str(case) == text
    assert str(Case(n=10, k=12_345).extend(note="x", n=11)) == "$n = 11$, $k = 12345$, x"
    assert case["d"] == 2
    thirds = Case(a=1 / 3, b=0.25, c=-5 / 3, d=0.3333333)
    assert str(thirds) == "$a = 1/3$, $b = 0.25$, $c = -5/3$, $d = 0.3333333$"


def test_trials_accept_cases() -> None:
    bound, same, mean = Inequality("a ≤ b"), Equality("a = b"), Expectation("E a = b")
    for n in (30, 4, 200):
        bound.add(2, 1, Case(n=n))
        same.add(2.0, 1.0, Case(n=n))
        mean.add(torch.ones(5) + 1e-3 * torch.arange(5), 3.0, Case(n=n))
    assert bound.check().counterexample == "$n = 4$: 2 > 1"
    assert same.check().counterexample == "$n = 4$: 2 ≠ 1"
    expected = "$n = 4$: the mean is 1.002 ± 0.00071, and 3 is stated"
    assert mean.check().counterexample == expected
    assert bound.check().summary == "fails in 3 of 3 cases"
    written = Inequality("b ≥ a", larger_first=True)
    written.add(2, 1, Case(n=4))
    assert written.check().counterexample == "$n = 4$: 1 < 2", "in the order of the statement"
    assert written.check().summary == "fails in 1 of 1 case"


@pytest.mark.parametrize(
    ("larger_first", "sides", "summary"),
    [
        (False, (0.9, 1.0), "2 cases, closest: 0.9 ≤ 1"),
        (True, (0.9, 1.0), "2 cases, closest: 1 ≥ 0.9"),
        (False, (1 + 1e-14, 1.0), "2 cases, closest: both sides are 1"),
    ],
)
def test_an_inequality_reports_both_sides_of_the_closest_case(
    larger_first: bool, sides: tuple[float, float], summary: str
) -> None:
    trial = Inequality("a ≤ b", larger_first=larger_first)
    trial.add(*sides, Case(n=4))
    trial.add(1.0, 3.0, Case(n=2))
    assert trial.check().summary == summary
    trial.search_note = "a search evaluated it 9 times"
    assert trial.check().summary == f"{summary}; a search evaluated it 9 times"


def test_sides_that_are_nearly_equal_or_infinite_are_compared() -> None:
    near = Inequality("a ≤ b")
    near.add(1 + 2**-30, 1.0, Case(n=1))
    assert near.check().counterexample == "$n = 1$: 1.0000000009313226 > 1"
    infinite = Inequality("a ≤ b")
    infinite.add(float("inf"), 1.0, Case(n=1))
    assert infinite.check().counterexample == "$n = 1$: inf > 1"
    bounded = Inequality("a ≤ b")
    bounded.add(1.0, float("inf"), Case(n=1))
    assert bounded.check().passed


def test_a_counterexample_shows_how_its_sides_are_computed() -> None:
    trial = Inequality("$a ≤ b$")
    trial.add(1.08, 1.0, Case(d=3), working=("the left side is 3 · 0.04 · 9", ""))
    assert trial.check().counterexample == "$d = 3$: the left side is 3 · 0.04 · 9 = 1.08 > 1"
    trial = Inequality("$b ≥ a$", larger_first=True)
    trial.add(4.0, 3.0, Case(k=3), working=("1 + 1 + 1 + 1", "1 + 2"))
    assert trial.check().counterexample == "$k = 3$: 1 + 2 = 3 < 1 + 1 + 1 + 1 = 4"


@pytest.mark.parametrize(
    ("interval", "passed"),
    [((1.0, 0.9, 1.1), True), ((1.0, 0.5, 1.1), None), ((2.0, 1.6, 2.5), False)],
)
def test_the_whole_interval_decides(interval: Any, passed: bool | None) -> None:
    check = check_within("p", Interval(*interval), least=0.8, most=1.5)
    assert check.passed is passed
    assert bool(check.counterexample) is (passed is False)
    if passed is False:
        side = f"{interval[1]:g} > 1.5" if interval[1] > 1.5 else f"{interval[2]:g} < 0.8"
        assert check.counterexample.endswith(f": {side}"), "both sides"
    assert check_around("p", Interval(*interval), 1.15, within=0.35, ours="x").passed is passed


def test_a_two_sided_threshold_can_fail_on_both_sides() -> None:
    def judge(*values: float) -> bool | None:
        return check_around("ends around 0.68", values, 0.68, within=0.068, ours="a tenth").passed

    assert [judge(0.67, 0.7), judge(0.492), judge(0.9), judge(0.492, 0.68)] == [
        True,
        False,
        False,
        None,
    ]


def test_a_rate_is_decided_by_its_interval() -> None:
    n = [10.0, 100.0, 1000.0]
    wide = [1.0, 0.02, 0.004]  # exponent −1.2, interval from −5 to 3
    assert check_rate("1/n", n, wide, -1.2, within=0.3).passed is None
    assert check_rate("1/n", n, [1 / k for k in n], -1.0, within=0.1).passed is True
    assert check_rate("1/n", n, [k**-0.5 for k in n], -1.0, within=0.1).passed is False
    assert check_rate("1/n", n, [k**-2.0 for k in n], -1.0, within=0.1).passed is False
    assert check_rate("at most", n, [k**-2.0 for k in n], -1.0, within=0.1, bound=True).passed


def test_intervals_of_samples() -> None:
    samples = torch.tensor([1.0, 2.0, 3.0, 4.0])
    value, low, high = estimate_mean(samples)
    assert value == 2.5
    assert high - value == pytest.approx(3.182446 * 1.2909944 / 2, rel=1e-6)
    assert low + high == pytest.approx(5.0)
    assert take_central(list(range(1001)), 500)[1:] == pytest.approx((25, 975))


def test_a_line_figure() -> None:
    rows = [{"k": 1, "loss": 2.0, "of": "a"}]
    figure = draw_lines("t", rows, "k: step", "loss", by="of: method", log="y", rules={"0": 1.0})
    assert (figure.x.title, figure.x.scale, figure.y.title, figure.y.scale) == (
        "step",
        "linear",
        "loss",
        "log",
    )
    assert figure.colour is not None
    assert figure.colour.title == "method"


def former_bound(A: Tensor, *, d: int, L: int, n: int) -> tuple[Tensor, Tensor]:
    """The former correction of gradient dominance, for all A: log ratio, and log of the slack."""
    law = get_law(d, n, L)  # its rule is computed once
    at = A if A.requires_grad else A.detach().clone().requires_grad_()
    value = law.loss(at)
    (slope,) = torch.autograd.grad(value.sum(), at, create_graph=True)
    bound = d ** (-(L - 1) / L) * value ** ((2 * L - 1) / L) / 16
    level = 2 * (2 * delta(L, d, n)) ** (2 * L)
    return ((slope**2).sum((-2, -1)) / bound).log(), (value / level).log()


def test_the_search_refutes_a_wrong_correction() -> None:
    """Without any hint: all sizes d, L ≤ 2, tiny and huge n, in the order of size."""
    sizes = with_examples({"d": d, "L": L} for d, L in ((1, 1), (2, 1), (1, 2), (2, 2)))
    sizes = [size for size in sizes if size["n"] >= size["d"] ** 2]
    seeded = torch.Generator().manual_seed(0)
    found = search_counterexample(former_bound, sizes, seeded, descents=2, iterations=40)
    assert found.breaks
    assert {name: found.case[name] for name in ("d", "L", "n")} == {"d": 2, "L": 2, "n": 10**6}
    A = found.case["A"]
    law = LoopedLoss(2, 10**6, 2)
    at = A.clone().requires_grad_()
    value = law.loss(at)
    (slope,) = torch.autograd.grad(value, at)
    loss = value.detach()
    assert float(loss) >= 2 * (2 * delta(2, 2, 10**6)) ** 4
    assert float((slope**2).sum()) < 2**-0.5 * float(loss) ** 1.5 / 16
    assert all(len(f"{float(entry):g}".replace("+", "")) <= 6 for entry in A.flatten()), "round"


def test_the_recorded_counterexample_violates_the_statement() -> None:
    A = torch.tensor([[1.0, 31.77], [0.0, 1.0]], dtype=torch.float64)
    margin, slack = former_bound(A[None], d=2, L=2, n=10**6)
    assert float(margin.detach().exp()) == pytest.approx(0.03395 / 0.04585, rel=1e-3)
    assert float(slack.detach()) > 0


def test_every_claim_lists_its_hypotheses() -> None:
    """A hypothesis that is dropped, or added, is seen only where all are listed."""
    for id, one in load_claims().items():
        assert one.hypotheses, f"{id} lists no hypothesis"
        assert all(where.strip() for where in one.hypotheses.values()), f"{id}: where from?"


WITHOUT_MATRICES = {
    "ahn2023.gdpp": "corrects what a layer does to single eigenvalues, at the weights of trainings",
    "gatmiry2024.lemma-A.2": "standard normals: k, d and n are all there is",
    "liu2025.lemma-3": "shares of random X",
    "liu2025.eq-4.3": "an MLP, whose threshold sees single numbers",
    "liu2025.theorem-4.1": "mends the MLP of eq-4.3 and nothing else",
    "yang2025.jin.theorem-4.2": "flows at d = 2, where only two of the spectra differ",
}
"""Claims that a pool has no matrices for, each with what it is about."""
LISTED = {
    "yang2025.he.em-steps": "list_hard_clouds",
    "yang2025.lin.theorem-12": "list_hard_episodes",
    "yang2025.he.pca": "list_hard_spectra",
}
"""Claims whose pool is no dictionary: what lists its instances, which they must ask for."""


def find_pools(source: str) -> list[dict[str, Callable[[int], Tensor]]]:
    """Find the pools of hard instances of a source: what builds matrices of a size, by name."""
    name = f"innerloop.claims.{source}.hard_instances"
    if importlib.util.find_spec(name) is None:
        return []
    members = vars(importlib.import_module(name)).items()
    return [pool for key, pool in members if key.isupper() and isinstance(pool, dict)]


def needs_hard_instances(one: Claim, found: Evidence) -> bool:
    """Whether a claim asserts an inequality, or corrects anything."""
    bounds = any(re.search("closest: |fails in", part.printed.summary) for part in found.parts)
    mended = any("corrected" in name for name, _ in found.list_checks())
    return one.kind == "inequality" or bounds or mended


POOLED = [
    id
    for id, one in load_claims().items()
    if one.kind in ("equality", "inequality") and find_pools(one.source) and not one.original
]


@pytest.mark.parametrize("id", POOLED)
def test_inequalities_and_corrections_are_tested_on_hard_instances(
    id: str, check_tiny: Callable[[Claim], Evidence], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All matrices of one of the source's pools are built in the smallest run of the claim."""
    one, built = load_claims()[id], set()
    if id in WITHOUT_MATRICES or not needs_hard_instances(one, check_tiny(one)):
        return

    def watch(k: int, name: str, build: Callable[[int], Tensor]) -> Callable[[int], Tensor]:
        return lambda *sizes: built.add((k, name)) or build(*sizes)

    if id in LISTED:
        module = importlib.import_module(one.module)
        instances = getattr(module, LISTED[id])

        def watch_list(*sizes: int) -> Any:
            built.add(LISTED[id])
            return instances(*sizes)

        monkeypatch.setattr(module, LISTED[id], watch_list)
        for settings in one.tiny:
            one.gather(settings)
        assert built
        return
    pools = find_pools(one.source)
    for k, pool in enumerate(pools):
        for name, build in list(pool.items()):
            monkeypatch.setitem(pool, name, watch(k, name, build))
    for settings in one.tiny:
        one.gather(settings)
    assert any(all((k, name) in built for name in pool) for k, pool in enumerate(pools)), built


def list_counterexamples(found: Evidence) -> list[str]:
    checks = [check for _, check in found.list_checks()] + [*found.beyond]
    checks += [erratum.printed for erratum in found.errata]
    checks += [check for part in found.parts for check in part.other_readings.values()]
    return [check.counterexample for check in checks if check.counterexample]


@pytest.mark.parametrize("id", [id for id in POOLED if id.startswith(("ahn2023", "gatmiry2024"))])
def test_counterexamples_can_be_typed(id: str, check_tiny: Callable[[Claim], Evidence]) -> None:
    """Inputs have at most five digits; after the colon, both sides are computed from them."""
    evidence = check_tiny(load_claims()[id])
    assert "margin" not in json.dumps(evidence.as_dict())
    for text in list_counterexamples(evidence):
        inputs = text.rpartition(":")[0]
        for number in re.findall(r"\d+\.?\d*", inputs):
            assert len(number.replace(".", "").strip("0")) <= 5, text


@pytest.mark.parametrize("id", [id for id in POOLED if id.startswith(("liu2025", "qliu2025"))])
def test_counterexamples_show_both_sides(id: str, check_tiny: Callable[[Claim], Evidence]) -> None:
    """Both sides are shown as numbers, not how far apart they are."""
    evidence = check_tiny(load_claims()[id])
    assert "margin" not in json.dumps(evidence.as_dict())
    for text in list_counterexamples(evidence):
        assert "relative to the largest entry" not in text


OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


def compute(node: ast.expr) -> float:
    """Compute an arithmetic expression; raise a `ValueError` for anything else."""
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id="pi"):
            return math.pi
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -compute(operand)
        case ast.Call(func=ast.Name(id="sqrt" | "exp" as name), args=[argument]):
            return getattr(math, name)(compute(argument))
        case ast.BinOp(left=left, op=kind, right=right):
            return OPERATORS[type(kind)](compute(left), compute(right))
        case _:
            raise ValueError(ast.unparse(node))


def evaluate(text: str) -> float | None:
    """Evaluate the arithmetic of a counterexample; None if it contains words or variables."""
    text = text.strip().rstrip(".").replace("$", "")
    for sign, symbol in {"·": "*", "−": "-", "^": "**", "²": "**2", "³": "**3"}.items():
        text = text.replace(sign, symbol)
    text = re.sub(r"√([\d.]+)", r"sqrt(\1)", text).replace("√", "sqrt").replace("π", "pi")
    try:
        return compute(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError):
        return None


def test_arithmetic_of_counterexamples_is_evaluated() -> None:
    assert evaluate("(1 + (10000² · 1 + 1e3 · 10000) · 1e-07)^3") == pytest.approx(1728)
    assert evaluate("2 · √(0.25/π) + exp(−1/0.25) − √4") == pytest.approx(-1.4174945)
    assert evaluate("n − 1") is None


@pytest.mark.parametrize("id", [id for id in POOLED if id.startswith(("liu2025", "qliu2025"))])
def test_computed_sides_have_the_value_that_is_shown(
    id: str, check_tiny: Callable[[Claim], Evidence]
) -> None:
    """Each "computation = value" after the last colon of a counterexample is recomputed."""
    for text in list_counterexamples(check_tiny(load_claims()[id])):
        for side in re.split("[<>≠]", text.rpartition(": ")[2]):
            working, equals, value = side.rpartition(" = ")
            if equals and (computed := evaluate(working)) is not None:
                shown = evaluate(value)
                assert shown is not None, text
                assert computed == pytest.approx(shown, rel=1e-4, abs=1e-6), text


def test_the_slices_that_differ_most_are_taken() -> None:
    one, other = torch.zeros(2, 3), torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, -2.0]])
    left, right = take_worst(one, other, 1)
    assert (left.tolist(), right.tolist()) == ([0, 0], [0, -2])
    left, right = take_worst(one, other, 0)
    assert right.tolist() == [0, 0, -2]


def test_a_search_without_result_reports_its_extent() -> None:
    def margin(A: Tensor, *, d: int) -> tuple[Tensor, Tensor]:
        norm = (A**2).sum((-2, -1))
        return norm + 1, torch.zeros_like(norm)

    found = search_counterexample(margin, [{"d": 2}], torch.Generator().manual_seed(0))
    assert not found.breaks
    assert found.margin == pytest.approx(1.0)
    assert "evaluations" in found.summary

    def impossible(A: Tensor, *, d: int) -> tuple[Tensor, Tensor]:
        return margin(A, d=d)[0], margin(A, d=d)[1] - 1

    with pytest.raises(ValueError, match="hypotheses"):
        search_counterexample(impossible, [{"d": 1}], torch.Generator().manual_seed(0))


def test_families() -> None:
    seeded = torch.Generator().manual_seed(0)
    names = {name for name, _ in list_families(3, seeded)}
    assert {"nilpotent", "a rotation", "rank one", "nearly singular", "zero", "random"} <= names
    for _, A in list_families(3, seeded, symmetric=True):
        torch.testing.assert_close(A, A.mT, rtol=0, atol=0)


def test_counterexamples_are_rounded_while_they_break() -> None:
    instance = torch.tensor([0.3712, 31.7731, -2.0001], dtype=torch.float64)
    found = shrink(instance, lambda x: bool(x[1] > 31.7) and bool(x[2] < -1))
    assert found.tolist() == [0.0, 40.0, -2.0]
    with pytest.raises(ValueError, match="nothing to shrink"):
        shrink(instance, lambda x: False)


def test_a_statement_printed_twice_has_one_check() -> None:
    one, again = (load_claims()[f"gatmiry2024.theorem-{name}"] for name in ("3.4", "A.11"))
    assert again.original == one.id
    assert (again.where, again.measure) == ("Appendix A.1, Theorem A.11", one.measure)
    assert again.cell_id == one.cell_id == one.id


def declare(judge: Any, *, conclude: Any = None, **falsified: Any) -> Any:
    @claim(
        "toy.rows",
        "All values are below 1.",
        where="here",
        kind="inequality",
        quick={},
        full={},
        judge=judge,
        conclude=conclude,
        falsified=falsified,
    )
    def rows(generator: torch.Generator) -> list[dict[str, float]]:
        return [{"x": 0.5}, {"x": 0.25}]

    return rows


def judge_rows(rows: list[dict[str, float]]) -> Evidence:
    small, positive = Inequality("x ≤ 1"), Inequality("x ≥ 0")
    for k, row in enumerate(rows):
        small.add(row["x"], 1.0, Case(k=k))
        positive.add(-row["x"], 0.0, Case(k=k))
    return Evidence(parts=[Part(printed=small.check()), Part(printed=positive.check())])


def test_each_check_must_reject_some_data() -> None:
    large, negative = change_column("x", lambda x: x + 1), change_column("x", lambda x: -x)
    check_claim(declare(judge_rows, large=large, negative=negative))
    with pytest.raises(
        AssertionError, match=r"no falsified data are rejected by these checks: part 2.*x ≥ 0"
    ):
        check_claim(declare(judge_rows, large=large))
    with pytest.raises(AssertionError, match="accepts falsified data: other"):
        check_claim(declare(judge_rows, other=change_column("y", abs), negative=negative))
    with pytest.raises(AssertionError, match="cannot fail"):
        check_claim(declare(judge_rows))

    def lenient(rows: list[dict[str, float]]) -> Evidence:
        whatever = Part(printed=Check(statement="x ≤ 1", passed=True, summary="2 cases"))
        return replace(judge_rows(rows), parts=[whatever, judge_rows(rows).parts[1]])

    with pytest.raises(AssertionError, match="accepts falsified data: large"):
        check_claim(declare(lenient, large=large, negative=negative))

    def fewer(rows: list[dict[str, float]]) -> Evidence:
        found = judge_rows(rows)
        return replace(found, parts=found.parts[: 1 if rows[0]["x"] > 1 else 2])

    with pytest.raises(AssertionError, match="parts must not depend on the data"):
        check_claim(declare(fewer, large=large, negative=negative))
    with pytest.raises(InputError, match="give one"):
        declare(judge_rows, conclude=max)

    def vague(rows: list[dict[str, float]]) -> Evidence:
        return replace(judge_rows(rows), beyond=[replace(HELD, statement="the same with n = 2")])

    with pytest.raises(AssertionError, match="must name its subject"):
        check_claim(declare(vague, large=large, negative=negative))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("n ≥ 4k²d² is needed", "n ≥ 4k²d² is needed."),
        ("δ′ is below 1", "δ′ is below 1."),
        ("f(A) = f(Ã)", "f(A) = f(Ã)."),
        ("a = b", "a = b."),
        ("cε < 1 at n = 10", "cε < 1 at n = 10."),
        ("kd ≤ n", "kd ≤ n."),
        ("log n grows", "log n grows."),
        ("the loss falls", "The loss falls."),
        ("gradient descent's error", "Gradient descent's error."),
        ("12 cases.", "12 cases."),
    ],
)
def test_a_sentence_that_begins_with_a_symbol_stays_as_it_is(text: str, sentence: str) -> None:
    assert format_sentence(text) == sentence


def test_violation_rates_are_reported_as_shares() -> None:
    trial = Inequality("with probability 1 − δ")
    add_violation_rate(trial, torch.ones(400, dtype=torch.bool), 0.1, Case(n=5))
    assert "and the share that may: 400/400 = 1 > 0.1" in trial.check().counterexample


def test_a_restatement_reads_the_cells_of_its_original(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = load_claims()["gatmiry2024.theorem-3.4"]
    whole = "below that of as many steps of gradient descent, and above that of half as many"
    found = Evidence(
        parts=[Part(printed=HELD)],
        errata=[Erratum(where="(3)", printed=FAILED)],
        numbers={"the transformer's error": whole},
    )
    (settings,) = one.presets["quick"]
    store, cell = Store(tmp_path, print), Cell(one.id, "quick", 0, settings)
    code = collect_dependencies(one.location, [], settings)
    store.write(cell, finish_cell(found.as_dict(), 1.0, code))

    def refuse() -> Any:
        raise AssertionError("nothing is left to run")

    outcomes = Run(store, refuse).check([one.id, *one.restates], "quick")
    assert [outcome.id for outcome in outcomes] == [one.id, "gatmiry2024.theorem-A.11"]
    assert [outcome.as_dict()["label"] for outcome in outcomes] == ["holds · 1 erratum"] * 2
    assert [outcome.as_dict()["restates"] for outcome in outcomes] == ["", one.id]
    assert outcomes[1].as_dict()["hypotheses"]["$Σ* = I$"] == "the theorem"
    print_outcomes([outcome.as_dict() for outcome in outcomes])
    assert capsys.readouterr().out.count(f"the transformer's error: {whole}\n") == 2, "not cut off"
    texts = render_claims([outcome.as_dict() for outcome in outcomes], {}, {})
    assert 'Restates <a href="#gatmiry2024.theorem-3.4">' in texts
    assert texts.count(">holds · 1 erratum<") == 2
    assert len(list_findings([outcome.as_dict() for outcome in outcomes])) == 1


def test_the_summary_states_whose_threshold_it_is() -> None:
    found = Interval(1.0, 0.9, 1.1)
    assert "stated at most 2" in check_within("p", found, most=2.0).summary
    ours = check_within("p", found, least=0.5, ours="half").summary
    assert ours.endswith("we require at least 0.5")


def test_each_training_has_its_own_line(capsys: pytest.CaptureFixture[str]) -> None:
    each = [Check(statement="it falls", passed=True, summary=f"{k} of 9") for k in (1, 2)]
    check = join_checks(each)
    _print_check("as printed", asdict(check))
    assert capsys.readouterr().out.splitlines()[1:] == [
        "    seed 0: holds, 1 of 9",
        "    seed 1: holds, 2 of 9",
    ]
    assert "Seed 0: holds, 1 of 9.<br>Seed 1: holds, 2 of 9." in _render_check("", asdict(check))
    assert "\n" not in Evidence(parts=[Part(printed=check, trainings=2)]).summary
