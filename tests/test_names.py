"""Names follow patterns: classes are named after their files, functions by verbs and nouns."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import innerloop
from innerloop.algorithms.base import Algorithm
from innerloop.constructions.base import Construction
from innerloop.policies.base import Policy
from innerloop.problems.base import Distribution
from innerloop.problems.environment import Environment
from innerloop.problems.problem import Problem
from innerloop.recipes.base import Recipe
from innerloop.registry import load_members

ROOT = Path(innerloop.__file__).parent
PATTERNS = {
    "problems": (Distribution, ""),
    "algorithms": (Algorithm, ""),
    "policies": (Policy, "policy"),
    "constructions": (Construction, "construction"),
    "recipes": (Recipe, "recipe"),
}
"""The base class of each kind of member, and how the names of its classes end."""
WORDS = """
    acted added answered applied asked assembled begun built carried changed checked chosen compared
    concluded copied counted decided described drawn everything fitted found given grown heard held
    hoped identified joined judged kept left listed loaded made measured merged other own packed
    parsed placed planned played predicted ran reached recorded rest said sampled seen settled shown
    solved spelled stated summed taken tested told tried turned wanted
"""
VAGUE = set(WORDS.split())
"""Names that say neither what a function does nor what it returns; most were in use before."""


def expected_name(kind: type, ending: str) -> str:
    """The name of a member's class, in lower case and without underscores."""
    return kind.__module__.rpartition(".")[2].replace("_", "") + ending


@pytest.mark.parametrize("folder", PATTERNS)
def test_classes_are_named_after_their_files(folder: str) -> None:
    base, ending = PATTERNS[folder]
    members = load_members(folder, base).values()
    own = [kind for kind in members if kind.__module__.startswith("innerloop.")]
    assert len(own) > 5
    wrong = {
        kind.__name__: expected_name(kind, ending)
        for kind in own
        if kind.__name__.replace("_", "").lower() != expected_name(kind, ending)
    }
    assert not wrong, f"classes and the names that their files ask for: {wrong}"


def test_batches_are_problems_or_environments() -> None:
    for distribution in load_members("problems", Distribution).values():
        kind = distribution.problem_type
        assert issubclass(kind, Problem | Environment), kind
        assert kind.__name__.endswith("Problem") != issubclass(kind, Environment), kind


def list_functions(root: Path) -> Iterator[tuple[Path, str]]:
    """All functions and methods under a folder, inner ones too, without leading underscores."""
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield path.relative_to(root), node.name.strip("_")


def test_functions_are_not_named_by_participles() -> None:
    vague = [f"{path}: {name}" for path, name in list_functions(ROOT) if name in VAGUE]
    assert not vague, f"name what these do (a verb) or return (a noun): {vague}"


def test_a_vague_name_is_found_wherever_it_is(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "a.py").write_text(
        "class A:\n    async def _drawn(self):\n        def told(): ...\n    def draw(self): ...\n"
    )
    names = [name for _, name in list_functions(tmp_path)]
    assert sorted(names) == ["draw", "drawn", "told"]
    assert VAGUE.intersection(names) == {"drawn", "told"}
