"""Users' own tables and arrays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from f2cto.data.encoding import encode
from f2cto.data.errors import DataError
from f2cto.data.files import export_rows, open_data
from f2cto.data.partition import by_site
from f2cto.data.samples import DataSet

WIDTHS, PROTOCOLS = [0.5, 2.5, 1.0, 4.0, 0.25], ["tcp", "udp", "tcp", "arp", "udp"]
COLUMNS: dict[str, Any] = {
    "width": WIDTHS,
    "proto": PROTOCOLS,
    "kind": ["dog", "cat", "dog", "ant", "cat"],
    "where": [7, 3, 7, 11, 3],
}
X = np.arange(30, dtype=np.float64).reshape(5, 2, 3)


def table(path: Path, columns: dict[str, Any] | None = None) -> Path:
    frame = pl.DataFrame(COLUMNS if columns is None else columns)
    (frame.write_csv if path.suffix.lower() == ".csv" else frame.write_parquet)(path)
    return path


def arrays(path: Path, **given: Any) -> Path:
    np.savez(path, **{"x": X, "y": np.array([3, 1, 3, 1, 20]), **given})
    return path


@pytest.mark.parametrize("file", ["pets.csv", "pets.parquet", "PETS.CSV"])
def test_tables(tmp_path: Path, file: str) -> None:
    data = open_data(table(tmp_path / file), label="kind", site="where")
    assert data.classes == ("ant", "cat", "dog")
    assert data.train.y.tolist() == [2, 1, 2, 0, 1]
    assert data.sites == ("3", "7", "11")
    assert data.train.sites is not None
    assert data.train.sites.tolist() == [1, 0, 1, 2, 0]
    assert data.train.rows.tolist() == [0, 1, 2, 3, 4]
    assert isinstance(data.train.x, pl.DataFrame)
    assert data.train.x.columns == ["width", "proto"]
    assert data.train.x["width"].to_list() == WIDTHS
    assert data.train.x["proto"].to_list() == PROTOCOLS
    assert (data.name, data.test, data.notes) == (file, None, ())


@pytest.mark.parametrize("file", ["pets.csv", "pets.parquet"])
def test_without_a_site_column_it_is_a_feature(tmp_path: Path, file: str) -> None:
    data = open_data(table(tmp_path / file), label="kind")
    assert (data.train.sites, data.sites) == (None, ())
    assert isinstance(data.train.x, pl.DataFrame)
    assert data.train.x.columns == ["width", "proto", "where"]


def test_a_table_goes_all_the_way_to_tensors(tmp_path: Path) -> None:
    data = open_data(table(tmp_path / "pets.csv"), label="kind", site="where")
    assert data.train.sites is not None
    shards = [data.train.take(rows) for rows in by_site(data.train.sites)]
    encoded = encode(shards, [])
    assert encoded.names == ("width", "proto=arp", "proto=tcp", "proto=udp")
    assert [shard.y.tolist() for shard in encoded.shards] == [[1, 1], [2, 2], [0]]
    assert all(0 <= float(shard.x.min()) <= float(shard.x.max()) <= 1 for shard in encoded.shards)


@pytest.mark.parametrize("file", ["broken.csv", "broken.parquet"])
def test_rows_left_out_keep_the_others_numbers(tmp_path: Path, file: str) -> None:
    path = table(tmp_path / file, {**COLUMNS, "width": [0.5, None, 1.0, 4.0, 0.25], "same": ["s"] * 5})
    data = open_data(path, label="kind", site="where")
    assert data.train.rows.tolist() == [0, 2, 3, 4]
    assert data.train.y.tolist() == [2, 2, 0, 1]
    assert data.train.sites is not None
    assert data.train.sites.tolist() == [1, 1, 2, 0]
    assert len(data.notes) == 2
    assert "1 of 5 rows had broken cells and were left out: width (1)" in data.notes[0]
    assert data.notes[1] == "Left out because constant: same."
    exported = export_rows(path, data.train.rows[[2, 1]])
    assert exported["proto"].to_list() == ["arp", "tcp"]
    assert exported.columns == [*COLUMNS, "same"]


def test_columns_that_are_neither_numbers_nor_words_are_noted(tmp_path: Path) -> None:
    when = pl.Series([0, 1, 2, 3, 4]).cast(pl.Datetime)
    data = open_data(table(tmp_path / "dated.parquet", {**COLUMNS, "when": when}), label="kind")
    assert isinstance(data.train.x, pl.DataFrame)
    assert "when" not in data.train.x.columns
    assert data.notes == ("Left out because neither numbers nor words: when.",)


def test_arrays(tmp_path: Path) -> None:
    data = open_data(arrays(tmp_path / "a.npz", site=np.array(["n", "s", "n", "n", "s"])))
    assert data.classes == ("1", "3", "20")
    assert data.train.y.tolist() == [1, 0, 1, 0, 2]
    assert data.sites == ("n", "s")
    assert data.train.sites is not None
    assert data.train.sites.tolist() == [0, 1, 0, 0, 1]
    assert isinstance(data.train.x, torch.Tensor)
    assert torch.equal(data.train.x, torch.from_numpy(X).float())


def test_arrays_by_other_names_and_of_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=X.astype(np.uint8), digit=np.arange(5) % 2, hospital=np.arange(5) // 3)
    data = open_data(path, label="digit", site="hospital")
    assert isinstance(data.train.x, torch.Tensor)
    assert data.train.x.dtype == torch.uint8
    assert data.train.y.tolist() == [0, 1, 0, 1, 0]
    assert data.train.sites is not None
    assert data.train.sites.tolist() == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_broken_rows_of_arrays_are_left_out(tmp_path: Path, value: float) -> None:
    x = X.copy()
    x[1, 0, 2] = value
    data = open_data(arrays(tmp_path / "a.npz", x=x))
    assert data.train.rows.tolist() == [0, 2, 3, 4]
    assert data.train.y.tolist() == [1, 1, 0, 2]
    assert data.notes == ("1 of 5 rows have NaN or infinite numbers and were left out, the first row 1.",)


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ([10, 9, -1, 9, 10], ("-1", "9", "10")),
        (["10", "9", "100", "9", "10"], ("9", "10", "100")),
        (["b", "B", "a", "b", "b"], ("B", "a", "b")),
        ([1.0, 0.0, 1.0, 1.0, 11.0], ("0", "1", "11")),
        ([True, False, True, True, True], ("false", "true")),
        (["007", "7", "007", "7", "7"], ("007", "7")),
        ([" dog", "dog ", "cat", "cat", "cat"], ("cat", "dog")),
    ],
)
@pytest.mark.parametrize("file", ["l.csv", "l.parquet", "l.npz"])
def test_labels_of_any_kind(tmp_path: Path, file: str, labels: list[Any], classes: tuple[str, ...]) -> None:
    path = tmp_path / file
    if path.suffix == ".npz":
        arrays(path, y=np.array(labels))
    else:
        table(path, {"y": labels, "v": WIDTHS})
    data = open_data(path, label="y")
    assert data.classes == classes
    shown = [str(int(v)) if isinstance(v, float) else str(v).lower() if v in (True, False) else str(v) for v in labels]
    assert [classes[i] for i in data.train.y.tolist()] == [text.strip() for text in shown]


def test_exported_rows_of_tables(tmp_path: Path) -> None:
    """In the order given, all columns, with their types; text that only looks like a number stays text."""
    columns = {**COLUMNS, "code": ["007", "12", "1", "2", "3"]}
    for file in ("t.csv", "t.parquet"):
        exported = export_rows(table(tmp_path / file, columns), torch.tensor([3, 0]))
        assert exported.equals(pl.DataFrame(columns)[[3, 0]])


def test_exported_rows_of_arrays(tmp_path: Path) -> None:
    exported = export_rows(arrays(tmp_path / "a.npz", site=np.arange(5)), torch.tensor([4, 1]))
    assert exported.columns == ["x0", "x1", "x2", "x3", "x4", "x5", "y", "site"]
    assert exported.row(0) == (24, 25, 26, 27, 28, 29, 20, 4)
    assert exported.row(1) == (6, 7, 8, 9, 10, 11, 1, 1)


def test_rows_that_are_not_there_any_more(tmp_path: Path) -> None:
    for path in (table(tmp_path / "t.csv"), arrays(tmp_path / "t.npz")):
        with pytest.raises(DataError, match=f"{path.name} has no row 5 any more"):
            export_rows(path, torch.tensor([0, 5]))


def opened(file: str, label: str | None = "y", site: str | None = None, **columns: Any) -> Callable[[Path], DataSet]:
    return lambda folder: open_data(table(folder / file, columns), label=label, site=site)


def zipped(label: str | None = None, **given: Any) -> Callable[[Path], DataSet]:
    return lambda folder: open_data(arrays(folder / "a.npz", **given), label=label)


def content(file: str, text: str) -> Callable[[Path], DataSet]:
    def write(folder: Path) -> DataSet:
        (folder / file).write_text(text)
        return open_data(folder / file, label="y")

    return write


def cut_short(folder: Path) -> DataSet:
    path = arrays(folder / "a.npz")
    path.write_bytes(path.read_bytes()[:-200])
    return open_data(path)


def one_array(folder: Path) -> DataSet:
    np.save(folder / "a.npy", X)
    return open_data((folder / "a.npy").rename(folder / "a.npz"))


V, Y, NAN, INF = [0.5, 0.25, 1.0], [0, 1, 1], float("nan"), float("inf")
BAD: dict[str, tuple[Callable[[Path], DataSet], str]] = {
    "missing file": (
        lambda folder: open_data(folder / "no.csv"),
        r"There is no .*no.csv; give a .parquet, .csv or .npz",
    ),
    "unknown suffix": (content("t.xlsx", "?"), "t.xlsx is of no known kind; give a .parquet"),
    "no label given": (opened("t.csv", None, v=V, y=Y), "Say which column of .*t.csv is the label; it has v, y"),
    "no such label": (opened("t.csv", "kinds", v=V, kind=Y), r"t.csv has no column `kinds`; did you mean kind\?"),
    "no such site": (opened("t.csv", "y", "site", v=V, y=Y), "t.csv has no column `site`; it has v, y"),
    "null label": (opened("t.csv", v=V, y=[0, None, None]), "column y of .*t.csv is empty in 2 rows, the first row 1"),
    "blank label": (opened("t.csv", v=V, y=["a", "b", " "]), "column y of .*t.csv is empty in 1 rows, the first row 2"),
    "NaN label": (opened("t.parquet", v=V, y=[0.0, NAN, 1.0]), "is empty in 1 rows, the first row 1; fill them"),
    "fraction": (opened("t.csv", v=V, y=[0.0, 1.0, 1.5]), "column y of .*t.csv holds 1.5 in row 2; give whole numbers"),
    "typed fraction": (opened("t.parquet", v=V, y=V), "holds 0.5 in row 0; give whole numbers or names"),
    "infinite label": (opened("t.parquet", v=V, y=[0.0, 1.0, INF]), "holds inf in row 2"),
    "lists for labels": (opened("t.parquet", v=V, y=[[0], [1], [1]]), r"holds List\(Int64\); give whole numbers"),
    "one class": (opened("t.csv", v=V, y=[4, 4, 4]), "All 3 labels in the column y of .*t.csv are `4`"),
    "null site": (opened("t.csv", "y", "s", v=V, y=Y, s=[1, None, 2]), "column s of .*t.csv is empty in 1 rows"),
    "no rows": (content("t.csv", "v,y\n"), "t.csv has a header but no rows"),
    "empty file": (content("t.csv", ""), "t.csv is empty"),
    "no features": (opened("t.csv", y=Y), "t.csv has no column of numbers or words"),
    "constant": (opened("t.csv", v=[1, 1, 1], y=Y), "No column of .*t.csv but the label has values that differ"),
    "all broken": (
        opened("t.parquet", v=[None, 1, None], w=[1, None, 2], y=Y),
        "Every row of .*t.parquet has a broken",
    ),
    "not parquet": (content("t.parquet", "v,y"), "t.parquet cannot be read as a table"),
    "no x": (one_array, "a.npz has no array `y`; it has x"),
    "no y": (zipped("label"), "a.npz has no array `label`; it has x, y"),
    "too few y": (zipped(y=Y), r"array y of .*a.npz must hold one value for each of 5 samples; got shape \(3,\)"),
    "one-hot y": (zipped(y=np.eye(5)), r"one value for each of 5 samples; got shape \(5, 5\)"),
    "fraction in y": (zipped(y=np.arange(5) / 2), "array y of .*a.npz holds 0.5 in row 1; give whole numbers"),
    "one y": (zipped(y=np.zeros(5, int)), "All 5 labels in the array y of .*a.npz are `0`"),
    "flat x": (zipped(x=np.arange(5)), "array x of .*a.npz must hold numbers, a row for each sample; got int64"),
    "complex x": (zipped(x=X * 1j), "must hold numbers, a row for each sample; got complex128"),
    "no samples": (zipped(x=X[:0], y=Y[:0]), "must hold numbers, a row for each sample; got float64 of shape"),
    "all NaN": (zipped(x=X * NAN), "All 5 rows of x in .*a.npz have NaN"),
    "objects": (zipped(y=np.array([{}] * 5)), r"a.npz cannot be read \(.*; write it with numpy.savez.*without objects"),
    "npz cut short": (cut_short, r"a.npz cannot be read \(.*; write it with numpy.savez"),
    "no zip": (content("a.npz", "words"), "a.npz cannot be read"),
}


@pytest.mark.parametrize(("opening", "complaint"), BAD.values(), ids=BAD)
def test_bad_files_are_named(tmp_path: Path, opening: Callable[[Path], DataSet], complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        opening(tmp_path)
