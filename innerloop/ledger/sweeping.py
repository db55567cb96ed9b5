"""Run a sweep: train all of its runs with the engines that also check claims.

Runs that are finished are not run again. If a worker is lost or dies, its run continues from the
last checkpoint. A run that fails, or whose workers keep dying, is reported, and the others still
run. Workers write into the folder of the sweep, so the workers of a cluster must have access to it.
"""

from __future__ import annotations

import json
import platform
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

from innerloop.devices import choose_device
from innerloop.errors import FileError, InputError
from innerloop.jsonfiles import parse_object
from innerloop.ledger.engines import Engine, parse_engine
from innerloop.ledger.processes import EngineLostError
from innerloop.links import resolve_links
from innerloop.locations import describe_failure
from innerloop.progress import Progress, ignore_progress
from innerloop.provenance import digest_package
from innerloop.recipes.base import list_seeds, train_in
from innerloop.recipes.sweeps import SWEEP_FILE, PlannedRun, Sweep, SweepResult
from innerloop.training.loop import DivergedError

MAX_BUSY = 20
"""Number of attempts for a run whose folder is locked by a worker that was lost but still runs."""
SECONDS_WHEN_BUSY = 3.0
"""Seconds that a worker waits before it reports a locked folder."""


def sweep(
    recipe: str,
    /,
    grid: Mapping[str, Sequence[Any]],
    folder: str | Path,
    *,
    seeds: int = 1,
    seed: int = 0,
    workers: int | None = None,
    engine: str = "local",
    device: str = "cpu",
    progress: Progress = ignore_progress,
    notice: Callable[[str], None] = lambda text: None,
    **settings: Any,
) -> SweepResult:
    """Train a recipe with every combination of a grid of settings, and several seeds of each.

    Args:
        recipe: A name, `module:attribute` or `file.py:attribute` (which is imported, and so runs).
        grid: The values of each setting that varies.
        folder: The folder of the sweep. Runs that are finished there are not run again.
        seeds: Number of runs of each combination, with the seeds `seed`, `seed + 1`, …
        seed: The first seed.
        workers: Number of processes; by default, one for each core.
        engine: `local`, or `dask:ADDRESS` for a Dask cluster that has access to the folder.
        device: "cpu", "cuda", "mps" or "auto".
        progress: Called with the share of runs that have ended, and a text.
        notice: Called with one line of text for each event that the user should know.
        **settings: Settings of all runs.

    Returns:
        The rows of the table, the best run, and the reason for each run that failed.
    """
    choose_device(device)
    start = parse_engine(engine, workers, task="training")
    place = Path(folder).absolute()
    planned = Sweep(
        resolve_links(place), _make_absolute(recipe), settings, grid, list_seeds(seed, seeds)
    )
    planned.check_recipes()
    result = SweepResult.read(planned.write())
    failures = _run_missing(planned, place, result, start, device, progress, notice)
    result = replace(result, failures=failures)
    result.write_table()
    return result


def _make_absolute(recipe: str) -> str:
    """Make the path of a recipe's file absolute, for a worker in another folder."""
    place, colon, attribute = recipe.rpartition(":")
    return f"{Path(place).absolute()}:{attribute}" if colon and place.endswith(".py") else recipe


def _run_missing(
    planned: Sweep,
    place: Path,
    result: SweepResult,
    start: Callable[[], Engine],
    device: str,
    progress: Progress,
    notice: Callable[[str], None],
) -> dict[str, str]:
    """Run the missing runs, add their rows to the result, and return why runs failed.

    `place` is the folder of the sweep as the user named it. On a worker's machine, links on the way
    to that folder may differ.
    """
    pending = deque(run for run in planned.runs if not result.has_row(run))
    finished, total = len(planned.runs) - len(pending), len(planned.runs)
    if finished:
        notice(f"{finished} of {total} runs are finished already and kept")
    if not pending:
        return {}
    failures: dict[str, str] = {}
    tries, running = Counter[tuple[Path, str]](), dict[Future[str], PlannedRun]()
    engine = start()
    try:
        while pending or running:
            while pending and len(running) < engine.slots:
                run = pending.popleft()
                settings = {**planned.settings, **run.point}
                folder = place / run.folder.relative_to(planned.folder)
                work = (planned.recipe, settings, run.seed, str(folder), device)
                running[engine.submit(*work)] = run
            progress(1 - (len(pending) + len(running)) / total, f"{len(running)} runs under way")
            if message := engine.check_health():
                notice(message)
            for future in wait(running, timeout=0.5, return_when=FIRST_COMPLETED).done:
                run = running.pop(future)
                again, reason = _collect(future, engine, tries, run)
                if again:
                    notice(f"{run.folder}: {reason}, it will run again")
                    pending.append(run)
                elif reason:
                    failures[str(run.folder)] = reason
                    notice(f"{run.folder}: {reason}")
                else:
                    result.add_row(run)
                    result.write_table()
    except EngineLostError as error:
        raise InputError(f"{error}; finished runs are stored, the same command continues") from None
    finally:
        engine.close()
    return failures


def _collect(
    future: Future[str], engine: Engine, tries: Counter[tuple[Path, str]], run: PlannedRun
) -> tuple[bool, str]:
    """Return whether a run must be run again, and the error, which is empty after a success."""
    deaths, busy = (run.folder, "deaths"), (run.folder, "busy")
    try:
        message = parse_object(future.result())
    except (Exception, CancelledError) as error:
        engine.check_health(error)
        if not engine.is_worker_death(error):
            return False, f"the engine failed: {type(error).__name__}: {error}"
        tries[deaths] += 1
        again = tries[deaths] < engine.max_deaths
        return again, "a worker died" if again else "its workers died (is there enough memory?)"
    if message.get("package") != digest_package():
        return False, "the worker has another version of innerloop: install the same everywhere"
    if "busy" in message:
        tries[busy] += 1
        return tries[busy] < MAX_BUSY, message["busy"]
    return False, message.get("error", "")


def train_run(
    recipe: str, settings: dict[str, Any], seed: int, folder: str, device: str = "cpu"
) -> str:
    """Train one run of a sweep in a worker; return a JSON object, with an error if it failed."""
    from innerloop.training import folder as folders

    about: dict[str, Any] = {"package": digest_package()}
    *_, point, name = Path(folder).parts
    root = resolve_links(Path(folder).parents[1])
    place = root / point / name
    if not (root / SWEEP_FILE).is_file():
        text = f"this worker ({platform.node()}) does not see {root}: share it"
        return json.dumps({**about, "error": text})
    try:
        options: dict[str, Any] = {"resume": True, "device": device, "notice": lambda text: None}
        train_in(place, recipe, settings, seed=seed, **options)
    except DivergedError:
        pass  # the run's folder records the divergence
    except FileError as error:
        busy = folders.is_locked(place)
        if busy:
            time.sleep(SECONDS_WHEN_BUSY)
        return json.dumps({**about, "busy" if busy else "error": str(error)})
    except Exception as error:
        text = str(error) if isinstance(error, InputError) else describe_failure(error)
        return json.dumps({**about, "error": text.partition("\n")[0]})
    return json.dumps(about)
