"""Compare the time of identification with a loop of SciPy fits over candidates and layers.

A 12-layer LISTA-VM with 20 features is identified with every candidate and the default settings.
The loop fits each candidate to each layer with scipy.optimize.least_squares: step k to layer k,
from the first guess, on 64 prompts. It leaves out the candidates with a matrix for each step, for
which finite differences would take hours; one of them is the correct algorithm. The loop is
measured on the first and the last layer, and its time is scaled to all layers. All times are CPU
times on one thread.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
from common import record
from scipy.optimize import least_squares

from innerloop.algorithms.base import Algorithm
from innerloop.constructions.lista_vm import ListaVMConstruction
from innerloop.errors import InputError
from innerloop.identification.fitting import MANY_UNKNOWNS, MIN_PROMPTS
from innerloop.identification.hyper import pack_parameters, predict_steps, unpack_parameters
from innerloop.identification.identification import identify
from innerloop.identification.models import ConstructionModel, predict_layers

D, LAYERS, SHOWN, CLAIMED, ALLOWED = 20, 12, (0, 11), 2, 60
"""Features, layers, layers on which the loop is measured, the required ratio, and the allowed CPU
seconds, which correspond to 30 seconds on two cores."""


def fit_with_scipy(guess: Algorithm[Any, Any], problem: Any, target: Any, step: int) -> float:
    """Fit the parameters of a candidate so that one step matches one layer; return the cost."""

    def residual(numbers: Any) -> Any:
        try:
            moved = unpack_parameters(guess, torch.from_numpy(numbers))
            with torch.no_grad():
                error = (predict_steps(moved, problem, step)[-1] - target).flatten()
        except InputError:
            return 1e6 * torch.ones(target.numel()).numpy()
        return error.nan_to_num(1e6, 1e6, -1e6).clamp(-1e6, 1e6).numpy()

    start = pack_parameters(guess).numpy()
    return float(least_squares(residual, start).cost) if len(start) else 0.0


def main() -> None:
    begin = time.perf_counter()
    torch.set_num_threads(1)
    construction = ListaVMConstruction(d=D, steps=LAYERS)
    model = ConstructionModel(construction, construction.transformer)
    start = time.process_time()
    identification = identify(model)
    ours = time.process_time() - start
    count = len(identification.matches)
    print(f"verdict: {identification.verdict}, in {ours:.0f} s for {count} candidates")
    few = identification.problem[:MIN_PROMPTS]
    layers = predict_layers(model, few)
    looped, names = 0.0, []
    for match in identification.matches:
        guess, schedule = match.candidate.guesses[0], match.candidate.schedule
        if schedule == "per step" or len(pack_parameters(guess)) > MANY_UNKNOWNS:
            continue
        names.append(match.candidate.label)
        start = time.process_time()
        for layer in SHOWN:
            step = 0 if schedule == "exact" else layer + 1
            fit_with_scipy(guess, match.candidate.view(few), layers[layer], step)
        looped += time.process_time() - start
    theirs = looped * LAYERS / len(SHOWN)
    ratio = theirs / ours
    print(f"loop over {len(names)} of them: {theirs:.0f} s ({len(SHOWN)} layers: {looped:.1f} s)")
    print(f"{ratio:.1f} times faster; claimed: at least {CLAIMED}, within {ALLOWED} s")
    settings = {
        **{"d": D, "layers": LAYERS, "prompts": 256, "layers_looped": len(SHOWN)},
        **{
            "candidates": [match.candidate.label for match in identification.matches],
            "looped": names,
        },
    }
    results = {"identify": ours, "loop_scaled": theirs, "loop_measured": looped, "ratio": ratio}
    record("identify_fits", begin, settings, {**results, "verdict": identification.verdict})
    if ratio < CLAIMED or ours > ALLOWED or identification.algorithm != "lista-vm":
        sys.exit("the claim does not hold in this run")


if __name__ == "__main__":
    main()
