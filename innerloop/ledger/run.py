"""Check claims: what is stored and still current is taken, the rest is run, and each cell is stored
as soon as it is finished.

A run that is killed loses only the cells under way; the next one goes on from there. A cell whose
code breaks, whose worker keeps dying or whose file cannot be written is told, and the rest goes on.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from dataclasses import dataclass, field
from typing import Any, Literal

from innerloop.claims.base import PRESETS, Claim, Preset, claims, wanted
from innerloop.claims.evidence import Evidence
from innerloop.claims.sources import SOURCES
from innerloop.errors import FileError
from innerloop.ledger.code import decided, package, weights
from innerloop.ledger.engines import Engine
from innerloop.ledger.store import Cell, Finished, Store, finished

GUESS = 5.0
"""Seconds that a cell is taken to need while nothing is known about it."""

Progress = Callable[[float, str], None]
"""Told the share that is done, and what is running."""
State = Literal["checked", "not yet checked", "broken"]


@dataclass(frozen=True)
class Outcome:
    """What is known about a claim after a run."""

    id: str
    state: State
    preset: Preset | None = None
    evidence: Evidence | None = None
    seconds: float = 0.0
    made: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    error: str = ""
    command: str = ""

    @property
    def verdict(self) -> str:
        """The evidence's, or why there is none."""
        return self.evidence.verdict if self.evidence else self.state

    def as_dict(self) -> dict[str, Any]:
        """For machines: the claim, its verdict, and all of its evidence."""
        claim, evidence = claims().get(self.id), self.evidence
        parts = evidence.parts if evidence else ()
        corrections = [part.corrected for part in parts if part.corrected is not None]
        source = self.id.partition(".")[0]
        return {
            "id": self.id,
            "source": str(SOURCES[source]) if source in SOURCES else source,
            "where": claim.where if claim else "",
            "kind": claim.kind if claim else None,
            "statement": claim.statement if claim else wanted()[self.id],
            "verdict": self.verdict,
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
        }


@dataclass
class Run:
    """One run over some claims. `fresh` runs also what is stored."""

    store: Store
    engine: Callable[[], Engine]
    seed: int = 0
    fresh: bool = False
    progress: Progress = lambda share, text: None
    notice: Callable[[str], None] = lambda text: None
    unwritten: list[str] = field(default_factory=list)
    """Why finished cells could not be stored; what they found is told all the same."""

    def check(self, ids: Sequence[str], preset: Preset, *, fuller: bool = False) -> list[Outcome]:
        """The outcome of every id; `fuller` takes a larger preset's where that is stored."""
        known = claims()
        plans: dict[str, list[Cell]] = {}
        ready: dict[Cell, Finished] = {}
        for id in ids:
            if id in known:
                plans[id] = self._plan(known[id], preset, fuller, ready)
        missing = [cell for cells in plans.values() for cell in cells if cell not in ready]
        broken = self._run(missing, ready) if missing else {}
        return [
            _outcome(known[id], plans[id], ready, broken)
            if id in plans
            else Outcome(id, "not yet checked")
            for id in ids
        ]

    def _plan(
        self, claim: Claim, preset: Preset, fuller: bool, ready: dict[Cell, Finished]
    ) -> list[Cell]:
        """The cells that a claim's outcome is from; those that are stored and current are ready."""
        presets = PRESETS[PRESETS.index(preset) :] if fuller else (preset,)
        for larger in reversed(presets):
            cells = [Cell(claim.id, larger, self.seed, cell) for cell in claim.presets[larger]]
            found = {} if self.fresh else self._current(claim, cells)
            if larger == preset or len(found) == len(cells):
                ready.update(found)
                return cells
        raise AssertionError("the preset itself comes last")

    def _current(self, claim: Claim, cells: Sequence[Cell]) -> dict[Cell, Finished]:
        """Of some cells those that are stored, by the code that is here."""
        found = {cell: self.store.read(cell) for cell in cells}
        return {
            cell: done
            for cell, done in found.items()
            if done and done.code == decided(claim.module, cell.settings)
        }

    def _run(self, cells: Sequence[Cell], ready: dict[Cell, Finished]) -> dict[Cell, str]:
        """Run cells, add what they find to `ready`, and tell why the others did not finish."""
        self.store.tidy()
        weights = {cell: self._guess(cell) for cell in cells}
        engine = self.engine()
        pending, running = deque(cells), dict[Future[str], Cell]()
        deaths, broken = Counter[Cell](), dict[Cell, str]()
        done = 0.0
        try:
            while pending or running:
                while pending and len(running) < engine.slots:
                    cell = pending.popleft()
                    if taken := self._taken(cell):
                        ready[cell] = taken  # another run in this folder was faster
                        done += weights[cell]
                        continue
                    claim = claims()[cell.claim]
                    work = (claim.module, cell.claim, dict(cell.settings), cell.seed)
                    running[engine.submit(*work)] = cell
                self.progress(
                    done / sum(weights.values()), ", ".join(cell.claim for cell in running.values())
                )
                for future in wait(running, timeout=0.5, return_when=FIRST_COMPLETED).done:
                    cell = running.pop(future)
                    error = self._settle(cell, future, engine, ready, deaths)
                    if error is None:
                        pending.append(cell)
                        continue
                    done += weights[cell]
                    if error:
                        broken[cell] = error
                        self.notice(f"{cell.claim} broke: {error.strip().splitlines()[-1]}")
        finally:
            engine.close()
        return broken

    def _settle(
        self,
        cell: Cell,
        future: Future[str],
        engine: Engine,
        ready: dict[Cell, Finished],
        deaths: Counter[Cell],
    ) -> str | None:
        """Take what a cell found. Nothing in the text: all is well; none: it must run again."""
        try:
            told = json.loads(future.result())
        except (Exception, CancelledError) as error:
            if not engine.died(error):
                return f"the engine failed: {type(error).__name__}: {error}"
            deaths[cell] += 1
            if deaths[cell] < engine.most_deaths:
                self.notice(f"a worker died while it ran {cell.claim}: it will run again")
                return None
            return f"its worker died {deaths[cell]} times or more (is there enough memory?)"
        if "error" in told:
            return told["error"]
        if other := _other(told, cell):
            return other
        code = decided(claims()[cell.claim].module, cell.settings)
        ready[cell] = finished(told["found"], told["seconds"], code)
        try:
            self.store.write(cell, ready[cell])
        except FileError as error:
            if not self.unwritten:
                self.notice(f"{error}; what is found is told at the end, but not kept")
            self.unwritten.append(str(error))
        return ""

    def _taken(self, cell: Cell) -> Finished | None:
        """A cell that was finished since this run began."""
        if self.fresh:
            return None
        return self._current(claims()[cell.claim], [cell]).get(cell)

    def _guess(self, cell: Cell) -> float:
        """How many seconds a cell may take: what it took with other code."""
        before = self.store.read(cell)
        return before.seconds + 0.1 if before else GUESS


def _other(told: dict[str, Any], cell: Cell) -> str:
    """How what a worker used differs from what is here, if it does."""
    if told["package"] != package():
        return "the worker has another version of innerloop: install the same one everywhere"
    if told["weights"] != weights(cell.settings):
        return "its recorded weights are others by now, or on the worker: run it again"
    return ""


def _outcome(
    claim: Claim, cells: Sequence[Cell], ready: dict[Cell, Finished], broken: dict[Cell, str]
) -> Outcome:
    """What the cells of a claim come to."""
    preset = cells[0].preset
    errors = [broken[cell] for cell in cells if cell in broken]
    if errors:
        return Outcome(claim.id, "broken", preset, error=errors[0], command=cells[0].command)
    parts = [ready[cell] for cell in cells]
    try:
        evidence = claim.evidence([part.found for part in parts])
    except Exception as error:
        return Outcome(claim.id, "broken", preset, error=f"{type(error).__name__}: {error}")
    return Outcome(
        claim.id,
        "checked",
        preset,
        evidence,
        sum(part.seconds for part in parts),
        max(part.made for part in parts),
        dict(parts[0].versions),
        command=cells[0].command,
    )
