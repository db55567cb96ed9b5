"""The candidates of a problem, whatever the family of its answers.

Predictions at a query have candidates.py. For the others every algorithm that solves the problem
and answers in the model's shape is a candidate, and for decisions every policy that can play.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from innerloop.algorithms.base import Algorithm
from innerloop.errors import InputError
from innerloop.identification.candidates import Candidate, Given, find_algorithm, list_candidates
from innerloop.identification.families.base import Family
from innerloop.identification.families.clouds import answer_as_asked
from innerloop.identification.families.deciding import (
    list_policies,
    list_solvers,
    make_policy_trials,
)
from innerloop.identification.families.odds import Odds
from innerloop.identification.families.queries import Queries
from innerloop.identification.hyper import pack_parameters
from innerloop.identification.instances import copy_problem
from innerloop.identification.trials import Trial, make_trial_candidate
from innerloop.locations import describe_failure, load_object
from innerloop.policies.base import Policy
from innerloop.problems.linear_bandit_games import BanditGameProblem
from innerloop.registry import get_name, load_members


def list_family_candidates(
    family: Family, problem: Any, shape: Sequence[int], sources: Sequence[Given] | None = None
) -> list[Candidate]:
    """List the candidates for answers of this shape: all registered ones, or `sources`."""
    if isinstance(family, Queries):
        raise AssertionError("predictions at a query have candidates of their own")
    trials: dict[str, list[Trial]] = {}
    if sources is None:
        for kind in load_members("algorithms", Algorithm).values():
            trials |= _make_trials(kind, problem, shape)
        if isinstance(family, Odds):
            trials |= list_solvers(problem) if isinstance(problem, BanditGameProblem) else {}
            trials |= list_policies(problem)
    else:
        for each in sources:
            trials |= _load_trials(each, family, problem, shape)
    if not trials:
        among = "" if sources is None else f" among {', '.join(map(str, sources))}"
        raise InputError(
            f"no candidate{among} solves a {type(problem).__name__} and answers in shape "
            f"{tuple(shape)}: there is nothing to compare with"
        )
    return [make_trial_candidate(name, each) for name, each in trials.items()]


def _load_trials(
    source: Any, family: Family, problem: Any, shape: Sequence[int]
) -> dict[str, list[Trial]]:
    """Load the trials of an algorithm or policy given by name, location, class or object."""
    if isinstance(source, str) and ":" in source:
        source = load_object(source)
    if isinstance(family, Odds):
        solvers = list_solvers(problem) if isinstance(problem, BanditGameProblem) else {}
        known = load_members("policies", Policy)
        if isinstance(source, str) and source in solvers:
            return {source: solvers[source]}
        if isinstance(source, str) and source in known:
            source = known[source]
        if isinstance(source, Policy) or (isinstance(source, type) and issubclass(source, Policy)):
            name = source.name if isinstance(source, Policy) else get_name(source)
            trials = make_policy_trials(source, problem)
            return {name: trials} if trials else {}
    return _make_trials(find_algorithm(source), problem, shape)


def _make_trials(source: Any, problem: Any, shape: Sequence[int]) -> dict[str, list[Trial]]:
    """Make the trials of an algorithm; none where it solves or answers something else."""
    name = get_name(type(source) if isinstance(source, Algorithm) else source)
    source = answer_as_asked(source, problem, shape)
    kind = type(source) if isinstance(source, Algorithm) else source
    if not isinstance(problem, kind.problem_type):
        return {}
    few = copy_problem(problem[:2])
    try:
        guesses = [source] if isinstance(source, Algorithm) else kind.guesses(copy_problem(problem))
        if not guesses:
            return {}
        answer = guesses[0].predict(few, guesses[0].init(few))
    except InputError:
        return {}
    except Exception as error:
        raise InputError(f"the candidate {name} failed: {describe_failure(error)}") from error
    if tuple(answer.shape[len(few.batch) :]) != tuple(shape):
        return {}
    return {name: Trial.from_guesses(name, guesses)}


def list_all_candidates(
    family: Family,
    problem: Any,
    shape: Sequence[int],
    prediction: Any,
    sources: Sequence[Given] | None,
) -> list[Candidate]:
    """List the candidates for a model's answers, whose shape per instance was `shape`.

    They are sorted, so that the order of the user's list changes neither a fit nor the verdict.
    """
    if isinstance(family, Queries):
        candidates = list_candidates(problem, prediction, sources)
    else:
        candidates = list_family_candidates(family, problem, shape, sources)
    return sorted(candidates, key=_make_sort_key)


def _make_sort_key(candidate: Candidate) -> tuple[str, list[list[float]]]:
    """Return the label, and the numbers that fits start from to tell apart candidates with one."""
    return candidate.label, [pack_parameters(guess).tolist() for guess in candidate.guesses]
