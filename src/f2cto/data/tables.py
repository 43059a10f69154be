"""Tables: read from CSV or Parquet, columns typed, broken rows counted and left out, row numbers kept throughout."""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
import torch
from torch import Tensor

from f2cto.data.cells import Kind, numbers, read, words
from f2cto.data.errors import DataError
from f2cto.data.labels import missing, sorted_names

Frame = pl.DataFrame | pl.LazyFrame
ROW = "row number in the file"  # a name that no file is likely to use
IDENTIFIERS = frozenset({"", "id", "idx", "index", "row", "uuid", "guid", "unnamed: 0"})


@dataclass(frozen=True, eq=False)
class Table:
    """Whole rows of typed columns."""

    frame: pl.DataFrame
    rows: Tensor  # (M,), int64: each row's number in the file, counted from 0 without the header
    count: int  # how many rows the file has, broken ones included
    notes: tuple[str, ...] = ()  # what was left out, a sentence each


def read_table(path: Path) -> pl.DataFrame:
    """All columns of a .csv file, as text, or of a .parquet file, as they are."""
    return _filled(collected(scan_table(path), path), path)


def scan_table(path: Path) -> pl.LazyFrame:
    """As `read_table`, but read when it is collected, so that large files need not be held as text.

    A CSV's cells come as text. To infer types, polars would have to go through the file once more (six times slower on
    UNSW-NB15), and one odd cell far down would turn a column of numbers into words; `typed` casts and counts instead.
    """
    if not path.is_file():
        msg = f"{path} is not there; check the path."
        raise DataError(msg)
    if path.stat().st_size == 0:
        msg = f"{path} is empty; download or export it again."
        raise DataError(msg)
    if path.suffix.lower() == ".parquet":
        return pl.scan_parquet(path, glob=False)
    if path.suffix.lower() == ".csv":
        return _scan_csv(path)
    msg = f"{path.name} is neither .csv nor .parquet; export the table as one of the two."
    raise DataError(msg)


def collected(query: pl.LazyFrame, path: Path) -> pl.DataFrame:
    """The query's rows; what is wrong with the file at `path` becomes a sentence for users."""
    try:
        return query.collect()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise DataError(_complaint(path, str(error))) from error


def typed(query: Frame, kinds: Mapping[str, Kind], path: Path, carried: Sequence[str] = ()) -> Table:
    """The columns of `kinds`, each cell of its kind, and the `carried` ones as they are.

    A row with a broken cell (empty, infinite, or not of the column's kind) is left out, and a note says how many such
    rows there were and in which columns. `path` says in errors and notes which file it is; any name will do.
    """
    if not kinds:
        msg = f"{path.name} has no column of numbers or words to learn from; give it some beside the label."
        raise DataError(msg)
    query = query.lazy()
    schema = schema_of(query, path)
    for name in (*kinds, *carried):
        require(schema.names(), name, path)
    used = [name for name in schema if name in kinds]
    chosen = query.with_row_index(ROW).select(ROW, *carried, *used)
    frame = _filled(collected(read(chosen, schema, kinds), path), path)
    broken = frame.select(pl.col(used).is_null())
    bad = broken.select(pl.any_horizontal(pl.all())).to_series()
    note = _broken_note(broken, bad, path) if bad.any() else ""
    if bad.all():
        msg = f"Every row of {path} has a broken cell; repair it or take out columns ({note.rstrip('.')})."
        raise DataError(msg)
    kept = frame.filter(~bad)
    return Table(kept.drop(ROW), _tensor(kept[ROW]), len(frame), (note,) if note else ())


def label_column(
    frame: pl.DataFrame, name: str, path: Path, classes: Sequence[str] | None = None, rows: Tensor | None = None
) -> tuple[tuple[str, ...], Tensor]:
    """The names of the classes, and each row's class as a position in them.

    Without `classes`, all that occur, in order. `rows` are the rows' numbers in the file, for errors.
    """
    require(frame.columns, name, path)
    labels = frame.select(words(pl.col(name))).to_series()
    found = tuple(classes) if classes is not None else sorted_names(labels.drop_nulls().unique().to_list())
    codes = labels.cast(pl.Enum(found), strict=False).to_physical()
    if codes.null_count():
        first = int(codes.is_null().arg_max() or 0)
        row = first if rows is None else int(rows[first])
        got = "no label" if labels[first] is None else f"label `{labels[first]}`"
        expected = f"one of {', '.join(found)}" if classes is not None else "a class"
        msg = f"{path.name} has {got} in row {row} of column `{name}` but needs {expected}; correct or remove the row."
        raise DataError(msg)
    return found, _tensor(codes)


def guessed(frame: pl.DataFrame, skip: Collection[str] = ()) -> dict[str, Kind]:
    """A kind for every column but those to `skip`; columns of dates, lists and the like get none.

    Text is taken for numbers if nine of ten filled cells are numbers; the others are then broken cells.
    """
    kinds = dict[str, Kind]()
    for name, dtype in frame.schema.items():
        if name in skip:
            continue
        if dtype.is_numeric() or dtype == pl.Boolean:
            kinds[name] = Kind.NUMBER
        elif dtype == pl.String:
            filled, read = frame.select(
                pl.col(name).is_not_null().sum(), numbers(pl.col(name), dtype).is_not_null().sum().alias("read")
            ).row(0)
            kinds[name] = Kind.NUMBER if read and read >= 0.9 * filled else Kind.WORD
        elif isinstance(dtype, pl.Categorical | pl.Enum):
            kinds[name] = Kind.WORD
    return kinds


def without_useless(table: Table) -> Table:
    """The table without columns that cannot help to tell classes apart: constants and identifiers."""
    reasons = {name: reason for name in table.frame.columns if (reason := _useless(table, name))}
    notes = tuple(
        f"Left out because {reason}: {', '.join(n for n, r in reasons.items() if r == reason)}."
        for reason in sorted(set(reasons.values()))
    )
    return replace(table, frame=table.frame.drop(list(reasons)), notes=(*table.notes, *notes))


def require(names: Sequence[str], name: str, path: Path) -> None:
    """Refuse a table without the column `name`."""
    if name not in names:
        raise DataError(missing("column", name, names, path.name))


def schema_of(query: pl.LazyFrame, path: Path) -> pl.Schema:
    """The columns and their types; what is wrong with the file becomes a sentence for users."""
    try:
        return query.collect_schema()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise DataError(_complaint(path, str(error))) from error


def _filled(frame: pl.DataFrame, path: Path) -> pl.DataFrame:
    if frame.is_empty():
        msg = f"{path} has a header but no rows; download or export it again."
        raise DataError(msg)
    return frame


def _scan_csv(path: Path) -> pl.LazyFrame:
    query = pl.scan_csv(path, infer_schema=False, glob=False)
    names = schema_of(query, path).names()
    if len(names) == 1 and re.search(r"[;\t|]", names[0]):
        msg = f"{path} has only one column, `{names[0]}`; separate its cells by commas."
        raise DataError(msg)
    clean = [re.sub(r"_duplicated_\d+$", "", name).strip() for name in names]
    if twice := sorted({name for name in clean if clean.count(name) > 1}):
        msg = f"{path} has two columns named `{twice[0]}`; rename one."
        raise DataError(msg)
    # A blank line is no row; polars would give it as one of nulls.
    return query.rename(dict(zip(names, clean, strict=True))).filter(~pl.all_horizontal(pl.all().is_null()))


def _complaint(path: Path, error: str) -> str:
    if "more fields" in error:
        line, count, expected = _first_ragged(path)
        return f"{path} has {count} cells in line {line} but {expected} in its header; quote cells that hold commas."
    if "utf-8" in error:
        return f"{path} is not text in UTF-8; save it as UTF-8, or download it again."
    return f"{path} cannot be read as a table ({error.splitlines()[0].rstrip('.')}); download or export it again."


def _first_ragged(path: Path) -> tuple[int, int, int]:
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
        reader = csv.reader(file)
        expected = len(next(reader))
        return next(((reader.line_num, len(row), expected) for row in reader if len(row) > expected), (0, 0, expected))


def _broken_note(broken: pl.DataFrame, bad: pl.Series, path: Path) -> str:
    counts = {name: int(broken[name].sum()) for name in broken.columns if broken[name].any()}
    listed = ", ".join(f"{name} ({count:,})" for name, count in sorted(counts.items(), key=lambda item: -item[1]))
    return f"{path.name}: {int(bad.sum()):,} of {len(bad):,} rows had broken cells and were left out: {listed}."


def _useless(table: Table, name: str) -> str:
    column = table.frame[name]
    if column.is_empty() or (column == column[0]).all():
        return "constant"
    if name.lower() in IDENTIFIERS:
        return "an identifier by name"
    if column.dtype == pl.Float64:
        # Numbers that grow as the row numbers do only say where a row stands.
        counting = np.ptp(column.to_numpy() - table.rows.numpy()) == 0
        return "a count of the rows" if len(column) > 2 and counting else ""
    return "an identifier: all values differ" if len(column) > 2 and column.n_unique() == len(column) else ""


def _tensor(column: pl.Series) -> Tensor:
    return torch.from_numpy(column.cast(pl.Int64).to_numpy().copy())
