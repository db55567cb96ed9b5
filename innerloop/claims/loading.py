"""Find claims: those of this package, of other packages, and in files that the caller wrote.

Claims need no registration. Every function with the decorator `@claim` in a file below
`innerloop.claims` is a claim. Another package names a claim, or a module of claims, in an entry
point of the group `innerloop.claims`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from functools import cache
from types import ModuleType
from typing import Any

from innerloop.claims.base import PRESETS, Claim, Preset
from innerloop.claims.evidence import Evidence
from innerloop.claims.sources import load_sources, load_statements
from innerloop.errors import InputError, unknown_name_error
from innerloop.locations import load_object
from innerloop.registry import Entry, SkippedMember, scan_entry_points, scan_modules


def check(claim: str | Claim, preset: Preset = "quick", seed: int = 0) -> Evidence:
    """Check one claim in this process; nothing is stored.

    Args:
        claim: An id, `module:attribute` or `file.py:attribute` (which is imported, and so runs), or
            the claim itself.
        preset: Size of the check: "quick", "full" or "paper".
        seed: Seed of the random instances.

    Returns:
        The evidence, whose `verdict` follows from its checks.

    Raises:
        InputError: There is no such claim or preset; the message suggests a similar name.

    Example:
        ```python
        innerloop.check("liu2025.eq-4.3").verdict  # 'holds as corrected'
        ```
    """
    if isinstance(claim, str):
        claim = find_claim(claim)
    if preset not in PRESETS:
        raise unknown_name_error("preset", preset, PRESETS)
    return claim.check(claim.presets[preset], seed)


def find_claim(word: str) -> Claim:
    """Find a claim by its id, or at `module:attribute` or `file.py:attribute`."""
    if ":" in word:
        value = load_object(word)
        if not isinstance(value, Claim):
            raise InputError(f"{word} is not a claim: expected a function under @innerloop.claim")
        return value
    known = load_claims()
    if word not in known:
        listed = " (it is listed, but has no check yet)" if word in load_statements() else ""
        raise InputError(f"{unknown_name_error('claim', word, known)}{listed}")
    return known[word]


def load_claims() -> dict[str, Claim]:
    """Load every registered claim by id, source by source, in the order of its document."""
    return {id: entry.value for id, entry in load_claim_entries().items()}


@cache
def load_claim_entries() -> dict[str, Entry]:
    """Load every registered claim with its owner; warn about claims that cannot be loaded."""
    entries: dict[str, Entry] = {}
    for entry in _scan_claims():
        if entry.name in entries:
            both = [f"{e.value.module} ({e.owner})" for e in (entries[entry.name], entry)]
            _warn(f"two claims are called {entry.name!r}: {' and '.join(both)}; rename one")
        entries.setdefault(entry.name, entry)
    return dict(sorted(entries.items(), key=lambda item: _order(item[0])))


def _scan_claims() -> Iterator[Entry]:
    for _, module, reason in scan_modules("innerloop.claims", deep=True):
        if module is None:
            _warn(f"skipped: {reason}")
            continue
        yield from (Entry(claim.id, "innerloop", claim) for claim in list_claims(module))
    for name, owner, value, reason in scan_entry_points("claims"):
        if reason or not isinstance(value, Claim | ModuleType):
            _warn(f"skipped: {reason or f'{name} of {owner} is no claim and no module'}")
            continue
        claims = (
            [value, *value.list_restatements()] if isinstance(value, Claim) else list_claims(value)
        )
        yield from (Entry(claim.id, owner, claim) for claim in claims)


def list_claims(module: ModuleType) -> list[Claim]:
    """List the claims that a module declares, including restatements."""
    values = vars(module).values()
    own = [v for v in values if isinstance(v, Claim) and v.module == module.__name__]
    return [one for claim in own for one in (claim, *claim.list_restatements())]


def select_claims(words: Sequence[str]) -> list[str]:
    """Select claims by ids or prefixes of ids; without words, select all."""
    known = sorted({*load_statements(), *load_claims()}, key=_order)
    if not words:
        return known
    selected: set[str] = set()
    for word in words:
        matching = [word] if word in known else [id for id in known if id.startswith(word)]
        if not word or not matching:
            raise unknown_name_error("claim", word, known)
        selected.update(matching)
    return [id for id in known if id in selected]


def describe_claims() -> list[dict[str, Any]]:
    """Return a row for every claim: statement, source, owner, and whether it has a check."""
    entries, statements = load_claim_entries(), load_statements()
    rows = []
    for id in select_claims([]):
        claim = entries[id].value if id in entries else None
        source = [id.partition(".")[0], *([claim.where] if claim else [])]
        rows.append(
            {
                "name": id,
                "description": claim.statement if claim else statements[id],
                "source": ", ".join(source),
                "from": entries[id].owner if claim else "innerloop",
                "checked": claim is not None,
            }
        )
    return rows


def _order(id: str) -> tuple[Any, ...]:
    """Return a sort key: this package's sources first, then listed order, then natural order."""
    source = id.partition(".")[0]
    listed = list(load_statements())
    place = listed.index(id) if id in listed else len(listed)
    numbers = [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", id)]
    return (source not in load_sources(), source, place, numbers)


def _warn(text: str) -> None:
    warnings.warn(text, SkippedMember, stacklevel=3)
