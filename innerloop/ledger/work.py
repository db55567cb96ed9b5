"""What a worker does: run one cell, on one thread, and report what it found as text.

Text, so that nothing which a claim returns or raises needs to travel as an object.
"""

from __future__ import annotations

import json
import time
import traceback
from typing import Any

from innerloop.claims.base import Claim
from innerloop.devices import use_device
from innerloop.errors import FileError, MissingLibraryError
from innerloop.ledger.code import digest_weights
from innerloop.locations import load_module
from innerloop.provenance import digest_package
from innerloop.registry import record_lookups

PACKAGE = digest_package()
"""The code as it was when this worker loaded it."""


def run_cell(module: str, id: str, settings: dict[str, Any], seed: int, device: str = "cpu") -> str:
    """Run a cell: `{"found", "seconds", "lookups", "package", "weights"}`, or why there is nothing.

    `{"error"}` where the check broke, `{"unavailable"}` where this machine lacks what it needs: a
    library, or recorded weights.
    """
    import torch
    from threadpoolctl import threadpool_limits

    try:
        with record_lookups() as lookups:
            (claim,) = (
                value
                for value in vars(load_module(module)).values()
                if isinstance(value, Claim) and value.id == id
            )
            # The same numbers on every machine and engine: sums split among threads round
            # differently.
            torch.set_num_threads(1)
            used = digest_weights(settings)
            with threadpool_limits(1), use_device(device):
                start = time.perf_counter()
                measurements = claim.run(settings, seed)
                seconds = time.perf_counter() - start
        about = {"seconds": seconds, "package": PACKAGE, "weights": used}
        return json.dumps(
            {"found": measurements, "lookups": sorted(lookups), **about}, allow_nan=False
        )
    except (MissingLibraryError, FileError) as error:
        return json.dumps({"unavailable": str(error)})
    except Exception:
        return json.dumps({"error": traceback.format_exc()})
