"""Sparse recovery: LISTA-VM in a forward pass, beside ISTA, FISTA, lasso and a trained Small TF.

The sizes are those of the recorded networks: 10 measurements of 20 coefficients, most of which are
0. LISTA-VM runs with learned matrices and thresholds if they are installed, and otherwise with one
step size for all steps.
"""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar

import torch
from torch import Tensor

from innerloop.algorithms.fista import FISTA
from innerloop.algorithms.ista import ISTA
from innerloop.algorithms.regression import to_scalar_tensor
from innerloop.certification.building import BuiltTransformer
from innerloop.claims.recorded import load_recorded
from innerloop.errors import FileError
from innerloop.lab.builds import describe_certificate, describe_difference, get_build
from innerloop.lab.controls import SEED, Control, Slider, Values, read_list, read_number
from innerloop.lab.python import DIGITS, format_value
from innerloop.lab.recording import Recording, describe_run, record
from innerloop.lab.scene import Scene
from innerloop.problems.linear_regression import RegressionProblem
from innerloop.problems.sparse_recovery import SparseRecovery
from innerloop.progress import Progress
from innerloop.solving.solve import solve

D, N, STEPS = 20, 10, 12
BOUND, INSTANCES = 1e6, 4
"""The construction's largest |⟨β, x⟩|, and the instances of its certificate; more take seconds."""
REACH = 2.5
FLOOR = 1e-6
NOISE = Slider("noise", "noise of the measurements", 0.0, 0.5, 0.05, 0.0)
LASSO_GAP = 1e-4
"""The largest duality gap of the lasso, as a share of ½ mean y²; drawings show three digits."""
PENALTY = Slider("penalty", "penalty of ISTA, FISTA and lasso", 0.05, 1.0, 0.05, 0.2)


class SparseRecoveryScene(Scene):
    """Display the coefficients of a sparse recovery problem after every layer."""

    place: ClassVar[int] = 4
    tab: ClassVar[str] = "Sparse recovery"
    title: ClassVar[str] = "Twenty coefficients from ten measurements"
    hint: ClassVar[str] = (
        "Drag the hollow bars: the true coefficients, most of them zero. From half as many "
        "measurements as unknowns the few that count can often be found, though not always. ISTA "
        "needs far more than twelve steps; LISTA-VM has learned to hurry."
    )
    controls: ClassVar[tuple[Control, ...]] = (NOISE, PENALTY)

    def run(self, values: Values, progress: Progress) -> dict[str, Any]:
        noise, penalty = NOISE.read(values), PENALTY.read(values)
        seed = SEED.read_whole(values)
        truth = read_coefficients(values)
        problem = make_problem(truth, noise, seed)
        learned, origin = load_learned()
        sizes = {"d": D, "n": N, "steps": STEPS, "bound": BOUND}
        built = get_build("lista-vm", progress, instances=INSTANCES, **sizes, **learned)
        recording = record(built, problem)
        streams = torch.stack([recording.after_step(k) for k in range(STEPS + 1)])
        ours = recording.layout.read(streams, "beta")[:, -1]
        states = built.construction.algorithm.states(problem, STEPS)
        reference = torch.stack([state[-1] for state in states])
        methods = run_methods(problem, penalty)
        trained, absence = run_trained(problem)
        if trained is not None:
            methods = {"trained Small TF": trained, **methods}
        lines = {"LISTA-VM transformer": ours, "LISTA-VM": reference, **methods}
        kinds = dict(zip(lines, ("transformer", "reference", "s5", "s2", "s3", "s4"), strict=False))
        notes = [describe_estimate(beta, problem.weights) for beta in ours]
        tokens = [f"{kind} {m}" for m in range(1, N + 1) for kind in ("x", "(x, y)")]
        remarks = [f"Its matrices: {origin}.", describe_prefixes(built, recording), absence]
        here = " ".join([describe_difference(ours, reference), *filter(None, remarks)])
        return {
            **describe_run(recording, notes, [*tokens, "query"]),
            "picture": {
                "truth": truth,
                "methods": [
                    {"name": name, "kind": kinds[name], "values": line.tolist()}
                    for name, line in lines.items()
                    if name != "LISTA-VM"
                ],
            },
            "error": {
                "label": "distance from the true coefficients",
                "series": [
                    {"name": name, "kind": kinds[name], "values": measure(line, problem.weights)}
                    for name, line in lines.items()
                ],
            },
            "certificate": describe_certificate(built.certificate, here),
            "python": write_program(truth, noise, seed),
        }


def describe_prefixes(built: BuiltTransformer, recording: Recording) -> str:
    """Return a remark if tokens with fewer measurements leave the certified range, or ""."""
    if built.construction.usage(recording.after_step(STEPS)) <= 1:
        return ""
    return (
        "They were learned for all ten measurements: with fewer of them, in tokens before the "
        "query, the algorithm diverges here beyond the certified range."
    )


def read_coefficients(values: Values) -> list[float]:
    """Read the true coefficients from a request."""
    entries = read_list(values.get("truth"), "truth", D, D)
    truth = [read_number(part, f"truth, entry {k}") for k, part in enumerate(entries, 1)]
    return [round(max(-REACH, min(REACH, part)), DIGITS) for part in truth]


def make_problem(truth: list[float], noise: float, seed: int) -> RegressionProblem:
    """Make the problem of the true coefficients, with random rows of X that the seed fixes."""
    generator = torch.Generator().manual_seed(seed)
    drawn = SparseRecovery(d=D, n=N).sample(generator=generator)
    weights = torch.tensor(truth, dtype=torch.float64)
    y = drawn.x @ weights + noise * torch.randn(N, generator=generator, dtype=torch.float64)
    return RegressionProblem(drawn.x, y, drawn.x_query, weights)


@cache
def load_learned() -> tuple[dict[str, Any], str]:
    """Return the matrices and thresholds of LISTA-VM, and a description of their origin."""
    try:
        model: Any = load_recorded("sparse", "lista-vm").model
    except FileError:
        plain = {"preconditioners": "identity", "step_size": 0.3, "threshold": 0.03}
        return plain, "one step size for all, since the learned ones are not here"
    matrices = model.matrices().detach().double().tolist()
    thresholds = model.thresholds.detach().double().tolist()
    return {"preconditioners": matrices, "threshold": thresholds}, "learned, one for each step"


def run_methods(problem: RegressionProblem, penalty: float) -> dict[str, Tensor]:
    """Return the coefficients of ISTA and FISTA after every step, and those of the lasso."""
    alpha = to_scalar_tensor(penalty)
    ista, fista = ISTA(alpha), FISTA(alpha)
    # scikit-learn divides the squared error by 2n instead of 2, and so the penalty by n.
    options = {"fit_intercept": False, "tolerance": LASSO_GAP}
    weights = solve("lasso", problem.x, problem.y, penalty=penalty / N, **options).coef[0]
    return {
        "ISTA": torch.stack(list(ista.states(problem, STEPS))),
        "FISTA": torch.stack([state.weights for state in fista.states(problem, STEPS)]),
        "lasso": weights.expand(STEPS + 1, D),
    }


@cache
def load_trained() -> Any:
    """Load the recorded Small TF."""
    return load_recorded("sparse", "small-transformer")


@torch.no_grad()
def run_trained(problem: RegressionProblem) -> tuple[Tensor | None, str]:
    """Return the coefficients of the trained network after every layer, and an empty remark.

    If the network is not installed, return None and a remark about that.
    """
    try:
        trained = load_trained()
    except FileError:
        return None, "The trained Small TF is not here: run the lab from a checkout to see it."
    prompt = trained.recipe.construction.prompt(problem).float()
    streams = [snapshot.stream for snapshot in trained.model.machine.trace(prompt)]
    weights = [trained.model.read_weights(stream)[-1].double() for stream in streams]
    return torch.stack(weights).nan_to_num(0.0).clamp(-1e3, 1e3), ""


def measure(line: Tensor, truth: Tensor | None) -> list[float]:
    """Return the distance between estimated and true coefficients after every step."""
    assert truth is not None
    return (line - truth).norm(dim=-1).clamp_min(FLOOR).tolist()


def describe_estimate(beta: Tensor, truth: Tensor | None) -> str:
    """Return a note on the number of nonzero coefficients and the distance to the true ones."""
    assert truth is not None
    nonzero, true_nonzero = int((beta != 0).sum()), int((truth != 0).sum())
    off = float((beta - truth).norm())
    return f"{nonzero} of {D} coefficients are not zero ({true_nonzero} in truth), off by {off:.2g}"


def write_program(truth: list[float], noise: float, seed: int) -> str:
    """Write the program that prints the transformer's coefficients after every step."""
    learned, _ = load_learned()
    if isinstance(learned["preconditioners"], str):
        weights = ", ".join(f"{name}={value!r}" for name, value in learned.items())
        load = ""
    else:
        weights = (
            "preconditioners=learned.matrices().tolist(), threshold=learned.thresholds.tolist()"
        )
        load = (
            "from innerloop.claims.recorded import load_recorded\n\n"
            'learned = load_recorded("sparse", "lista-vm").model\n'
        )
    return f"""import torch

import innerloop
{load}
truth = torch.tensor({format_value(truth)}, dtype=torch.float64)
generator = torch.Generator().manual_seed({seed})
drawn = innerloop.SparseRecovery(d={D}, n={N}).sample(generator=generator)
noise = {noise!r} * torch.randn({N}, generator=generator, dtype=torch.float64)
problem = innerloop.RegressionProblem(drawn.x, drawn.x @ truth + noise, drawn.x_query)
built = innerloop.build(
    "lista-vm", d={D}, n={N}, steps={STEPS}, bound={BOUND}, instances={INSTANCES},
    {weights},
)
assert built.certificate.holds
trace = built.trace(problem)
for step in range({STEPS + 1}):
    print(step, trace.after_step(step)["beta"][-1].tolist())
"""
