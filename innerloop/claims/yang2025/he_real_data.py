"""Pre-trained transformers on real data sets, as they are: PCA and clusters.

Printed    "Validate the unsupervised learning ability of pre-trained Transformers on synthetic and
           real-world datasets": the third contribution of the sixth paper. The slides print no set
           and no number
Missing    the sets and the measure. On the mean over our sets the clusters pass our threshold, on
           the worst set they do not
Tested     the transformers of this ledger, trained on Gaussian problems alone (results/unlabelled/
           pca-relu, three trainings; clusters-gaussian and clusters-binary, three at `full`, one at
           `quick`), each judged, on sets that come with scikit-learn: iris, wine, breast cancer,
           digits. Features are standardised, points scaled to the mean squared norm of the training
           problems (`datasets`). PCA of tables of d features and n points, and of crosses of five
           pixels; three classes of a set, and pairs of classes, on the set's first principal
           components, n points at a time
Reading    validated on every set, ours. PCA: mean |cos| to the leading eigenvector of at least 0.9.
           Clusters: mean ARI at least that of scikit-learn's KMeans with ten starts minus 0.1. The
           other reading takes the mean over the sets. Both are ours, so the two decide together: a
           part fails where both fail, and is undecided where only the worst set falls short. The
           claim is not out of reach, as jin.prompt-length and jin.pretraining are: networks that
           find no components and clusters in real data would contradict the slide
Chosen     after results were seen: five times as many tables, because a first run with fewer was
           undecided; clusters were judged by the mean over the sets, and are now judged by the
           worst
Note       n is never larger than in training. iris has too few features for d = 5 and is used for
           three clouds alone. Classes of a set are no Gaussian clouds: KMeans misses them too
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from scipy import special
from torch import Tensor

from innerloop.algorithms.spectral_clustering import SpectralClustering
from innerloop.claims.base import claim
from innerloop.claims.baselines import cluster_points
from innerloop.claims.datasets import draw_clouds, draw_tables
from innerloop.claims.encoders import (
    TrainedEncoder,
    join_checks,
    join_trainings,
    load_encoders,
    measure_sine_squares,
    run_steps,
)
from innerloop.claims.evidence import Axis, Check, Evidence, Figure
from innerloop.claims.figures import draw_lines
from innerloop.claims.intervals import check_within, estimate_mean
from innerloop.claims.recorded import name_seeds
from innerloop.claims.yang2025.clouds import label_points, score_instances
from innerloop.problems.base import sample_sphere
from innerloop.problems.binary_mixture import BinaryMixture
from innerloop.problems.gaussian_mixture import ClusteringProblem
from innerloop.problems.principal_components import PCAProblem


class Kind(NamedTuple):
    """What a network must reach on each set, and the threshold, which is ours."""

    statement: str
    what: str
    least: float
    ours: str


COMPONENTS = Kind(
    "PCA: mean $|cos|$ to the leading eigenvector is at least 0.9",
    "mean $|cos|$",
    0.9,
    "0.9; five times as many tables as in a first run, which was undecided",
)
CLUSTERS = Kind(
    "clusters: the mean ARI is at least that of KMeans minus 0.1",
    "difference of ARI",
    -0.1,
    "0.1; judging every set was chosen after the mean over the sets was seen",
)
TABLES = ("iris", "wine", "breast cancer", "digits", "crosses of digits")
CLASSES: tuple[tuple[str, list[int]], ...] = (
    ("iris", [0, 1, 2]),
    ("wine", [0, 1, 2]),
    ("digits", [0, 1, 2]),
    ("digits", [3, 6, 8]),
    ("breast cancer", [0, 1]),
    ("wine", [0, 1]),
    ("wine", [1, 2]),
    ("digits", [0, 1]),
    ("digits", [4, 9]),
)
"""Sets and classes; iris has four features, too few for pairs, whose transformer takes five."""
BASELINE = "KMeans, ten starts"
STEPS = 8
"""Number of steps of spectral clustering that are shown."""
Data = dict[str, Any]
"""Cosines by training and set; ARI by classes, of each network of `networks` and of KMeans."""


def judge_sets(data: Data) -> Evidence:
    trainings = [
        {name: scores[network] - scores[BASELINE] for name, scores in data["ari"].items()}
        for network in data["networks"]
    ]
    parts = [
        replace(
            join_trainings([_check_sets(each, kind) for each in found]),
            reading="on every set, ours: the slide says 'validate', and prints no set",
            other_readings={
                "on the mean over the sets": join_checks([_check_mean(e, kind) for e in found])
            },
        )
        for found, kind in ((data["cosines"], COMPONENTS), (trainings, CLUSTERS))
    ]
    rows = [
        {"set": name, "ari": float(each.mean()), "method": method}
        for name, scores in data["ari"].items()
        for method, each in scores.items()
    ]
    return Evidence(
        parts=parts,
        table=[
            {"set": name, "training": k, "mean |cos|": float(cosines.mean())}
            for k, each in enumerate(data["cosines"])
            for name, cosines in each.items()
        ],
        figures=[
            Figure(
                title="Real classes, clustered by transformers trained on Gaussian clouds",
                rows=rows,
                x=Axis(field="ari", title="mean adjusted Rand index"),
                y=Axis(field="set", title="set and classes", scale="category"),
                colour=Axis(field="method", title="method", scale="category"),
                mark="point",
                caption=data["about"],
            ),
            draw_lines(
                "Two clouds: layers against steps of spectral clustering",
                [
                    {"k": k, "wrong": max(share, 1e-4), "of": name}
                    for name, shares in data["curves"].items()
                    for k, share in enumerate(shares, 1)
                ],
                "k: layers or steps",
                "wrong: share of wrong points",
                "of: of",
                log="y",
                rules={"Bayes rule that knows the clouds": data["bayes"]},
                caption="Fresh Gaussian problems, drawn as in training.",
            ),
        ],
    )


def _check_sets(values: dict[str, Tensor], kind: Kind) -> Check:
    """Check the worst set; where it alone falls short of the threshold, nothing is decided."""
    worst, mean = _check_worst(values, kind), _check_mean(values, kind)
    if worst.passed is False and mean.passed is not False:
        told = f"{worst.summary}; on the mean over the sets: {mean.outcome}, {mean.summary}"
        return replace(worst, passed=None, summary=told, counterexample="")
    return worst


def _check_worst(values: dict[str, Tensor], kind: Kind) -> Check:
    found = {name: estimate_mean(each) for name, each in values.items()}
    worst = min(found, key=lambda name: found[name].low)
    listed = "; ".join(f"{name} {value.value:.3f}" for name, value in found.items())
    return check_within(
        f"{kind.statement} on every set",
        found[worst],
        least=kind.least,
        what=f"{kind.what} on the worst of {len(found)} sets ({listed}), {worst}, "
        f"{len(values[worst])} samples",
        ours=kind.ours,
    )


def _check_mean(values: dict[str, Tensor], kind: Kind) -> Check:
    return check_within(
        f"{kind.statement} on the mean over the sets",
        estimate_mean(torch.cat(list(values.values()))),
        least=kind.least,
        what=f"{kind.what}, {len(values)} sets",
        ours=f"{abs(kind.least):g}",
    )


def lose_sets(data: Data) -> Data:
    """Make data of networks that are off by 60° on every set, and cluster with an ARI of 0."""
    return {
        **data,
        "cosines": [
            {name: torch.full_like(row, 0.5) for name, row in each.items()}
            for each in data["cosines"]
        ],
        "ari": {
            name: {
                method: torch.full_like(own, 0.5 if method == BASELINE else 0.0)
                for method, own in scores.items()
            }
            for name, scores in data["ari"].items()
        },
    }


SMALL = {
    "pca": {"d": 4, "n": 8, "width": 8, "hidden": 4, "batch": 4, "steps": 2},
    "gaussian-mixture": {"d": 2, "n": 12, "width": 12, "hidden": 4, "batch": 4, "steps": 2}
    | {"starts": True},
    "binary-mixture": {"d": 3, "n": 8, "width": 8, "hidden": 4, "batch": 4, "steps": 2},
}


@claim(
    "yang2025.he.real-data",
    "Transformers pre-trained on synthetic problems find components and clusters of real data.",
    where="Sixth paper (Learning spectral methods by transformers): key contributions, 3",
    kind="ordering",
    hypotheses={"sets of scikit-learn, standardised": "ours: the slide prints no set"},
    missing="The slides print neither the real sets nor the measure and its values.",
    quick={
        "components": name_seeds("pca-relu", 3),
        "clouds": ["clusters-gaussian", "clusters-binary"],
        "sets": list(TABLES),
        "samples": 60,
    },
    full={
        "components": name_seeds("pca-relu", 3),
        "clouds": [name_seeds("clusters-gaussian", 3), name_seeds("clusters-binary", 3)],
        "sets": list(TABLES),
        "samples": 1000,
    },
    # Untrained networks find nothing, and leave falsified data nothing to contradict.
    tiny={
        "components": name_seeds("pca-relu", 1),
        "clouds": ["clusters-gaussian", "clusters-binary"],
        "sets": ["wine"],
        "samples": 3,
    },
    judge=judge_sets,
    falsified={"networks that find nothing": lose_sets},
)
def he_real_data(
    generator: torch.Generator,
    *,
    components: Sequence[str | None],
    clouds: Sequence[str | Sequence[str | None]],
    sets: Sequence[str],
    samples: int,
) -> Data:
    networks = list(load_encoders("pca", components, SMALL["pca"]).values())
    sizes = {"d": networks[0].recipe.d, "n": networks[0].recipe.n, "count": 5 * samples}
    power = measure_power(networks[0])
    usable = [name for name in sets if name != "iris" or sizes["d"] <= IRIS_FEATURES]
    tables = {name: draw_tables(name, **sizes, power=power, generator=generator) for name in usable}
    three, two = (
        load_encoders(recipe, names, SMALL[recipe])
        for recipe, names in zip(("gaussian-mixture", "binary-mixture"), clouds, strict=True)
    )
    cloud, pair = (next(iter(each.values())) for each in (three, two))
    return {
        "networks": list(three),
        "cosines": [
            {name: measure_cosines(each, problem) for name, problem in tables.items()}
            for each in networks
        ],
        "ari": {
            f"{name}, classes {', '.join(map(str, classes))}": measure_ari(
                three if len(classes) > 2 else two, name, classes, samples, generator
            )
            for name, classes in CLASSES
        },
        "about": f"{cloud.description}; pairs: {pair.description}.",
        **measure_pairs(pair, 5 * samples, generator),
    }


IRIS_FEATURES = 4


def measure_power(network: TrainedEncoder) -> float:
    """The mean ‖x‖² of the training problems."""
    problem = network.build_distribution().sample(500, generator=torch.Generator().manual_seed(0))
    return float(problem.x.square().sum(dim=-1).mean())


def measure_cosines(network: TrainedEncoder, problem: PCAProblem) -> Tensor:
    """|cos| between the direction of the last layer and the leading eigenvector."""
    sines = measure_sine_squares(network.answer(problem)[-1:, :, :1], problem)
    return (1 - sines[0]).clamp_min(0.0).sqrt()


def measure_pairs(
    network: TrainedEncoder, examples: int, generator: torch.Generator
) -> dict[str, Any]:
    """Shares of wrong points after layers, and after steps of spectral clustering."""
    law = network.build_distribution()
    assert isinstance(law, BinaryMixture)
    problem = law.sample(examples, generator=generator)
    steps = run_steps(SpectralClustering(torch.tensor(0.1, dtype=torch.float64)), problem, STEPS)
    return {
        "curves": {
            "transformer, layers": count_wrong(network.answer(problem), problem),
            "spectral clustering, steps": count_wrong(steps[1:], problem),
        },
        "bayes": float(special.ndtr(-law.separation)),
    }


def count_wrong(answers: Tensor, problem: PCAProblem) -> list[float]:
    """The mean share of points with the wrong sign, up to a common sign, by layer or step."""
    assert problem.labels is not None
    share = (answers[..., 0].sign() != problem.labels).double().mean(dim=-1)
    return torch.minimum(share, 1 - share).mean(dim=-1).tolist()


def measure_ari(
    networks: Mapping[str, TrainedEncoder],
    name: str,
    classes: list[int],
    samples: int,
    generator: torch.Generator,
) -> dict[str, Tensor]:
    """ARI of the networks and of KMeans on samples of some classes of a set."""
    first, *_ = networks.values()
    clouds = draw_clouds(
        name,
        classes,
        d=first.recipe.d,
        n=first.recipe.n,
        count=samples,
        power=measure_power(first),
        generator=generator,
    )
    if first.recipe.name == "binary-mixture":
        pair = as_pair(clouds, generator)
        found = {k: (each.answer(pair)[-1, ..., 0] < 0).long() for k, each in networks.items()}
    else:
        found = label_points(networks, clouds)
    found[BASELINE] = cluster_points(BASELINE, clouds.x, len(classes))
    return {method: score_instances(labels, clouds)["ari"] for method, labels in found.items()}


def as_pair(clouds: ClusteringProblem, generator: torch.Generator) -> PCAProblem:
    """The points of two classes as a problem of spectral clustering."""
    start = sample_sphere(1, clouds.d, tuple(clouds.x.shape[:1]), generator)
    return PCAProblem(clouds.x, start)
