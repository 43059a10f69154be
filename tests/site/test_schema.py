from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from f2cto.attacks.base import Range
from f2cto.config import SettingsError
from f2cto.data.encoding import Options, encode
from f2cto.data.errors import DataError
from f2cto.data.files import open_data
from f2cto.site.reading import read_site
from f2cto.site.schema import ColumnSchema, Schema, read_schema, schema_from_text, schema_of, schema_text

NUMBERS = ColumnSchema("n", 0.0, 10.0)
WORDS = ColumnSchema("w", words=("a", "b"))
SCHEMA = Schema(("no", "yes"), (NUMBERS, WORDS))


def written(path: Path, **columns: object) -> Path:
    pl.DataFrame(columns).write_parquet(path)
    return path


@settings(deadline=None, max_examples=25)
@given(
    st.integers(0, 1000),
    st.builds(Options, one_hot=st.booleans(), logarithm=st.booleans(), categories=st.integers(2, 4)),
)
def test_applied_to_what_it_was_made_of_it_is_the_encoding(
    tmp_path_factory: pytest.TempPathFactory, seed: int, options: Options
) -> None:
    """Through the file's text and back, bit by bit, also where rows are broken and columns useless."""
    rng, path = np.random.default_rng(seed), tmp_path_factory.mktemp("law") / "a.parquet"
    count = int(rng.integers(8, 40))
    columns = {
        "id": range(count),
        "tail": rng.standard_cauchy(count) * 10.0 ** rng.integers(-6, 9),
        "gap": [None, *rng.normal(size=count - 1)],
        "word": rng.choice(["x", "y", "z", "u", "v"], count),
        "flag": rng.random(count) < 0.5,
        "y": np.arange(count) % 3,
    }
    written(path, **columns)
    data = open_data(path, label="y").train
    fixed = ["word"] if "word" in data.x else []
    expected, schema = encode([data], [], fixed, options), schema_of(path, "y", fixed, options)
    again = schema_from_text(schema_text(schema))
    assert again == schema
    assert again.digest == schema.digest
    found = read_site(path, "y", again)
    assert torch.equal(found.samples.x, expected.shards[0].x)
    assert torch.equal(found.samples.y, data.y)
    assert torch.equal(found.rows, data.rows)
    assert schema.encoder().names == expected.names
    assert schema.fixed == expected.fixed
    assert schema.sample == (len(expected.names),)


def test_the_digest_tells_schemas_apart_and_not_how_they_are_written() -> None:
    text = json.dumps(json.loads(schema_text(SCHEMA)), indent=7, sort_keys=True)
    assert schema_from_text(text).digest == SCHEMA.digest
    others = [
        Schema(("yes", "no"), (NUMBERS, WORDS)),
        Schema(("no", "yes"), (WORDS, NUMBERS)),
        Schema(("no", "yes"), (ColumnSchema("n", 0.0, 10.000001), WORDS)),
        Schema(("no", "yes"), (ColumnSchema("n", 0.0, 10.0, fixed=True), WORDS)),
        Schema(("no", "yes"), shape=(2,)),
    ]
    assert len({SCHEMA.digest, *(other.digest for other in others)}) == 6


def test_another_site_in_the_schemas_terms(tmp_path: Path) -> None:
    """Columns by name and in any order, values clipped and counted, words unknown, one class only, a broken cell."""
    path = written(tmp_path / "b.parquet", w=["b", "c", "a"], extra=[1, 2, 3], n=[20.0, 5.0, None], y=["yes"] * 3)
    found = read_site(path, "y", SCHEMA)
    assert found.samples.x.tolist() == [[1, 0, 1], [0.5, 0, 0]]
    assert found.samples.y.tolist() == [1, 1]
    assert found.rows.tolist() == [0, 1]
    assert found.notes == (
        "b.parquet: 1 of 3 rows had broken cells and were left out: n (1).",
        "1 values of `n` lie outside the schema's range and were clipped.",
        "1 values of `w` are not among the schema's words and are none of those known.",
    )


def test_words_that_look_like_numbers(tmp_path: Path) -> None:
    ports = Schema(("no", "yes"), (ColumnSchema("port", words=("443", "80", "ssh"), other=True),))
    path = written(tmp_path / "c.parquet", port=[80.0, 443.0, 7.0], y=["yes", "no", "no"])
    assert read_site(path, "y", ports).samples.x.tolist() == [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1]]


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"n": [1.0], "y": ["no"]}, "has no column `w`"),
        ({"n": ["many"], "w": ["a"], "y": ["no"]}, "`n` of d.parquet holds words, and the schema says numbers"),
        ({"n": [1.0], "w": [3.5], "y": ["no"]}, "`w` of d.parquet holds numbers, and the schema says words"),
        ({"n": [[1]], "w": ["a"], "y": ["no"]}, r"`n` of d.parquet holds List\(Int64\), and the schema says numbers"),
        ({"n": [1.0], "w": ["a"], "y": ["maybe"]}, "has label `maybe` in row 0 of column `y` but needs one of no, yes"),
        ({"n": [1.0], "w": ["a"], "z": ["no"]}, "has no column `y`"),
    ],
)
def test_what_does_not_fit(tmp_path: Path, columns: dict[str, object], complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        read_site(written(tmp_path / "d.parquet", **columns), "y", SCHEMA)


def test_the_label_is_no_feature(tmp_path: Path) -> None:
    path = written(tmp_path / "d.parquet", n=[1.0], w=["a"])
    with pytest.raises(DataError, match="has `w` as a feature"):
        read_site(path, "w", SCHEMA)
    with pytest.raises(DataError, match="Say which column"):
        read_site(path, None, SCHEMA)


def test_arrays(tmp_path: Path) -> None:
    one, two = tmp_path / "a.npz", tmp_path / "b.npz"
    np.savez(one, x=np.arange(12, dtype=np.uint8).reshape(3, 1, 2, 2), y=["a", "b", "a"])
    schema = schema_of(one, None)
    assert (schema.classes, schema.shape) == (("a", "b"), (1, 2, 2))
    assert schema_from_text(schema_text(schema)) == schema
    assert torch.equal(read_site(one, None, schema).samples.x.flatten(), torch.arange(12) / 255)
    np.savez(two, x=np.array([[[[0, 1], [np.nan, 0]]], [[[0, 1], [1, 0]]]], dtype=np.float64), y=["b", "b"])
    found = read_site(two, None, schema)
    assert found.samples.x.tolist() == [[[[0, 1], [1, 0]]]]
    assert (found.samples.y.tolist(), found.rows.tolist()) == ([1], [1])
    np.savez(two, x=np.zeros((2, 3)), y=["a", "b"])
    with pytest.raises(DataError, match=r"have the shape \(3,\), and the schema says \(1, 2, 2\)"):
        read_site(two, None, schema)
    np.savez(two, x=np.zeros((2, 1, 2, 2)), y=["a", "c"])
    with pytest.raises(DataError, match="has label `c` in row 1"):
        read_site(two, None, schema)
    np.savez(two, x=np.zeros((2, 1, 2, 2)), y=["a"])
    with pytest.raises(DataError, match="must hold one value for each of 2 samples"):
        read_site(two, None, schema)
    np.savez(two, z=np.zeros((2, 1, 2, 2)), y=["a"])
    with pytest.raises(DataError, match="has no array `x`"):
        read_site(two, None, schema)


def test_features_lie_in_the_range_that_the_site_was_started_with(tmp_path: Path) -> None:
    path, schema = tmp_path / "a.npz", Schema(("a", "b"), shape=(2,))
    np.savez(path, x=np.array([[0.0, -0.5], [2.0, 1.0]]), y=["a", "b"])
    assert len(read_site(path, None, schema, Range(-0.5, 2.0))) == 2
    for low, high in ((-0.4, 2.0), (-0.5, 1.9)):
        with pytest.raises(DataError, match=f"reach from -0.5 to 2, and the range is .{low}, {high:g}.; scale them"):
            read_site(path, None, schema, Range(low, high))
    with pytest.raises(DataError, match=r"range is \[0, 1\]"):
        read_site(path, None, schema)


def test_images(tmp_path: Path) -> None:
    for name, grey in (("cat/1.png", 0), ("dog/1.png", 255), ("dog/2.png", 51)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("L", (2, 2), grey).save(tmp_path / name)
    schema = Schema(("bird", "cat", "dog"), shape=(1, 2, 2))
    found = read_site(tmp_path, None, schema)
    assert found.samples.y.tolist() == [1, 2, 2]
    assert found.samples.x.mean(dim=(1, 2, 3)).tolist() == pytest.approx([0, 1, 0.2])
    assert found.files == ("cat/1.png", "dog/1.png", "dog/2.png")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is not JSON"),
        ("[1]", "has no `classes`"),
        ('{"classes": ["a"], "shape": [2]}', "two classes or more"),
        ('{"classes": ["a", "a"], "shape": [2]}', "two classes or more"),
        ('{"classes": ["a", "b"]}', "either `columns` or the `shape`"),
        ('{"classes": ["a", "b"], "shape": [0]}', "either `columns` or the `shape`"),
        ('{"classes": ["a", "b"], "shape": [2], "columns": [{"name": "n"}]}', "either `columns` or the `shape`"),
        ('{"classes": ["a", "b"], "columns": [{"low": 1}]}', "a column without a `name`"),
        ('{"classes": ["a", "b"], "columns": [{"name": "n", "low": 2}]}', "low < high"),
        ('{"classes": ["a", "b"], "columns": [{"name": "n", "low": NaN}]}', "low < high"),
        ('{"classes": ["a", "b"], "columns": [{"name": "n", "high": Infinity}]}', "low < high"),
        ('{"classes": ["a", "b"], "columns": [{"name": "n", "unit": -1}]}', "unit >= 0"),
        ('{"classes": ["a", "b"], "columns": [{"name": "n", "words": ["a"]}]}', "two words or more"),
        ('{"classes": ["a", "b"], "columns": [{"name": "n"}, {"name": "n"}]}', "two columns named `n`"),
        ('{"classes": ["a", "b"], "columns": [{"name": "n", "hihg": 3}]}', "There is no setting"),
        ('{"classes": ["a", "b"], "shape": [2], "format": 2}', "format 2"),
        ('{"classes": "ab", "shape": [2]}', "`classes` must be a list"),
    ],
)
def test_broken_schemas(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "schema.json"
    path.write_text(text)
    with pytest.raises(SettingsError, match=complaint) as caught:
        read_schema(path)
    assert "\n" not in str(caught.value)


def test_a_schema_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"Cannot read the schema .*: No such file"):
        read_schema(tmp_path / "schema.json")


def test_fixed_columns_have_to_be_there(file: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no column `prot`; did you mean proto\?"):
        schema_of(file, "y", ["prot"])
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 2)), y=[0, 1])
    with pytest.raises(DataError, match="Only columns can be fixed"):
        schema_of(tmp_path / "a.npz", None, ["a"])
