"""The files around the package agree with it: version, links, platforms, and what CI runs."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import innerloop

ROOT = Path(__file__).parent.parent
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
SYSTEMS = {"Linux": "POSIX :: Linux", "macOS": "MacOS", "Windows": "Microsoft :: Windows"}
"""How the documentation calls a system, and how a classifier does."""


def read(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def load_yaml(name: str) -> dict[str, Any]:
    return yaml.safe_load(read(name))


def list_classifiers(topic: str) -> set[str]:
    """The classifiers below a topic, without it."""
    start = f"{topic} :: "
    return {c.removeprefix(start) for c in PROJECT["classifiers"] if c.startswith(start)}


def find_dead_links(text: str, folder: Path) -> list[str]:
    """The relative links of a document that lead nowhere: to no file, or to no heading."""
    dead = []
    text = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, heading = link.partition("#")
        path = folder / name
        if not path.exists() or (heading and heading not in list_headings(path if name else text)):
            dead.append(link)
    return dead


def list_headings(source: Path | str) -> set[str]:
    """The anchors of a document's headings."""
    text = source.read_text("utf-8") if isinstance(source, Path) else source
    titles = re.findall(r"^#+ (.+)$", text, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def list_make_targets(script: str) -> list[str]:
    """The targets that a script makes, in order."""
    commands = re.findall(r"^\s*(?:exec )?make +(.+)$", script, flags=re.M)
    return [word for command in commands for word in command.split() if "=" not in word]


def list_steps(job: dict[str, Any]) -> str:
    """All commands of a job."""
    return "\n".join(step["run"] for step in job["steps"] if "run" in step)


def list_recipe(target: str) -> list[str]:
    """The commands of a target in the Makefile."""
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", read("Makefile"), flags=re.M)
    assert found, f"no target {target}"
    return [line.strip().replace("$(BIN)", ".venv/bin") for line in found[1].splitlines()]


def test_the_citation_is_of_this_version() -> None:
    citation = load_yaml("CITATION.cff")
    assert citation["version"] == innerloop.__version__
    assert {"cff-version", "message", "title", "authors", "date-released"} <= set(citation)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", citation["date-released"])
    assert citation["license"] == PROJECT["license"]


def test_the_changelog_begins_with_this_version() -> None:
    versions = re.findall(r"^## (\S+)", read("CHANGELOG.md"), flags=re.M)
    assert versions[0] == innerloop.__version__
    assert len(versions) == len(set(versions))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_relative_links_lead_somewhere(name: str) -> None:
    assert not find_dead_links(read(name), ROOT)


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# A heading, `twice`\n", "utf-8")
    text = (
        "# Here\n[a](there.md) [b](there.md#a-heading-twice) [c](#here) [d](https://x.example)\n"
        "[e](nowhere.md) [f](there.md#gone) [g](#gone)\n"
    )
    assert find_dead_links(text, tmp_path) == ["nowhere.md", "there.md#gone", "#gone"]


def test_the_workflow_runs_what_ci_runs() -> None:
    script, workflow = read(".ci/run"), load_yaml(".github/workflows/ci.yml")
    jobs = workflow["jobs"]
    assert list_make_targets(script)
    assert list_make_targets(list_steps(jobs["test"])) == list_make_targets(script)
    assert list_make_targets(list_steps(jobs["coverage"])) == ["coverage"]
    variables = dict(re.findall(r"^export (INNERLOOP_\w+)=(\w+)$", script, flags=re.M))
    assert variables
    assert variables.items() <= workflow["env"].items()


def test_every_python_that_is_declared_is_tested() -> None:
    versions = {v for v in list_classifiers("Programming Language :: Python") if "." in v}
    workflow = load_yaml(".github/workflows/ci.yml")
    assert versions == set(workflow["jobs"]["test"]["strategy"]["matrix"]["python"])
    assert versions == {"3.11", "3.12", "3.13"}
    assert PROJECT["requires-python"] == ">=3.11"


def test_the_documentation_and_the_classifiers_name_the_same_systems() -> None:
    named = re.findall(r"^- \*\*(\w+)\*\*:", read("docs/install.md"), flags=re.M)
    assert {SYSTEMS[name] for name in named} == list_classifiers("Operating System")


def test_hooks_before_a_commit_are_lint_and_types() -> None:
    (local,) = load_yaml(".pre-commit-config.yaml")["repos"]
    assert local["repo"] == "local"
    commands = [hook["entry"] for hook in local["hooks"]]
    assert commands == list_recipe("lint") + list_recipe("types")


def list_described(stub: Path) -> list[str]:
    """List what a stub says of a library, as `Class` and `Class.method`."""
    found = []
    for node in ast.parse(stub.read_bytes()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name != "__getattr__":
            methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
            found += [node.name, *(f"{node.name}.{each.name}" for each in methods)]
    return found


@pytest.mark.parametrize("stub", sorted(ROOT.glob("typings/**/*.pyi")), ids=lambda path: path.stem)
def test_what_type_checkers_are_told_of_a_library_is_there(stub: Path) -> None:
    parts = stub.relative_to(ROOT / "typings").with_suffix("").parts
    assert importlib.util.find_spec(".".join(parts).removesuffix(".__init__"))
    if described := list_described(stub):
        library = importlib.import_module(".".join(parts))
        assert not [name for name in described if not has_attribute(library, name)]


def has_attribute(thing: Any, path: str) -> bool:
    """Whether an attribute of an attribute is there, by its dotted path."""
    for name in path.split("."):
        if not hasattr(thing, name):
            return False
        thing = getattr(thing, name)
    return True
