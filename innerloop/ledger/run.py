"""Check claims: use stored results that are current, and run all other cells.

Each result is stored as soon as its cell is finished. A run that is killed loses only the cells
that were running, and the same command continues from there. A cell is reported as failed if its
code raises an error, if its worker keeps dying or if its file cannot be written; the other cells
still run.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from innerloop.claims.base import PRESETS, Claim, Preset
from innerloop.claims.evidence import Evidence
from innerloop.claims.loading import load_claims
from innerloop.claims.references import make_reference
from innerloop.claims.sources import load_sources, load_statements
from innerloop.errors import FileError
from innerloop.jsonfiles import parse_object
from innerloop.ledger.code import collect_dependencies, digest_weights, find_changes
from innerloop.ledger.engines import Engine
from innerloop.ledger.fieldtypes import check_types
from innerloop.ledger.processes import EngineLostError
from innerloop.ledger.store import Cell, Finished, Store, finish_cell
from innerloop.progress import Progress, ignore_progress
from innerloop.provenance import digest_package

DEFAULT_SECONDS = 5.0
"""Estimated duration of a cell that was never run."""

State = Literal["checked", "not yet checked", "unavailable", "broken"]
"""Unavailable: this machine lacks a library or recorded weights that the claim needs."""


@dataclass(frozen=True)
class Stale:
    """A stored result that another version of the code made. It is shown as stale, and not used."""

    preset: Preset
    made: str
    verdict: str
    changed: tuple[str, ...]
    """Dependencies that changed since: modules, kinds of members, recorded weights."""


@dataclass(frozen=True)
class Failure:
    """Why a cell has no result."""

    reason: str
    state: Literal["broken", "unavailable"] = "broken"
    lost: bool = False
    """Whether the cell did not finish because the engine was lost."""

    @property
    def summary(self) -> str:
        """The reason in one line: the last line of a traceback."""
        last = self.reason.strip().splitlines()[-1]
        return f"broke: {last}" if self.state == "broken" else f"cannot be checked here: {last}"


@dataclass(frozen=True)
class Outcome:
    """The state of a claim after a run: its evidence, or why there is none."""

    id: str
    state: State
    preset: Preset | None = None
    evidence: Evidence | None = None
    seconds: float = 0.0
    made: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    error: str = ""
    command: str = ""
    stale: Stale | None = None
    claim: Claim | None = None
    lost: bool = False
    """Whether the engine was lost before all of its cells had run."""

    @property
    def verdict(self) -> str:
        """The verdict of the evidence, or why there is none."""
        return self.evidence.verdict if self.evidence else self.state

    def as_dict(self) -> dict[str, Any]:
        """Return the claim, its verdict and its evidence as plain JSON data."""
        claim, evidence = self.claim or load_claims().get(self.id), self.evidence
        parts = evidence.parts if evidence else ()
        corrections = [part.corrected for part in parts if part.corrected is not None]
        key = self.id.partition(".")[0]
        return {
            "id": self.id,
            "source": claim.citation if claim else str(load_sources().get(key, key)),
            "reference": make_reference(self.id, claim),
            "brief": load_statements().get(self.id, ""),
            "where": claim.where if claim else "",
            "kind": claim.kind if claim else None,
            "statement": claim.statement if claim else load_statements()[self.id],
            "verdict": self.verdict,
            "label": evidence.label if evidence else self.verdict,
            "hypotheses": dict(claim.hypotheses) if claim else {},
            "restates": claim.original if claim else "",
            "decided_by": claim.decided_by if claim and evidence and evidence.is_open else "",
            "preset": self.preset,
            "seconds": round(self.seconds, 3),
            "printed": [vars(part.printed) for part in parts] or None,
            "corrected": [vars(correction) for correction in corrections] or None,
            "summary": evidence.summary if evidence else self.error,
            "made": self.made,
            "versions": dict(self.versions),
            "command": self.command,
            "evidence": evidence.as_dict() if evidence else None,
            "error": self.error,
            "stale": asdict(self.stale) if self.stale else None,
        }


def _load_all_claims() -> Mapping[str, Claim]:
    return load_claims()


@dataclass
class Run:
    """One run over a selection of claims. With `fresh`, stored results are not used."""

    store: Store
    engine: Callable[[], Engine]
    seed: int = 0
    fresh: bool = False
    device: str = "cpu"
    """Device on which models are trained and run. Only results of the CPU are stored."""
    progress: Progress = ignore_progress
    notice: Callable[[str], None] = lambda text: None
    claims: Mapping[str, Claim] = field(default_factory=_load_all_claims)
    """The claims by id: all registered ones, and those that the caller wrote."""
    write_errors: list[str] = field(default_factory=list)
    """Why finished cells could not be stored; the outcomes still contain their results."""

    def check(self, ids: Sequence[str], preset: Preset, *, fuller: bool = False) -> list[Outcome]:
        """Check claims by id; with `fuller`, stored results of a larger preset are preferred."""
        plans: dict[str, list[Cell]] = {}
        ready: dict[Cell, Finished] = {}
        stale: dict[str, Stale] = {}
        for id in ids:
            if id in self.claims:
                plans[id] = self._plan_cells(self.claims[id], preset, fuller, ready, stale)
        needed = dict.fromkeys(cell for cells in plans.values() for cell in cells)
        missing = [cell for cell in needed if cell not in ready]
        self._announce_stale(stale, missing)
        failures = self._run_cells(missing, ready) if missing else {}
        return [
            replace(
                _make_outcome(self.claims[id], plans[id], ready, failures),
                stale=None if _is_replaced(stale.get(id), plans[id]) else stale.get(id),
            )
            if id in plans
            else Outcome(id, "not yet checked")
            for id in ids
        ]

    def _plan_cells(
        self,
        claim: Claim,
        preset: Preset,
        fuller: bool,
        ready: dict[Cell, Finished],
        stale: dict[str, Stale],
    ) -> list[Cell]:
        """Choose the cells that decide a claim; add stored results to `ready` or `stale`."""
        presets = PRESETS[PRESETS.index(preset) :] if fuller else (preset,)
        for larger in reversed(presets):
            cells = [Cell(claim.cell_id, larger, self.seed, cell) for cell in claim.presets[larger]]
            stored = {} if self.fresh else self._read_stored(cells)
            changes = {cell: self._find_changes(cell, done) for cell, done in stored.items()}
            current = {cell: done for cell, done in stored.items() if not changes[cell]}
            if len(current) == len(cells) or larger == preset:
                ready.update(current)
            if len(current) < len(cells) and len(stored) == len(cells):
                stale.setdefault(claim.id, _make_stale(claim, stored, changes))
            if len(current) == len(cells) or larger == preset:
                return cells
        raise AssertionError("the preset itself comes last")

    def _read_stored(self, cells: Sequence[Cell]) -> dict[Cell, Finished]:
        stored = {cell: self.store.read(cell) for cell in cells}
        return {cell: done for cell, done in stored.items() if done}

    def _find_changes(self, cell: Cell, done: Finished) -> list[str]:
        return find_changes(done.code, self.claims[cell.claim].location, cell.settings)

    def _announce_stale(self, stale: Mapping[str, Stale], missing: Sequence[Cell]) -> None:
        """Report in one line how many stored results are stale, and which modules changed."""
        if not stale:
            return
        changed = Counter(name for result in stale.values() for name in result.changed)
        names = [name for name, _ in changed.most_common(3)]
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        rerun = {(cell.claim, cell.preset) for cell in missing}
        count = sum((id, result.preset) in rerun for id, result in stale.items())
        again = f", {count} of them are run again now" if count else ""
        self.notice(
            f"{len(stale)} stored results are stale{again}: {', '.join(names)}{more} changed"
        )

    def _run_cells(self, cells: Sequence[Cell], ready: dict[Cell, Finished]) -> dict[Cell, Failure]:
        """Run cells; add results to `ready` and return the failures."""
        self.store.tidy()
        seconds = {cell: self._estimate_seconds(cell) for cell in cells}
        engine = self.engine()
        pending, running = deque(cells), dict[Future[str], Cell]()
        deaths, failures = Counter[Cell](), dict[Cell, Failure]()
        done = 0.0
        try:
            while pending or running:
                while pending and len(running) < engine.slots:
                    cell = pending.popleft()
                    if finished := self._find_finished(cell):
                        ready[cell] = finished  # another run in this folder was faster
                        done += seconds[cell]
                        continue
                    location = self.claims[cell.claim].location
                    work = (location, cell.claim, dict(cell.settings), cell.seed, self.device)
                    running[engine.submit(*work)] = cell
                self.progress(
                    done / sum(seconds.values()), ", ".join(cell.claim for cell in running.values())
                )
                if message := engine.check_health():
                    self.notice(message)
                for future in wait(running, timeout=0.5, return_when=FIRST_COMPLETED).done:
                    cell = running.pop(future)
                    result = self._collect_result(cell, future, engine, deaths)
                    if result is None:
                        pending.append(cell)
                        continue
                    done += seconds[cell]
                    if isinstance(result, Finished):
                        ready[cell] = result
                        self._store_result(cell, result)
                    else:
                        failures[cell] = result
                        self.notice(f"{cell.claim} {result.summary}")
        except EngineLostError as error:
            reason = f"{error}; finished results are stored; run the same command to continue"
            unfinished = [cell for cell in cells if cell not in ready and cell not in failures]
            failures |= {cell: Failure(reason, "unavailable", lost=True) for cell in unfinished}
        finally:
            engine.close()
        return failures

    def _collect_result(
        self, cell: Cell, future: Future[str], engine: Engine, deaths: Counter[Cell]
    ) -> Finished | Failure | None:
        """Return the result of a cell, or why it has none; None if the cell must run again."""
        try:
            message = parse_object(future.result())
        except (Exception, CancelledError) as error:
            engine.check_health(error)
            if not engine.is_worker_death(error):
                return Failure(f"the engine failed: {type(error).__name__}: {error}")
            deaths[cell] += 1
            if deaths[cell] < engine.max_deaths:
                self.notice(f"a worker died while it ran {cell.claim}: it will run again")
                return None
            return Failure(
                f"its worker died {deaths[cell]} times or more (is there enough memory?)"
            )
        if failure := _find_failure(message, cell):
            return failure
        location = self.claims[cell.claim].location
        code = collect_dependencies(location, message["lookups"], cell.settings)
        return finish_cell(message["found"], message["seconds"], code)

    def _store_result(self, cell: Cell, result: Finished) -> None:
        if self.device != "cpu":
            return
        try:
            self.store.write(cell, result)
        except FileError as error:
            if not self.write_errors:
                self.notice(f"{error}; results are shown at the end, but not stored")
            self.write_errors.append(str(error))

    def _find_finished(self, cell: Cell) -> Finished | None:
        """Return the result of a cell that another run has stored since this run began."""
        done = None if self.fresh else self.store.read(cell)
        return done if done and not self._find_changes(cell, done) else None

    def _estimate_seconds(self, cell: Cell) -> float:
        """Estimate the duration of a cell from that of its stored result, even if it is stale."""
        before = self.store.read(cell)
        return before.seconds + 0.1 if before else DEFAULT_SECONDS


def _find_failure(message: dict[str, Any], cell: Cell) -> Failure | None:
    """Return why a worker has no result, or one that other code made; None if it is valid."""
    if "error" in message:
        return Failure(message["error"])
    if "unavailable" in message:
        return Failure(message["unavailable"], state="unavailable")
    if message["package"] != digest_package():
        return Failure(
            "the worker has another version of innerloop: install the same one everywhere"
        )
    if message["weights"] != digest_weights(cell.settings):
        return Failure("its recorded weights changed, or differ on the worker: run it again")
    return None


def _make_stale(
    claim: Claim, stored: Mapping[Cell, Finished], changes: Mapping[Cell, list[str]]
) -> Stale:
    """Describe a stale result: its verdict when it was stored, and what has changed since."""
    preset = next(iter(stored)).preset
    parts = list(stored.values())
    try:
        verdict = claim.build_evidence([part.found for part in parts]).label
    except Exception:  # the result was stored by other code, which may have used another form
        verdict = "unreadable"
    changed = sorted({name for names in changes.values() for name in names})
    return Stale(preset, max(part.made for part in parts), verdict, tuple(changed))


def _is_replaced(stale: Stale | None, cells: Sequence[Cell]) -> bool:
    """Return whether the run has replaced a stale result, by a new one at the same preset."""
    return stale is not None and stale.preset == cells[0].preset


def _make_outcome(
    claim: Claim,
    cells: Sequence[Cell],
    ready: Mapping[Cell, Finished],
    failures: Mapping[Cell, Failure],
) -> Outcome:
    """Build the outcome of a claim from the results or failures of its cells."""
    preset, command = cells[0].preset, cells[0].command
    outcome = Outcome(claim.id, "broken", preset, command=command, claim=claim)
    if failed := [failures[cell] for cell in cells if cell in failures]:
        worst = next((f for f in failed if f.state == "broken"), failed[0])
        return replace(outcome, state=worst.state, error=worst.reason, lost=worst.lost)
    parts = [ready[cell] for cell in cells]
    try:
        evidence = claim.build_evidence([part.found for part in parts])
        check_types(evidence, Evidence, "its evidence")  # a file may hold anything
    except Exception as error:
        remedy = f"another version may have stored the result; run `{command}` to make it again"
        return replace(outcome, error=f"{type(error).__name__}: {error}; {remedy}")
    return replace(
        outcome,
        state="checked",
        evidence=evidence,
        seconds=sum(part.seconds for part in parts),
        made=max(part.made for part in parts),
        versions=dict(parts[0].versions),
    )
