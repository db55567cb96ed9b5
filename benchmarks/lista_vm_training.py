"""Compare the training of LISTA-VM by our recipe with Adam at a constant rate as in the paper.

d = 20, n = 10, S = 3, K = 12, 512 instances per step, float32, one thread. Ours starts with the
steps of Chebyshev's polynomial, stretches some X and ends with a small rate. The paper does not
specify its start: the comparisons start with the steps of ISTA, at three constant rates, without
stretching X; ours is also run without each of its parts.
Reported are the steps and seconds to the paper's loss, and the last loss. The loss is E ‖β̂ − β‖² on
4,096 held-out instances, evaluated every 25 steps.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from common import record

from innerloop.recipes.base import train

STEPS, TARGET = 600, 0.68
RATES = (1e-3, 5e-3, 2e-2)


def measure(**settings: Any) -> dict[str, Any]:
    """Measure the final loss, and the steps and seconds to reach the target, if it is reached."""
    history = train("lista-vm-learned", steps=STEPS, evaluate_every=25, **settings).history
    first = next((row for row in history if row["loss"] <= TARGET), None)
    reached = {} if first is None else {"steps": first["step"], "seconds": first["seconds"]}
    return {"last loss": history[-1]["loss"], **reached}


def main() -> None:
    start = time.perf_counter()
    torch.set_num_threads(1)
    runs = {
        "Chebyshev's steps, cosine, 0.02": measure(),
        "Chebyshev's steps, constant, 0.02": measure(schedule="constant"),
        "ISTA's steps, cosine, 0.02": measure(start="ista"),
        "Chebyshev's steps, cosine, 0.02, X as they are": measure(stretch=1.0),
    }
    runs |= {
        f"ISTA's steps, constant, {rate}": measure(
            start="ista", stretch=1.0, schedule="constant", learning_rate=rate
        )
        for rate in RATES
    }
    for name, run in runs.items():
        reached = f"in {run['steps']} steps" if "steps" in run else "never"
        print(f"{name}: {TARGET} {reached}; after {STEPS} steps {run['last loss']:.3f}")
    record("lista_vm_training", start, {"steps": STEPS, "target": TARGET}, {"runs": runs})


if __name__ == "__main__":
    main()
