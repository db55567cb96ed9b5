"""Run one cell in a worker, on one thread, and return its result as JSON text.

The result is text so that no object that a claim returns or raises has to be pickled.
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
"""The digest of the code when this worker loaded it."""


def run_cell(module: str, id: str, settings: dict[str, Any], seed: int, device: str = "cpu") -> str:
    """Run a cell and return a JSON object: `{"found", "seconds", "lookups", "package", "weights"}`.

    The object is `{"error"}` if the check raised an exception, and `{"unavailable"}` if this
    machine lacks a library or recorded weights that the check needs.
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
            # With one thread, every machine and engine computes the same numbers: a sum that is
            # split among threads is rounded differently.
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
