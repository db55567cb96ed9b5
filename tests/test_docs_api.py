"""The API is documented: every parameter of a public function, and examples that are run."""

from __future__ import annotations

import doctest
import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from tools.docs.api import get_public_callables

FUNCTIONS = get_public_callables()
DESCRIBED = [
    name
    for name, value in FUNCTIONS.items()
    if inspect.isfunction(value) or name.startswith("innerloop.estimators.")
]
EXAMPLES = [name for name in DESCRIBED if ">>>" in (inspect.getdoc(FUNCTIONS[name]) or "")]


def list_described(doc: str) -> set[str]:
    """List the names that the section `Args` of a docstring describes."""
    section = re.search(r"^Args:\n((?:    .*\n|\n)*)", f"{doc}\n", flags=re.M)
    return set(re.findall(r"^    \*{0,2}(\w+): \S", section[1], flags=re.M)) if section else set()


def list_parameters(function: Callable[..., Any]) -> set[str]:
    return set(inspect.signature(function).parameters) - {"self"}


@pytest.mark.parametrize("name", DESCRIBED)
def test_every_parameter_of_a_public_function_is_described(name: str) -> None:
    function = FUNCTIONS[name]
    doc = inspect.getdoc(function) or ""
    assert re.match(r"[A-Z0-9k].*[.]", doc), "the first sentence stands alone"
    assert list_described(doc) == list_parameters(function)


def test_a_parameter_that_is_not_described_is_noticed() -> None:
    def function(a: int, *, b: int = 0) -> None:
        """Do something.

        Args:
            a: A number.
        """

    assert list_described(inspect.getdoc(function) or "") == {"a"} != list_parameters(function)


def test_there_are_examples() -> None:
    assert {"innerloop.build", "innerloop.compile", "innerloop.solve"} <= set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_print_what_they_say(name: str) -> None:
    (test,) = doctest.DocTestFinder(recurse=False).find(FUNCTIONS[name], name, globs={})
    assert doctest.DocTestRunner(verbose=False).run(test).failed == 0
