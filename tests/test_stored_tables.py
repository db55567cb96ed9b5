"""Stored tables contain each column name once, and all values."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from innerloop.errors import FileError
from innerloop.ledger.tables import pack_tables, unpack_tables

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
TABLES = st.lists(st.text(), min_size=1, unique=True).flatmap(
    lambda keys: st.lists(st.fixed_dictionaries(dict.fromkeys(keys, SCALARS)), min_size=1)
)
DATA = st.recursive(
    SCALARS | TABLES,
    lambda parts: (
        st.lists(parts) | st.dictionaries(st.text().filter(lambda k: k != "$columns"), parts)
    ),
    max_leaves=12,
)


@given(DATA)
def test_what_is_packed_is_unpacked_with_the_same_keys_in_the_same_order(data: Any) -> None:
    stored = json.loads(json.dumps(pack_tables(data)))
    assert json.dumps(unpack_tables(stored)) == json.dumps(data)


def test_a_table_names_its_columns_once() -> None:
    rows = [{"layer": k, "loss": 0.5**k} for k in range(100)]
    packed = json.dumps(pack_tables({"figures": [{"rows": rows}]}))
    assert packed.count("layer") == packed.count("loss") == 1


@pytest.mark.parametrize(
    "table",
    [
        {"$columns": ["a"], "$rows": [[1, 2]]},
        {"$columns": ["a"], "$rows": [1]},
        {"$columns": ["a"]},
        {"$columns": "a", "$rows": []},
        {"$columns": [1], "$rows": [[1]]},
    ],
)
def test_a_table_that_is_none_is_refused(table: dict[str, Any]) -> None:
    with pytest.raises(FileError, match="of a table"):
        unpack_tables([table])


def test_a_key_that_would_be_read_as_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match="reserved"):
        pack_tables({"$columns": []})
