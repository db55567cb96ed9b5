"""What decides a claim of yang2025: intervals, the worst case, and nothing if nothing is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from innerloop.claims.cases import Case
from innerloop.claims.evidence import Check
from innerloop.claims.loading import load_claims
from innerloop.claims.yang2025.deciding import Games
from innerloop.claims.yang2025.fu_convergence import judge_hundreds
from innerloop.claims.yang2025.fu_lstm import replace_errors
from innerloop.claims.yang2025.he_better_than_power import TRAINED
from innerloop.claims.yang2025.he_experiments import _check_rates
from innerloop.claims.yang2025.he_real_data import CLUSTERS, _check_mean, _check_sets, _check_worst
from innerloop.claims.yang2025.he_relu_over_softmax import judge_kinds
from innerloop.claims.yang2025.lin_linear_bandit import THOMPSON, Measured
from innerloop.claims.yang2025.lin_theorem_6 import judge_gaps
from innerloop.claims.yang2025.networks import draw_bootstrap_weights
from innerloop.claims.yang2025.wu_theorem_1 import judge_norm


@pytest.mark.parametrize(
    ("gaps", "outcomes"),
    [
        ((8.0, 4.0, 2.0), [True, True]),
        ((2.0, 4.0, 8.0), [False, False]),
        ((4.0, 4.0, 4.0), [False, False]),
        ((0.1, 0.1, 0.1), [None, None]),  # all of them below 2 % of the best reward
        ((0.1, 0.2, -0.01), [None, None]),
    ],
)
def test_gaps_fall_only_if_they_change(
    gaps: tuple[float, ...], outcomes: list[bool | None]
) -> None:
    rows = [
        {"pool": pool, "seed": seed, "network": "3 layers", "gap": gap, "best": 20.0}
        for pool, gap in zip((10, 100, 1000), gaps, strict=True)
        for seed in range(2)
    ]
    evidence = judge_gaps(rows)
    assert evidence.verdict == "out of reach", "no formula is printed"
    assert [check.passed for check in evidence.beyond[:2]] == outcomes


@pytest.mark.parametrize("id", ["jin.pretraining", "jin.prompt-length"])
def test_what_is_not_printed_is_measured_and_not_judged(id: str) -> None:
    """Without a formula there is no part; what is beyond says no to data that contradict it."""
    claim = load_claims()[f"yang2025.{id}"]
    data = [claim.gather(settings) for settings in claim.tiny]
    genuine = claim.judge_cells(data)
    assert genuine.verdict == "out of reach"
    assert not genuine.parts
    for form in claim.falsified.values():
        assert callable(form)
        falls = claim.judge_cells(data, form).beyond[:2]
        assert [check.passed for check in falls] == [False, False]


def make_rates(network: float, em: float, known: float = 0.03) -> dict[str, Any]:
    """Shares of wrong points that vary little over ten problems, three centres 4σ apart."""
    spread = 1e-4 * torch.linspace(-1, 1, 10, dtype=torch.float64)
    shares = {"network": network + spread, "EM": em - spread, "known": known + 0 * spread}
    return {"rates": [{"Δ/σ": 4.0, **shares}], "points": 40}


@pytest.mark.parametrize(
    ("network", "em", "passed"),
    [
        (0.031, 0.031, True),
        (0.09, 0.031, False),  # EM shows that these points are enough
        (0.09, 0.09, None),  # and here that they are too few
        (0.031, 0.09, None),  # to decide anything, either way
    ],
)
def test_rates_are_open_where_em_falls_short(
    network: float, em: float, passed: bool | None
) -> None:
    assert _check_rates(make_rates(network, em), "network").passed is passed


@pytest.mark.parametrize(
    ("counts", "printed", "own_step"),
    [
        ([[1, 3], [2, 4]], None, False),
        ([[150, 300], [200, 999]], True, True),
        ([[150, 1500]], None, False),
        ([[2000, 5000]], False, False),
    ],
)
def test_no_step_of_ours_refutes_hundreds(
    counts: list[list[int]], printed: bool | None, own_step: bool
) -> None:
    part = judge_hundreds({"steps for 3": counts})
    assert part.printed.passed is printed
    (other,) = part.other_readings.values()
    assert other.passed is own_step


def test_one_pair_that_is_open_leaves_the_order_open() -> None:
    """Softmax errs more in eight of nine pairs; in one the interval over problems reaches 0."""
    spread = torch.linspace(-1, 1, 100, dtype=torch.float64)
    errors = {"relu": (0.01, 0.01, 0.0299), "softmax": (0.03, 0.04, 0.04)}
    data = [
        {"kind": kind, "seed": k, "about": "", "errors": (mean + 0.01 * sign * spread)[None]}
        for kind, sign in (("relu", 1), ("softmax", -1))
        for k, mean in enumerate(errors[kind])
    ]
    (part,) = judge_kinds(data).parts
    assert part.printed.passed is None
    assert part.other_readings["the mean of each kind"].passed
    (part,) = judge_kinds([each for each in data if each["seed"] < 2]).parts
    assert part.printed.passed


def test_the_worst_real_set_keeps_the_statement_open() -> None:
    """The network is 0.15 below KMeans on one of two sets: the mean over both hides it."""
    none = 0.01 * torch.linspace(-1, 1, 20, dtype=torch.float64)
    pairs = {"good": none, "bad": none - 0.15}
    assert _check_worst(pairs, CLUSTERS).passed is False
    assert _check_mean(pairs, CLUSTERS).passed
    assert _check_sets(pairs, CLUSTERS).passed is None, "both readings are ours"
    assert _check_sets({"bad": pairs["bad"]}, CLUSTERS).passed is False
    assert _check_sets({"good": none}, CLUSTERS).passed


UNDECIDABLE = "not decidable from the source"
FAST = [0.4**k for k in range(7)]
SLOW = [1.0, *[0.6] * 6, 0.15, *[0.06] * 6, *[0.03] * 6, *[0.015] * 6, *[0.001] * 3]
"""Errors of which every level from 0.5 to 0.01 takes more than twice as many steps as `FAST`."""


@pytest.mark.parametrize(
    ("layers", "steps", "verdict"),
    [
        (FAST, [*FAST[:4], 0.055, *[0.045] * 9, *FAST[5:]], UNDECIDABLE),
        (FAST, SLOW, "holds"),
        (FAST, FAST, "fails"),
        (SLOW, SLOW, "fails"),
    ],
)
def test_ill_conditioned_prompts_decide_only_where_all_levels_agree(
    layers: list[float], steps: list[float], verdict: str
) -> None:
    """Errors at κ = 100 over layers and over steps of gradient descent; at κ = 1 all are fast.

    In the first case gradient descent degrades down to 0.02 and not down to 0.5.
    """

    def spread(*curves: list[float]) -> list[torch.Tensor]:
        prompts = 1 + 1e-3 * torch.linspace(-1, 1, 20, dtype=torch.float64)
        return [torch.tensor(curve, dtype=torch.float64)[:, None] * prompts for curve in curves]

    data = {
        "errors": {
            "transformer": spread(FAST + FAST[-1:] * (len(layers) - len(FAST)), layers),
            "descent": spread(FAST, steps),
            "Newton": spread(FAST, FAST),
        },
        "picks": draw_bootstrap_weights(20, 50, torch.Generator().manual_seed(0)),
        "where": "d = 5, n = 10",
        "description": "2 layers",
    }
    evidence = load_claims()["yang2025.fu.ill-conditioned"].judge_cells([[data] * 3])
    assert evidence.verdict == verdict
    (part,) = evidence.parts
    assert part.trainings == 3
    if verdict == UNDECIDABLE:
        first, *_, last = part.other_readings.values()
        assert (first.passed, last.passed) == (False, True)
        assert "gradient descent: 1 step at $κ = 1$, 1 at $κ = 100$" in first.counterexample


@pytest.mark.parametrize(
    ("steps", "end", "verdict"),
    [(0.1, 1e-7, UNDECIDABLE), (0.1, 0.1, "holds"), (0.01, 1e-7, "fails")],
)
def test_the_power_method_loses_only_if_it_loses_after_any_number_of_steps(
    steps: float, end: float, verdict: str
) -> None:
    """Errors after as many steps as layers, and at the end, against 0.02 of the transformer.

    The random start, no step at all, has an error of 0.8 and decides nothing.
    """
    spread = 1 + 0.01 * torch.linspace(-1, 1, 20, dtype=torch.float64)
    one = {
        **{"spectrum": TRAINED, "gap": 0.5, "depth": 3, "about": "3 layers"},
        "layers": torch.stack([0.3 * spread, 0.1 * spread, 0.02 * spread]),
        "steps": torch.stack([0.8 * spread, *[steps * spread] * 16]),
        "end": end * spread,
    }
    claim = load_claims()["yang2025.he.better-than-power"]
    evidence = claim.judge_cells([[{**one, "seed": seed} for seed in range(3)]])
    assert evidence.verdict == verdict
    start = evidence.parts[0].other_readings["steps of Theorem 2.1's count"]
    assert start.passed, "it is shown"


@pytest.mark.parametrize(
    ("ratios", "verdicts"),
    [
        ((1.1, 1.8), [UNDECIDABLE, UNDECIDABLE]),
        ((1.1, 1.2), ["holds", "holds"]),
        ((1.6, 1.8), ["fails", "fails"]),
    ],
)
def test_sizes_that_disagree_leave_a_comparison_of_bandits_open(
    ratios: tuple[float, float], verdicts: list[str]
) -> None:
    """Regrets over LinUCB's at the smaller and the larger sizes; Thompson sampling has 1.4."""
    spread = 1 + 0.01 * torch.linspace(-1, 1, 20, dtype=torch.float64).unsqueeze(-1)
    steps = torch.tensor([0.5, 1.0], dtype=torch.float64)
    references = {"LinUCB": spread * steps, **dict.fromkeys(THOMPSON, 1.4 * spread * steps)}
    games = {
        name: Games({"transformer, seed 0": ratio * spread * steps}, references, "2 layers")
        for name, ratio in zip(("d = 2", "d = 5"), ratios, strict=True)
    }
    claim = load_claims()["yang2025.lin.linear-bandit"]
    evidence = claim.judge_cells([Measured(games, None, [])])
    decided = {"undecided": UNDECIDABLE}
    assert [decided.get(part.verdict, part.verdict) for part in evidence.parts] == verdicts
    assert evidence.verdict == verdicts[0]


@pytest.mark.parametrize(
    "id",
    [
        "fu.convergence",
        "fu.ill-conditioned",
        "jin.theorem-3.3",
        "he.better-than-power",
        "he.experiments",
        "he.real-data",
        "lin.linear-bandit",
        "lin.bernoulli-bandit",
    ],
)
def test_a_claim_names_what_the_slides_do_not_print(id: str) -> None:
    missing = load_claims()[f"yang2025.{id}"].missing
    assert missing.startswith("The slides ")
    assert missing.count(".") == 1
    assert missing.endswith(".")


def test_large_weights_leave_the_norm_open() -> None:
    """A build whose norm grows refutes no other; wrong steps do."""
    steps = Check(statement="", passed=True, summary="1 case")
    small, large = ({"norm": norm, "η": 1e-6, "case": Case(η=1e-6)} for norm in (3.0, 7.0))
    assert judge_norm([small], steps).passed
    assert judge_norm([large], steps).passed is None
    assert judge_norm([small], replace(steps, passed=False)).passed is False


def test_a_layer_that_does_not_help_is_shown_and_decides_nothing() -> None:
    """The second layer's error is above the first's; all of them together improve."""
    claim = load_claims()["yang2025.fu.lstm"]
    data = [claim.gather(settings) for settings in claim.tiny]
    form = replace_errors(
        transformer=[0.63, 0.65, 0.19, 0.007], LSTM=[0.2, 0.19, 0.18], LSTM_of_one_layer=[0.2]
    )
    *_, improves = claim.judge_cells(data, form).parts
    assert improves.printed.passed
    assert improves.other_readings["every layer"].passed is False
    flat = replace_errors(transformer=[0.02, 0.02], LSTM=[0.2, 0.2], LSTM_of_one_layer=[0.2])
    assert claim.judge_cells(data, flat).parts[-1].printed.passed is False


@pytest.mark.parametrize(
    ("last", "one", "passed", "inner"),
    [(0.07, 0.06, True, False), (0.09, 0.06, True, True), (0.03, 0.06, False, False)],
)
def test_lstms_of_more_layers_decide_whether_layers_improve_an_lstm(
    last: float, one: float, passed: bool, inner: bool
) -> None:
    """The errors of an LSTM of 3 layers and of one layer; the layers of one LSTM are shown."""
    claim = load_claims()["yang2025.fu.lstm"]
    data = [claim.gather(settings) for settings in claim.tiny]
    form = replace_errors(
        transformer=[0.5, 0.2, 0.005], LSTM=[0.1, 0.09, last], LSTM_of_one_layer=[one]
    )
    part = claim.judge_cells(data, form).parts[1]
    assert part.printed.passed is passed
    assert part.other_readings["the layers of one LSTM"].passed is inner


def test_layers_that_improve_an_lstm_as_much_are_no_contrast() -> None:
    """Both errors fall to a hundredth: the transformer's layers alone would pass."""
    claim = load_claims()["yang2025.fu.lstm"]
    data = [claim.gather(settings) for settings in claim.tiny]
    falls = [0.5, 0.05, 0.005]
    form = replace_errors(transformer=falls, LSTM=falls, LSTM_of_one_layer=[0.5])
    assert claim.judge_cells(data, form).parts[-1].printed.passed is False
