"""Training LISTA-VM: our schedule, and Adam at a constant rate as in the paper, in one run.

d = 20, n = 10, S = 3, K = 12, 512 instances a step, float32, one thread. All begin with the same
model and weights, and have the same number of steps; a constant rate is tried at three values.
Told are the steps and seconds to a given loss, and the last loss. The loss is E ‖β̂ − β‖² on 4,096
held-out instances, looked at every 25 steps.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from common import record

from innerloop.recipes.base import train

STEPS, TARGET = 600, 0.75
RATES = (1e-3, 5e-3, 2e-2)


def measured(**settings: Any) -> dict[str, Any]:
    """The last loss, and steps and seconds to the target where it is reached."""
    history = train("lista-vm-learned", steps=STEPS, evaluate_every=25, **settings).history
    first = next((row for row in history if row["loss"] <= TARGET), None)
    done = {} if first is None else {"steps": first["step"], "seconds": first["seconds"]}
    return {"last loss": history[-1]["loss"], **done}


def main() -> None:
    start = time.perf_counter()
    torch.set_num_threads(1)
    runs = {"cosine, 0.02": measured()}
    runs |= {
        f"constant, {rate}": measured(schedule="constant", learning_rate=rate) for rate in RATES
    }
    for name, found in runs.items():
        reached = f"in {found['steps']} steps" if "steps" in found else "never"
        print(f"{name}: {TARGET} {reached}; after {STEPS} steps {found['last loss']:.3f}")
    record("lista_vm_training", start, {"steps": STEPS, "target": TARGET}, {"runs": runs})


if __name__ == "__main__":
    main()
