from __future__ import annotations

import math
from pathlib import Path

import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from f2cto.data.cells import Kind
from f2cto.data.errors import DataError
from f2cto.data.tables import Table, guessed, label_column, read_table, require, scan_table, typed, without_useless

PATH = Path("flows.csv")


def column(kind: Kind, *cells: str | None) -> Table:
    """A table of one column beside a sound one."""
    frame = pl.DataFrame({"a": list(cells), "b": ["1"] * len(cells)}, schema={"a": pl.String, "b": pl.String})
    return typed(frame, {"a": kind, "b": Kind.NUMBER}, PATH)


def written(folder: Path, content: str | bytes, name: str = "flows.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_byte_order_mark_spaces_quotes_and_line_ends(tmp_path: Path) -> None:
    path = written(tmp_path, '\ufeff"a", b ,c\r\n1,"x, y",3\r\n 2 ,"say ""z""",4\r\n')
    assert read_table(path).to_dict(as_series=False) == {"a": ["1", " 2 "], "b": ["x, y", 'say "z"'], "c": ["3", "4"]}


def test_csv_and_parquet_hold_the_same(tmp_path: Path) -> None:
    frame = pl.DataFrame({"n": [1.5, -2.0, 3e9], "whole": [0, 7, 2], "word": ["x", "y", "x"]})
    frame.write_csv(tmp_path / "t.csv")
    frame.write_parquet(tmp_path / "t.parquet")
    kinds = {"n": Kind.NUMBER, "whole": Kind.WHOLE, "word": Kind.WORD}
    one, two = (typed(scan_table(tmp_path / name), kinds, PATH) for name in ("t.csv", "t.parquet"))
    assert one.frame.dtypes == two.frame.dtypes == [pl.Float64, pl.Float64, pl.Categorical]
    assert one.frame.equals(two.frame)
    assert one.frame["n"].to_list() == frame["n"].to_list()


def test_row_numbers_survive_broken_rows_and_blank_lines(tmp_path: Path) -> None:
    path = written(tmp_path, "a,b\n1,1\nbad,2\n\n3,3\n4\n5,5\n\n")
    table = typed(scan_table(path), {"a": Kind.NUMBER, "b": Kind.NUMBER}, path)
    assert table.rows.tolist() == [0, 2, 4]
    assert table.frame["a"].to_list() == [1.0, 3.0, 5.0]
    assert table.count == 5
    assert table.notes == ("flows.csv: 2 of 5 rows had broken cells and were left out: a (1), b (1).",)


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (Kind.NUMBER, ["1", " -2.5 ", "1e5", "+0"], ["", " ", None, "x", "nan", "inf", "-inf", "1.2.3", "0x1f", "1,5"]),
        (Kind.WHOLE, ["0", "7.0", "0x1f", "4294967295"], ["-1", "0.5", "1e400", "face", "0xg", "nan", "", None]),
        (Kind.FLAG, ["0", "1", "0.0", "1.0"], ["2", "-1", "0.5", "0x00000010", "yes", None]),
        (Kind.WORD, ["tcp", "-", "0", "192.168.0.1"], ["", "  ", None]),
    ],
)
def test_what_is_a_broken_cell(kind: Kind, good: list[str], bad: list[str | None]) -> None:
    table = column(kind, *good, *bad)
    assert table.rows.tolist() == list(range(len(good)))
    assert (
        f"{len(bad)} of {len(good) + len(bad)} rows had broken cells and were left out: a ({len(bad)})."
        in (table.notes[0])
    )
    assert column(kind, *good).notes == ()


def test_hexadecimal_numbers_have_their_value() -> None:
    assert column(Kind.WHOLE, "0x0000e221", "0xFF", "12").frame["a"].to_list() == [0xE221, 255.0, 12.0]


def test_whole_numbers_are_one_category_however_written() -> None:
    words = column(Kind.WORD, "0", "0.0", " 0 ", "-3.0", "HTTP/1.0", "1.0.0", ".0", "10.0").frame["a"]
    assert words.cast(pl.String).to_list() == ["0", "0", "0", "-3", "HTTP/1.0", "1.0.0", ".0", "10"]


@given(st.lists(st.one_of(st.floats(), st.integers(), st.none(), st.text("0x19. -e", max_size=4)), min_size=1))
def test_a_number_is_what_python_takes_for_one(cells: list[float | str | None]) -> None:
    def value(cell: float | str | None) -> float:
        try:
            return math.nan if cell is None else float(cell)
        except ValueError:
            return math.nan

    expected = [i for i, cell in enumerate(cells) if math.isfinite(value(cell))]
    texts = [None if cell is None else str(cell) for cell in cells]
    table = column(Kind.NUMBER, *texts, "1")  # one is sound
    assert table.rows.tolist() == [*expected, len(cells)]
    assert table.frame["a"].to_list() == [*(value(cells[i]) for i in expected), 1.0]


def test_all_rows_broken() -> None:
    with pytest.raises(DataError, match=r"Every row of flows\.csv has a broken cell; .*left out: a \(2\)\)"):
        column(Kind.NUMBER, "x", None)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("t.csv", "", r"t\.csv is empty; download or export it again"),
        ("t.csv", "\n\n", r"t\.csv cannot be read as a table \(empty CSV\); download"),
        ("t.csv", "a,b\n", r"t\.csv has a header but no rows"),
        ("t.csv", "a,b\n1,2\n1,2,3\n", r"t\.csv has 3 cells in line 3 but 2 in its header; quote cells"),
        ("t.csv", b"a,b\n1,\xff\xfe\n", r"t\.csv is not text in UTF-8; save it as UTF-8"),
        ("t.csv", 'a,b\n1,"2', r"t\.csv cannot be read as a table"),
        ("t.csv", "a;b\n1;2\n", r"t\.csv has only one column, `a;b`; separate its cells by commas"),
        ("t.csv", "a,b, a\n1,2,3\n", r"t\.csv has two columns named `a`; rename one"),
        ("t.csv", "a,a\n1,2\n", r"t\.csv has two columns named `a`"),
        ("t.parquet", b"PAR1 cut short", r"t\.parquet cannot be read as a table .*; download or export it again"),
        ("t.xlsx", "a,b\n1,2\n", r"t\.xlsx is neither \.csv nor \.parquet; export"),
    ],
)
def test_files_that_are_no_tables(tmp_path: Path, name: str, content: str | bytes, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        read_table(written(tmp_path, content, name))


def test_a_truncated_parquet_file(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pl.DataFrame({"a": range(1000)}).write_parquet(path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataError, match=r"t\.parquet cannot be read"):
        typed(scan_table(path), {"a": Kind.NUMBER}, path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no\.csv is not there; check the path"):
        read_table(tmp_path / "no.csv")


def test_a_missing_column_is_named_with_those_like_it() -> None:
    frame = pl.DataFrame({"attack_type": ["x"], "bytes": ["1"]})
    with pytest.raises(DataError, match=r"flows\.csv has no column `attack_cat`; did you mean attack_type\?"):
        label_column(frame, "attack_cat", PATH)
    with pytest.raises(DataError, match=r"flows\.csv has no column `packets`; it has attack_type, bytes"):
        typed(frame, {"packets": Kind.NUMBER}, PATH)
    with pytest.raises(DataError, match="no column `y`"):
        require(["x"], "y", PATH)


def test_labels_become_positions() -> None:
    names, y = label_column(pl.DataFrame({"y": ["b", " a", "b", "10.0"]}), "y", PATH)
    assert names == ("10", "a", "b")
    assert y.tolist() == [2, 1, 2, 0]
    assert y.dtype == torch.int64
    names, y = label_column(pl.DataFrame({"y": [10, 9, -1]}), "y", PATH)
    assert names == ("-1", "9", "10")
    assert y.tolist() == [2, 1, 0]


def test_labels_outside_the_class_list() -> None:
    frame, rows = pl.DataFrame({"y": ["a", "b", "Worm", None]}), torch.tensor([0, 4, 7, 9])
    with pytest.raises(DataError, match=r"flows\.csv has label `Worm` in row 7 of column `y` but needs one of a, b"):
        label_column(frame, "y", PATH, ("a", "b"), rows)
    with pytest.raises(DataError, match="has no label in row 9 of column `y` but needs a class; correct or remove"):
        label_column(frame, "y", PATH, rows=rows)


def test_constants_and_identifiers_are_left_out() -> None:
    frame = pl.DataFrame(
        {
            "size": ["3", "1", "4", "1"],
            "same": ["7", "7.0", "7", "7"],
            "one word": ["x", "x", "x", "x"],
            "host": ["a", "b", "c", "d"],
            "proto": ["tcp", "udp", "tcp", "tcp"],
            "number": ["11", "12", "13", "14"],
            "ID": ["5", "9", "2", "2"],
            "steps of two": ["2", "4", "6", "8"],
        }
    )
    table = without_useless(typed(frame, guessed(frame), PATH))
    assert table.frame.columns == ["size", "proto", "steps of two"]
    assert table.notes == (
        "Left out because a count of the rows: number.",
        "Left out because an identifier by name: ID.",
        "Left out because an identifier: all values differ: host.",
        "Left out because constant: same, one word.",
    )


def test_a_count_of_the_rows_is_known_though_rows_are_missing() -> None:
    frame = pl.DataFrame({"line": ["0", "1", "2", "3"], "size": ["5", "x", "4", "9"]})
    table = without_useless(typed(frame, {"line": Kind.NUMBER, "size": Kind.NUMBER}, PATH))
    assert table.frame.columns == ["size"]


def test_kinds_are_guessed() -> None:
    frame = pl.DataFrame(
        {
            "float": [1.0] * 10,
            "yes": [True] * 10,
            "digits": [*"12345678", "9", "?"],
            "half": [*"12345", *"abcde"],
            "empty": pl.Series([None] * 10, dtype=pl.String),
            "category": pl.Series(["a"] * 10, dtype=pl.Categorical),
            "lists": [[1]] * 10,
            "skipped": [1] * 10,
        }
    )
    numbers, words = ("float", "yes", "digits"), ("half", "empty", "category")
    assert guessed(frame, {"skipped"}) == {**dict.fromkeys(numbers, Kind.NUMBER), **dict.fromkeys(words, Kind.WORD)}


def test_a_table_needs_columns_beside_the_label() -> None:
    with pytest.raises(DataError, match=r"flows\.csv has no column of numbers or words to learn from"):
        typed(pl.DataFrame({"y": ["a"]}), {}, PATH, carried=("y",))
