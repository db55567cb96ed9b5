"""What a worker does: run one cell, on one thread, and tell what it found as text.

Text, so that nothing which a claim returns or raises needs to travel as an object.
"""

from __future__ import annotations

import importlib
import json
import time
import traceback
from typing import Any

from innerloop.claims.base import Claim
from innerloop.ledger.code import package, weights

PACKAGE = package()
"""The code as it was when this worker loaded it."""


def run_cell(module: str, id: str, settings: dict[str, Any], seed: int) -> str:
    """`{"found", "seconds", "package", "weights"}` of a cell, or `{"error"}` where it broke."""
    import torch
    from threadpoolctl import threadpool_limits

    try:
        (claim,) = (
            value
            for value in vars(importlib.import_module(module)).values()
            if isinstance(value, Claim) and value.id == id
        )
        # The same numbers on every machine and engine: sums split among threads round differently.
        torch.set_num_threads(1)
        used = weights(settings)
        with threadpool_limits(1):
            start = time.perf_counter()
            found = claim.run(settings, seed)
            seconds = time.perf_counter() - start
        told = {"found": found, "seconds": seconds, "package": PACKAGE, "weights": used}
        return json.dumps(told, allow_nan=False)
    except Exception:
        return json.dumps({"error": traceback.format_exc()})
