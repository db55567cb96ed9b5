"""Names follow patterns: classes are named after their files, functions by verbs and nouns."""

from __future__ import annotations

import ast
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
    "tests/strict.py: jaxtyped",
}
"""Words of the language, whose programs are digested in files; code that recorded cells digest; and
the name under which jaxtyping looks for its decorator."""
FOLDERS = ("benchmarks", "examples", "innerloop", "tests", "tools")
PRIVATE = re.compile(r'"""Of |\bso many\b|\bfrom which on\b')
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


def read_files(root: Path) -> Iterator[tuple[str, str]]:
    """Read the Python files of a checkout's folders, each with its path."""
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            yield path.relative_to(root).as_posix(), path.read_text("utf-8")


def is_vague(name: str) -> bool:
    """Whether a function's name is a participle alone, or a word that says nothing."""
    name = name.strip("_")
    return name in VAGUE or (name not in VERBS and bool(re.fullmatch(r"[a-z]+ed", name)))


def list_vague(root: Path) -> Iterator[str]:
    """List functions and methods with vague names, inner ones too, as `path: name`.

    Properties and fixtures are values, and have nouns or participles for names. Files are parsed
    only where a vague name is defined: it takes long.
    """
    for path, text in read_files(root):
        names = set(filter(is_vague, re.findall(r"\bdef (\w+)", text)))
        for node in ast.walk(ast.parse(text)) if names else ():
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in names:
                decorators = " ".join(map(ast.unparse, node.decorator_list))
                if "property" not in decorators and "fixture" not in decorators:
                    yield f"{path}: {node.name.strip('_')}"


def list_private(root: Path) -> Iterator[str]:
    """List the lines of docstrings, of values too, that are not ordinary English."""
    for path, text in read_files(root):
        for node in ast.walk(ast.parse(text)) if PRIVATE.search(text) else ():
            value = node.value if isinstance(node, ast.Expr) else None
            said = value.value if isinstance(value, ast.Constant) else None
            if isinstance(said, str) and PRIVATE.search(f'"""{said}'):
                yield f"{path}, line {node.lineno}"  # pyright: ignore[reportAttributeAccessIssue]


def test_functions_are_not_named_by_participles() -> None:
    found = set(list_vague(ROOT.parent))
    assert found >= KEPT, "names that are gone need no exception"
    assert found == KEPT, f"name what these do (a verb) or return (a noun): {found - KEPT}"


def test_docstrings_are_ordinary_english() -> None:
    private = list(list_private(ROOT.parent))
    assert not private, f"say these in ordinary words: {private}"


def test_a_vague_name_or_text_is_found_wherever_it_is(tmp_path: Path) -> None:
    (tmp_path / "tools" / "inner").mkdir(parents=True)
    (tmp_path / "tools" / "inner" / "a.py").write_text(
        "class A:\n    async def _drawn(self):\n        def told(): ...\n    def draw(self): ...\n"
        "    @property\n    def scored(self): ...\n    def rescored(self): '''Of a run.'''\n"
        '    def embed(self): """A prompt of so many."""\nx = 1\n"""Of ten."""\ny = "Of nothing."\n'
    )
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "b.py").write_text('def draw():\n    """A run."""\n')
    names = [f"tools/inner/a.py: {name}" for name in ("drawn", "rescored", "told")]
    assert sorted(list_vague(tmp_path)) == names
    lines = [f"tools/inner/a.py, line {line}" for line in (10, 7, 8)]
    assert sorted(list_private(tmp_path)) == lines
