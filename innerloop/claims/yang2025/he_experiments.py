"""Clustering by a trained transformer: against Lloyd, the Bayes rule, and without the assumptions.

Printed    3 layers, 2 heads, width 64, Adam at 5e-4 with decay 0.995, 300 iterations; mixtures with
           covariance σ²I; ARI, NMI, cross-entropy. Conclusions: transformers match the minimax
           rates in clustering; strong performance even when the assumptions are violated; a viable
           alternative to Lloyd's algorithm
Missing    the number of points, the dimension, the number of clouds, the distance of their centres,
           and a rate. Whether the rate is reached depends on the number of points: with ours, EM
           falls short of it too, although EM is optimal
Tested     softmax transformers of that size trained here, longer (results/unlabelled/
           clusters-gaussian, three trainings at `full`, one at `quick`, each judged: K = 3 clouds
           in d = 2, 20 to 40 points, σ = 1). They see the points from which Lloyd's algorithm
           starts. Fresh problems; scikit-learn's clusterings on the same ones
Reading    rates: that of he.minimax, exp(−(1 + o(1))Δ²/8σ²) (Lu & Zhou 2016; the slides print
           none), and the same test: the exponent −log(share of wrong points) is at least 0.95 of
           that of the rule that knows the centres. o(1) vanishes for many points and distant
           centres. Where EM from starts made of the data falls short of 0.95 on the same points,
           there are too few points to decide, and the part is undecided whether or not the network
           reaches 0.95
Ours       viable: a mean ARI of at least Lloyd's from the same start minus 0.05. Strong: at least
           0.9 of the ARI of Lloyd's from the same start under each violation. Rates: 0.95 at Δ = 3σ
           and 4σ, by intervals over problems
Chosen     after results were seen: violations are compared problem by problem, because a first run
           that compared means of unpaired problems left one undecided, [0.878, 1.035] against 0.9;
           the comparison of rates was with 0.8, by a point estimate; the part on rates is undecided
           where EM falls short
Beyond     the other methods of scikit-learn; more points than in training; another K
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from innerloop.algorithms.em import EM
from innerloop.claims.base import claim
from innerloop.claims.baselines import CLUSTERINGS, cluster_from_start, cluster_points
from innerloop.claims.encoders import TrainedEncoder, join_trainings, load_encoders, run_steps
from innerloop.claims.evidence import Check, Evidence
from innerloop.claims.figures import draw_lines
from innerloop.claims.intervals import check_within, estimate_mean
from innerloop.claims.recorded import name_seeds
from innerloop.claims.yang2025.clouds import (
    VIOLATIONS,
    draw_clouds,
    draw_triangle,
    label_by_bayes,
    label_points,
    score_instances,
)
from innerloop.claims.yang2025.he_minimax import LEAST, choose_start, compare_exponents
from innerloop.problems.gaussian_mixture import ClusteringProblem, GaussianMixture

WORSE, STRONG = 0.05, 0.9
LLOYD, EM_START = "Lloyd, the same start", "EM, the same start"
KMEANS = "KMeans, ten starts"
TRAINED, SHOWN = "as in training", "as in training, the first problems"
Data = dict[str, Any]
"""Names of networks; scores by setting and method; shares of wrong points; ARI by layer."""
Scores = dict[str, dict[str, Tensor]]
READINGS = (
    "at most 0.05 below Lloyd's from the same start: ours, for the slides' 'viable alternative'",
    "at least 0.9 of Lloyd's from the same start: ours, for the slides' 'strong performance'",
    "the rate of Lu & Zhou, as in he.minimax: ours, because the slides print no rate",
)


def judge_clusters(data: Data) -> Evidence:
    networks: list[str] = data["networks"]
    viable, strong, rates = (
        join_trainings([judge(data, network) for network in networks])
        for judge in (_check_alternative, _check_violations, _check_rates)
    )
    best = {KMEANS: _compare(SHOWN, data["scores"][SHOWN], networks, KMEANS)}
    return Evidence(
        parts=[
            replace(viable, reading=READINGS[0], other_readings=best),
            replace(strong, reading=READINGS[1]),
            replace(rates, reading=READINGS[2]),
        ],
        beyond=[
            _compare(setting, scores, networks, name)
            for setting, scores in data["scores"].items()
            for name in scores
            if (setting == TRAINED and name == EM_START) or (name in CLUSTERINGS and name != KMEANS)
        ],
        table=[
            {
                "setting": setting,
                "method": name,
                **{measure: float(each.mean()) for measure, each in found.items()},
            }
            for setting, scores in data["scores"].items()
            for name, found in scores.items()
        ],
        figures=[
            draw_lines(
                "Layers of a trained transformer against steps of EM",
                [
                    {"k": k, "ari": value, "of": name}
                    for name, curve in data["curves"].items()
                    for k, value in enumerate(curve, 1)
                ],
                "k: layers or steps",
                "ari: mean adjusted Rand index",
                "of: of",
                caption=f"{data['about']}; EM from the points that the transformers see.",
            )
        ],
    )


def _check_alternative(data: Data, network: str) -> Check:
    own = data["scores"][TRAINED]
    return check_within(
        "the mean ARI is at least that of Lloyd's algorithm from the same start, minus 0.05",
        estimate_mean(own[network]["ari"] - own[LLOYD]["ari"]),
        least=-WORSE,
        what=f"difference of ARI, {len(own[network]['ari'])} problems",
        ours="0.05",
    )


def _compare(setting: str, scores: Scores, networks: list[str], name: str) -> Check:
    return join_trainings(
        [
            check_within(
                f"{setting}: the ARI is at least that of {name}",
                estimate_mean(scores[network]["ari"] - scores[name]["ari"]),
                least=0.0,
                what=f"difference of ARI, {len(scores[name]['ari'])} problems",
            )
            for network in networks
        ]
    ).printed


def _check_violations(data: Data, network: str) -> Check:
    """Check the mean ARI against Lloyd's, paired, under the violation that is worst for it."""
    pairs = {
        name: [data["scores"][name][each]["ari"] for each in (network, LLOYD)]
        for name in data["violations"]
    }
    found = {name: estimate_mean(own - STRONG * other) for name, (own, other) in pairs.items()}
    worst = min(found, key=lambda name: found[name].low)
    listed = ", ".join(
        f"{name} {float(own.mean()):.3f} against {float(other.mean()):.3f}"
        for name, (own, other) in pairs.items()
    )
    return check_within(
        "under every violation the ARI is at least 0.9 of that of Lloyd's from the same start",
        found[worst],
        least=0.0,
        what=f"ARI minus 0.9 of Lloyd's under the worst of {len(found)} ({listed}), {worst}",
        ours="0.9; the comparison by problem was set after a first run without it was undecided",
    )


def _check_rates(data: Data, network: str) -> Check:
    """Check the exponent over that of known centres; undecided where EM falls short of it."""
    own, em = (
        {
            row["Δ/σ"]: compare_exponents(row[name], row["known"], 3, row["Δ/σ"])
            for row in data["rates"]
        }
        for name in (network, "EM")
    )
    delta, worst = min(own.items(), key=lambda item: item[1].low)
    listed = "; ".join(
        f"$Δ = {each:g}σ$: {own[each].value:.3f}, EM {em[each].value:.3f}" for each in own
    )
    check = check_within(
        "wrong shares fall like $exp(−(1 + o(1)) Δ²/8σ²)$, as with known centres",
        worst,
        least=LEAST,
        what=f"least exponent over that of known centres ({listed}), "
        f"{len(data['rates'][0]['EM'])} problems of {data['points']} points, $Δ = {delta:g}σ$",
        ours=f"an exponent of {LEAST} times that of known centres, as in he.minimax; undecided "
        "where EM falls short of it, a rule that was set after the numbers were seen",
    )
    if min(each.low for each in em.values()) < LEAST:
        few = "EM from starts made of the data is optimal and falls short too: these points are "
        few += "too few to decide"
        return replace(check, passed=None, summary=f"{check.summary}; {few}", counterexample="")
    return check


def lose_points(data: Data) -> Data:
    """Make data of a network that does not cluster: an ARI near 0, 60 % of the points wrong."""
    found = {**dict.fromkeys(data["networks"], 0.01), LLOYD: 1.0}
    scores = {
        setting: {
            name: {m: torch.full_like(v, found[name]) if name in found else v for m, v in s.items()}
            for name, s in methods.items()
        }
        for setting, methods in data["scores"].items()
    }
    rates = [
        {**row, "EM": row["known"]}
        | {name: torch.full_like(row["EM"], 0.6) for name in data["networks"]}
        for row in data["rates"]
    ]
    return {**data, "scores": scores, "rates": rates}


SMALL = {
    **{"d": 2, "n": 12, "width": 12, "hidden": 4, "batch": 4, "steps": 2, "starts": True},
    **{"supervise": "all"},
}


@claim(
    "yang2025.he.experiments",
    "A trained transformer clusters at the minimax rates, well when assumptions are violated, and "
    "as an alternative to Lloyd's algorithm.",
    where="Fifth paper (Transformers versus the EM algorithm): conclusion from experiments",
    kind="ordering",
    hypotheses={
        "isotropic noise $σ²I$, except for violations": "the slide on the experimental set-up",
        "$K = 3$ clouds in $d = 2$, centres $N(0, 9I)$, $σ = 1$": "ours: the slides print no sizes",
    },
    missing="The slides print no number of points, no dimension, no number of clouds, no distance "
    "of their centres and no rate, and the rates depend on them.",
    quick={"machine": "clusters-gaussian", "examples": 400, "lengths": [100], "shown": 60},
    full={"machine": name_seeds("clusters-gaussian", 3), "examples": 8000}
    | {"lengths": [20, 100, 400], "shown": 1000},
    tiny={"machine": [None, None, None], "examples": 20, "lengths": [15], "shown": 3},
    judge=judge_clusters,
    falsified={"a network that does not cluster": lose_points},
)
def he_experiments(
    generator: torch.Generator,
    *,
    machine: str | Sequence[str | None],
    examples: int,
    lengths: list[int],
    shown: int,
) -> Data:
    """Measure scores, rates and curves; scikit-learn's clusterings run on `shown` problems."""
    networks = load_encoders("gaussian-mixture", machine, SMALL)
    first, *_ = networks.values()
    own = first.build_distribution()
    assert isinstance(own, GaussianMixture)
    problem = own.sample(examples, generator=generator)
    scores = {TRAINED: score_methods(networks, problem, own.noise)}
    few = problem[:shown]
    more = score_methods(networks, few, own.noise)
    for name in CLUSTERINGS:
        more[name] = score_instances(cluster_points(name, few.x, own.clusters), few)
    scores[SHOWN] = more
    for name in VIOLATIONS:
        scores[name] = score_methods(networks, draw_clouds(own, name, examples, generator), 1.0)
    for n in lengths:
        law = GaussianMixture(d=own.d, n=n, clusters=own.clusters, separation=own.separation)
        told = f"{n} points" if n <= own.n else f"{n} points, more than in training"
        scores[told] = score_methods(networks, law.sample(examples, generator=generator), own.noise)
    return {
        "networks": list(networks),
        "scores": scores,
        "violations": list(VIOLATIONS),
        "rates": measure_rates(networks, own, examples, generator),
        "points": own.n,
        "curves": measure_curves(networks, problem, own.noise),
        "about": first.description,
    }


def score_methods(
    networks: Mapping[str, TrainedEncoder], problem: ClusteringProblem, noise: float
) -> Scores:
    """Score the networks, and Lloyd's algorithm and EM from the starts that they see."""
    found = {
        **label_points(networks, problem),
        LLOYD: cluster_from_start("Lloyd", problem),
        EM_START: cluster_from_start("EM", problem, noise),
    }
    return {name: score_instances(labels, problem) for name, labels in found.items()}


def measure_rates(
    networks: Mapping[str, TrainedEncoder],
    own: GaussianMixture,
    examples: int,
    generator: torch.Generator,
) -> list[dict[str, Any]]:
    """Wrong shares of the networks, of EM and of the Bayes rule, for centres at distance Δσ."""
    found = []
    for delta in (3.0, 4.0):
        problem, centres = draw_triangle(own, delta, examples, generator)
        apart = replace(problem, start=choose_start(problem.x, own.clusters))
        labels = {
            **label_points(networks, problem),
            "EM": cluster_from_start("EM", apart, own.noise),
            "known": label_by_bayes(problem, centres),
        }
        shares = {name: score_instances(each, problem)["wrong"] for name, each in labels.items()}
        found.append({"Δ/σ": delta, **shares})
    return found


def measure_curves(
    networks: Mapping[str, TrainedEncoder], problem: ClusteringProblem, noise: float
) -> dict[str, list[float]]:
    """Mean ARI after each layer, and after each step of EM from the same start."""
    equal = torch.zeros(problem.clusters, dtype=torch.float64)
    em = run_steps(EM(torch.tensor(noise, dtype=torch.float64), equal), problem, 8)[1:]
    layers = {f"{name}, layers": each.answer(problem) for name, each in networks.items()}
    return {
        name: [float(score_instances(each.argmax(dim=-1), problem)["ari"].mean()) for each in rows]
        for name, rows in {**layers, "EM, steps": em}.items()
    }
