"""Changed weights: one weight of a construction is changed, and its certificate must notice.

A certificate that still holds is a defect if three conditions are true: the changed weights break
the law on other instances, the construction's own weights keep it there, and the certificate does
not list the changed weight as not reached. A certificate makes no statement about weights that it
lists as not reached, nor about errors below a thousandth of a weight (see `coverage`). Each change
is at least that large.
"""

from __future__ import annotations

import copy
import functools
import math
import random
from pathlib import Path
from typing import Any, NamedTuple

import torch

from innerloop.certification.certificate import Certificate, certify
from innerloop.certification.coverage import SMALLEST_ERROR
from innerloop.certification.law import iterate_cases
from innerloop.constructions.base import Construction
from innerloop.errors import InputError
from innerloop.registry import load_members
from tools.torture.attack import Attack, Defect, Verdict

OTHERS = 2000
"""The number of other instances on which a certificate that holds is tested."""
BATCH = 250
"""The number of instances per batch; the first batch that breaks the law ends the test."""
LARGE_SHARE = 0.04
"""The share of tries with the default parameters, which take longer than the small cases."""


Constructions = list[Construction[Any, Any]]


def prepare(folder: Path) -> list[str]:
    """Return the names of all constructions."""
    return sorted(load_members("constructions", Construction))


@functools.cache
def make_victims(name: str) -> Constructions:
    """Build a construction with its defaults, and with the smallest parameters of its test
    cases.
    """
    kind: Any = load_members("constructions", Construction)[name]
    victims = []
    for case in iterate_cases(kind, 2):
        try:
            construction = case.make()[0]
            size = sum(weight.numel() for weight in construction.transformer.parameters())
        except InputError:  # beyond a documented limit
            continue
        victims.append((size, len(victims), construction))
    return [kind(), *(victim for *_, victim in sorted(victims)[:4])]


def attempt(names: list[str], chance: random.Random, folder: Path) -> Verdict:
    """Change one weight, certify, and test a certificate that holds on other instances.

    "refused" means that the certificate does not hold.
    """
    default, *small = make_victims(chance.choice(names))
    construction = default if chance.random() < LARGE_SHARE else chance.choice(small)
    changed = copy.deepcopy(construction.transformer)
    change = change_weight(changed, chance)
    seed = chance.choice((0, chance.randrange(1000)))
    try:
        certificate = certify(construction, changed, 64, seed)
    except InputError:
        return "refused"
    if not certificate.holds:
        return "refused"
    if lists_change(certificate, change):
        return "survived"
    for k in range(OTHERS // BATCH):
        other = 10_000 + 100 * seed + k
        if breaks(construction, changed, other) and not breaks(construction, None, other):
            raise Defect(
                f"a certificate of {construction.name} holds falsely (innerloop build "
                f"{construction.name} with {construction.values()}, seed {seed}, {change.note}; "
                f"broken at {BATCH} instances of seed {other})"
            )
    return "survived"


class Change(NamedTuple):
    """A change of one weight, or of two weights of a tensor that were swapped."""

    name: str
    places: tuple[int, ...]
    note: str


def change_weight(transformer: torch.nn.Module, chance: random.Random) -> Change:
    """Change one weight, usually one that is not zero, or swap it with another of its tensor."""
    weights = dict(transformer.named_parameters())
    name = chance.choice(sorted(name for name, weight in weights.items() if weight.numel()))
    flat = weights[name].detach().view(-1)
    nonzero = flat.nonzero().squeeze(-1).tolist() if chance.random() < 0.8 else []
    place = chance.choice(nonzero) if nonzero else chance.randrange(len(flat))
    old = float(flat[place])
    different = is_noticeable(old, flat).nonzero().squeeze(-1).tolist()
    if different and chance.random() < 0.1:
        other = chance.choice(different)
        with torch.no_grad():
            flat[place], flat[other] = float(flat[other]), old
        return Change(name, (place, other), f"{name}[{place}] swapped with [{other}]")
    kinds = (0.0, -old, 2 * old, old + 1, old + 0.01, 2.0, -1.0, 100.0, 1.01 * old, 1.001 * old)
    new = chance.choice(kinds)
    if not is_noticeable(old, flat.new_tensor(new)):
        new = old + chance.choice((0.1, 1.0, math.pi))
    with torch.no_grad():
        flat[place] = new
    return Change(name, (place,), f"{name}[{place}] {old:.4g} → {new:.4g}")


def is_noticeable(old: float, new: torch.Tensor) -> torch.Tensor:
    """Return, for each new value, whether a certificate must notice the change of a reached
    weight.
    """
    return (new - old).abs() > 0.99 * SMALLEST_ERROR * new.abs().clamp_min(abs(old))


def lists_change(certificate: Certificate, change: Change) -> bool:
    """Return whether a certificate lists the changed weights, by tensor and place, as not
    reached.
    """
    if certificate.unreached is None:
        return True
    ranges = certificate.unreached.get(change.name, "")
    bounds = [part.partition("-") for part in ranges.split(",") if part]
    return all(
        any(int(first) <= place <= int(last or first) for first, _, last in bounds)
        for place in change.places
    )


def breaks(construction: Construction[Any, Any], transformer: Any, seed: int) -> bool:
    """Return whether a transformer breaks the law on a batch of instances."""
    try:
        return not certify(construction, transformer, BATCH, seed).holds
    except InputError:
        return True


def attempt_own(names: list[str], chance: random.Random, folder: Path) -> Verdict:
    """Certify a construction's own weights at a random seed and number of instances: they must
    hold.
    """
    construction = chance.choice(make_victims(chance.choice(names))[1:])
    instances, seed = chance.choice((1, 3, 64, 200)), chance.randrange(10_000)
    certificate = certify(construction, None, instances, seed)
    if not certificate.holds:
        raise Defect(
            f"right weights of {construction.name} break the law (innerloop build with "
            f"{construction.values()}, {instances} instances, seed {seed}: {certificate.broken})"
        )
    return "survived"


ATTACKS = (
    Attack("changed-weights", 10_000, prepare, attempt, seconds=180.0, cost=0.3, sample=4),
    Attack("own-weights", 1000, prepare, attempt_own, seconds=180.0, cost=0.3, sample=4),
)
