"""Names follow patterns: classes are named after their files, functions by verbs and nouns."""

from __future__ import annotations

import ast
import functools
import re
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
VERBS = {"embed", "feed", "need", "seed", "speed", "shed", "proceed", "exceed", "succeed"}
"""Words that end like participles and are none."""
KEPT = {
    "innerloop/language/primitives.py: closed",
    "innerloop/language/primitives.py: transposed",
    "innerloop/claims/base.py: declared",
    "innerloop/claims/liu2025/figure_1a.py: learned",
    "innerloop/claims/yang2025/fu_convergence.py: needed",
    "tests/strict.py: jaxtyped",
}
"""Words of the language, whose programs are digested in files; code that recorded cells digest; and
the name under which jaxtyping looks for its decorator."""
FOLDERS = ("benchmarks", "examples", "innerloop", "tests", "tools")
PRIVATE = re.compile(r"Of |.*\bso many\b|.*\bfrom which on\b", re.S)
"""How no docstring begins, and what none says: ordinary English is understood at once."""


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


@functools.cache
def parse_files(root: Path) -> list[tuple[str, ast.Module]]:
    """Parse the files of the folders of a checkout, each with its path: once, it takes long."""
    paths = [path for folder in FOLDERS for path in sorted((root / folder).rglob("*.py"))]
    return [(path.relative_to(root).as_posix(), ast.parse(path.read_bytes())) for path in paths]


def list_functions(root: Path) -> Iterator[str]:
    """List functions and methods, inner ones too, as `path: name` without leading underscores.

    Properties and fixtures are values, and have nouns or participles for names.
    """
    for path, tree in parse_files(root):
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                decorators = " ".join(map(ast.unparse, node.decorator_list))
                if "property" not in decorators and "fixture" not in decorators:
                    yield f"{path}: {node.name.strip('_')}"


def is_vague(function: str) -> bool:
    """Whether a function is named by a participle alone, or by a word that says nothing."""
    name = function.rpartition(" ")[2]
    participle = re.fullmatch(r"[a-z]+ed", name) is not None and name not in VERBS
    return (participle or name in VAGUE) and function not in KEPT


def list_texts(root: Path) -> Iterator[tuple[str, str]]:
    """List the docstrings of modules, classes, functions and values, each with its place."""
    for path, tree in parse_files(root):
        for node in ast.walk(tree):
            value = node.value if isinstance(node, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield f"{path}, line {value.lineno}", value.value


def test_functions_are_not_named_by_participles() -> None:
    functions = list(list_functions(ROOT.parent))
    assert set(functions) >= KEPT, "names that are gone need no exception"
    vague = [function for function in functions if is_vague(function)]
    assert not vague, f"name what these do (a verb) or return (a noun): {vague}"


def test_docstrings_are_ordinary_english() -> None:
    texts = list(list_texts(ROOT.parent))
    assert len(texts) > 4000
    private = [place for place, text in texts if PRIVATE.match(text)]
    assert not private, f"say these in ordinary words: {private}"


def test_a_vague_name_or_text_is_found_wherever_it_is(tmp_path: Path) -> None:
    (tmp_path / "tools" / "inner").mkdir(parents=True)
    (tmp_path / "tools" / "inner" / "a.py").write_text(
        "class A:\n    async def _drawn(self):\n        def told(): ...\n    def draw(self): ...\n"
        "    @property\n    def scored(self): ...\n    def rescored(self): 'Of a run, this.'\n"
        "    def embed(self): 'A prompt of so many.'\nx = 1\n'Of ten.'\ny = 'Of nothing.'\n"
    )
    vague = [function for function in list_functions(tmp_path) if is_vague(function)]
    assert sorted(vague) == [f"tools/inner/a.py: {name}" for name in ("drawn", "rescored", "told")]
    private = [place for place, text in list_texts(tmp_path) if PRIVATE.match(text)]
    assert sorted(private) == [f"tools/inner/a.py, line {line}" for line in (10, 7, 8)]
