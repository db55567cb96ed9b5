"""Every promise of SECURITY.md has a test, and its numbers are those of the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_architecture import list_import_statements, list_imported_names

import innerloop
from innerloop import jsonfiles
from innerloop.lab import server, serving
from innerloop.recipes import continuing
from innerloop.training import loop
from innerloop.transformer import file

PACKAGE = Path(innerloop.__file__).parent
POLICY = " ".join((PACKAGE.parent / "SECURITY.md").read_text("utf-8").replace("**", "").split())
PROMISES = {
    "are safetensors files": (
        "test_transformer_file.py::test_a_saved_file_reloads_to_the_same_certificate"
    ),
    "never unpickles a file": "test_architecture.py::test_nothing_is_unpickled_or_evaluated",
    "runs the C compiler": "test_security.py::test_only_these_modules_reach_outside",
    "compiled in a temporary folder": (
        "test_compiled_kernel.py::test_the_folder_of_the_library_is_private_and_removed"
    ),
    "A name in a file never imports code": (
        "test_own_members.py::test_a_name_in_a_file_never_loads_code"
    ),
    "until you name that code yourself": (
        "test_resuming_runs.py::test_resuming_an_own_recipe_needs_its_name"
    ),
    "does not match its checksum is rejected": (
        "test_transformer_file.py::test_any_flipped_bit_is_noticed"
    ),
    "rejected cell is computed again": "test_ledger.py::test_a_damaged_cell_is_made_again",
    "who can compute it as well": (
        "test_resealed_files.py::test_a_resealed_file_is_refused_in_one_line_or_read"
    ),
    "compared with its description": (
        "test_transformer_file.py::test_files_with_a_wrong_description_are_refused"
    ),
    "nor for more than": "test_resealed_files.py::test_a_file_may_not_ask_for_more_than_it_holds",
    "on random problems that it draws itself": (
        "test_resealed_files.py::test_how_hard_it_is_tested_is_not_taken_from_the_file"
    ),
    'weights that it lists as "not reached"': (
        "test_coverage.py::test_a_change_is_noticed_or_its_place_is_listed"
    ),
    "model that its recipe builds": (
        "test_resealed_runs.py::test_an_optimiser_state_of_another_shape_is_an_error"
    ),
    "times the size of its weights": (
        "test_resealed_runs.py::test_a_file_cannot_request_much_more_memory_than_its_size"
    ),
    "levels of nesting": "test_jsonfiles.py::test_deep_nesting_is_refused_at_every_depth",
    "MiB. - A symbolic link": "test_jsonfiles.py::test_what_is_too_long_is_not_parsed",
    "of a run, a sweep": "test_links.py::test_resume_refuses_a_link_and_leaves_its_target",
    "a sweep, a cell": "test_links.py::test_a_sweep_follows_no_link",
    "a cell or a figure is an error": (
        "test_links.py::test_a_cell_is_neither_read_nor_written_through_a_link"
    ),
    "or a figure is an error": "test_links.py::test_a_figure_is_not_written_through_a_link",
    "must not be a hard link": "test_links.py::test_a_hard_link_is_not_written_in_place",
    "Links that you name yourself": "test_links.py::test_links_that_the_user_names_are_followed",
    "is escaped in web pages and figures": (
        "test_hostile.py::test_one_page_with_hostile_text_everywhere"
    ),
    "allows only their own scripts": (
        "test_report.py::test_the_page_is_self_contained_and_says_what_was_measured"
    ),
    "Control characters are escaped": (
        "test_standard_streams.py::test_control_characters_are_escaped"
    ),
    "the command that computes it again": "test_ledger.py::test_a_cell_says_how_it_was_made",
    "imports the module or the file": "test_own_members.py::test_commands_accept_files_and_modules",
    "imports all entry points": "test_own_members.py::test_a_broken_entry_point_is_skipped",
    "passes copies of its tensors": "test_foreign_code.py::test_a_model_may_edit_what_it_gets",
    "estimates the memory": "test_limits.py::test_memory_is_counted_before_it_is_taken",
    "makes no network connection": "test_security.py::test_only_these_modules_reach_outside",
    "a port of 127.0.0.1": "test_lab.py::test_a_port_that_is_taken_is_one_line",
    "name another host": "test_lab.py::test_other_hosts_pages_and_paths_are_refused",
    "The body of a request may have": "test_lab.py::test_bodies_that_are_no_request_are_refused",
    "must arrive within": "test_lab.py::test_a_request_that_does_not_arrive_is_ended",
    "checks all values before": "test_lab.py::test_wrong_values_are_refused_by_name",
    "policy of its page": (
        "test_lab.py::test_every_answer_carries_the_policy_and_nothing_is_loaded_from_elsewhere"
    ),
    "connects to the scheduler": "test_ledger.py::test_a_cluster_that_is_not_there",
    "exchange numbers and JSON": "test_security.py::test_processes_exchange_tensors_alone",
    "through pipes and a Unix socket": (
        "test_lost_engines.py::test_the_next_run_removes_the_folder_of_a_killed_run"
    ),
    "complete or absent": "test_torture.py::test_a_kill_comes_at_the_operation_that_was_chosen",
    "flushed to disk before the rename": (
        "test_run_folders.py::test_a_folder_is_flushed_after_a_rename"
    ),
    "Finished cells are stored": (
        "test_ledger.py::test_killed_at_any_moment_nothing_finished_is_lost"
    ),
    "before the first step": "test_run_folders.py::test_a_run_killed_in_its_first_step_is_resumed",
    "starts the run if there is none": (
        "test_run_folders.py::test_resume_starts_a_run_where_there_is_none"
    ),
    "Ctrl-C saves a checkpoint before": "test_training.py::test_an_interrupt_saves_a_checkpoint",
    "lines to its `history.csv`": (
        "test_resuming_runs.py::test_the_history_matches_the_checkpoint"
    ),
    "Temporary files named": "test_run_folders.py::test_what_killed_writes_left_is_removed",
    "A folder `pymp-": "test_lost_engines.py::test_the_next_run_removes_the_folder_of_a_killed_run",
    "does not lock the run": (
        "test_run_folders.py::test_a_second_training_of_a_folder_is_refused_until_the_first_is_gone"
    ),
}
"""A part of each promise, and a test that shows it."""
LIMITS = {
    f"more than {file.MAX_LOOPS:,} repetitions",
    f"up to {jsonfiles.MAX_DEPTH} levels of nesting and {jsonfiles.MAX_BYTES // 2**20} MiB",
    f"at most {server.MAX_BODY // 2**20} MiB",
    f"within {serving.MAX_HEADER_SECONDS:g} seconds each",
    f"within {server.MAX_BODY_SECONDS:g} seconds each",
    f"at least {loop.SECONDS_BETWEEN_CHECKPOINTS:g} seconds",
    f"at most {continuing.SPARE_BYTES // 2**20} MB plus {continuing.BYTES_PER_BYTE} times the size",
}
"""Numbers of the policy, as the code has them."""
REACHING = {
    "innerloop/ledger/engines.py": {"distributed"},
    "innerloop/ledger/processes.py": {"multiprocessing"},
    "innerloop/lab/serving.py": {"socket", "uvicorn", "webbrowser"},
    "innerloop/training/compiled.py": {"subprocess"},
    "innerloop/training/parallel.py": {"torch.distributed"},
}
"""The modules that open connections or start processes, and with what."""
DOORS = {
    *("aiohttp", "distributed", "ftplib", "http", "httpx", "huggingface_hub", "multiprocessing"),
    *("requests", "smtplib", "socket", "socketserver", "subprocess", "torch.distributed"),
    *("torch.hub", "urllib", "uvicorn", "webbrowser", "xmlrpc"),
}


@pytest.mark.parametrize("part", PROMISES)
def test_a_promise_has_a_test(part: str) -> None:
    assert part in POLICY, "the promise has another wording, or is gone"
    name, _, test = PROMISES[part].partition("::")
    assert f"def {test}(" in (Path(__file__).parent / name).read_text("utf-8")


@pytest.mark.parametrize("limit", sorted(LIMITS))
def test_a_limit_is_that_of_the_code(limit: str) -> None:
    assert limit in POLICY


def list_doors(path: Path) -> Iterator[str]:
    """List the modules that a file imports and that reach beyond this process."""
    for node in list_import_statements(path.read_text("utf-8")):
        names = list_imported_names(node)
        yield from (
            door for door in DOORS if any(f"{name}.".startswith(f"{door}.") for name in names)
        )


def test_only_these_modules_reach_outside() -> None:
    """Everything else neither connects to anything nor starts a process."""
    reaching = {
        path.relative_to(PACKAGE.parent).as_posix(): set(list_doors(path))
        for path in PACKAGE.rglob("*.py")
    }
    assert {path: doors for path, doors in reaching.items() if doors} == REACHING


def test_processes_exchange_tensors_alone() -> None:
    """Functions of `torch.distributed` for objects pickle them."""
    text = (PACKAGE / "training" / "parallel.py").read_text("utf-8")
    names = set(re.findall(r"\bdist\.(\w+)", text))
    control = {"destroy_process_group", "get_rank", "get_world_size", "init_process_group"}
    assert names == {"all_reduce", "broadcast", "is_initialized", *control}
