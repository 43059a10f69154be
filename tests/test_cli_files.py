"""`f2cto select` on users' own files: what comes back is in their terms."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

from f2cto.cli import main

FAST = ["--iterations", "3", "--quiet", "--set", "training.steps=5", "--set", "evaluation.draws=1"]
SITES = ("north", "south", "west")


@pytest.fixture
def frame() -> pl.DataFrame:
    """90 rows of two numbers, a protocol and a site; the label is text and depends on the numbers."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=90), rng.normal(100, 30, size=90)
    return pl.DataFrame(
        {
            "a": a,
            "b": b,
            "protocol": np.where(rng.random(90) < 0.5, "tcp", "udp"),
            "site": [SITES[i % 3] for i in range(90)],
            "kind": np.where(a > 0, "bad", "good"),
        }
    )


def coreset(out: Path) -> list[dict[str, str]]:
    with (out / "coreset.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_a_table_gives_its_own_rows_back(frame: pl.DataFrame, suffix: str, tmp_path: Path) -> None:
    path, out, export = tmp_path / f"data{suffix}", tmp_path / "run", tmp_path / f"kept{suffix}"
    (frame.write_csv if suffix == ".csv" else frame.write_parquet)(path)
    arguments = [str(path), "--label", "kind", "--worker-column", "site", "--fixed", "protocol", "--size", "4"]
    assert main(["select", *arguments, *FAST, "--out", str(out), "--export", str(export)]) == 0
    rows = coreset(out)
    assert [row["worker"] for row in rows] == ["0"] * 4 + ["1"] * 4 + ["2"] * 4
    for row in rows:
        assert frame["kind"][int(row["row"])] == row["label"]
        assert frame["site"][int(row["row"])] == SITES[int(row["worker"])]
    kept = pl.read_csv(export) if suffix == ".csv" else pl.read_parquet(export)
    assert kept.columns == [*frame.columns, "f2cto_row", "f2cto_worker", "f2cto_weight"]
    assert kept["f2cto_row"].to_list() == [int(row["row"]) for row in rows]
    assert kept["b"].to_list() == pytest.approx([frame["b"][int(row["row"])] for row in rows])


def test_five_per_cent_unless_said_otherwise(frame: pl.DataFrame, tmp_path: Path) -> None:
    frame.write_parquet(tmp_path / "data.parquet")
    arguments = [str(tmp_path / "data.parquet"), "--label", "kind", "--workers", "2", "--no-judge"]
    assert main(["select", *arguments, *FAST[:3], "--out", str(tmp_path / "run")]) == 0
    assert len(coreset(tmp_path / "run")) == 2 * round(0.05 * 45)


def test_without_judging_every_row_can_be_kept(frame: pl.DataFrame, tmp_path: Path) -> None:
    frame.write_parquet(tmp_path / "data.parquet")
    arguments = [str(tmp_path / "data.parquet"), "--label", "kind", "--workers", "1", "--size", "90", "--no-judge"]
    assert main(["select", *arguments, *FAST[:3], "--out", str(tmp_path / "run")]) == 0
    assert sorted(int(row["row"]) for row in coreset(tmp_path / "run")) == list(range(90))
    assert "report" in (tmp_path / "run" / "report.html").read_text()


def test_arrays(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    np.savez(tmp_path / "data.npz", x=rng.random((40, 6)), y=np.arange(40) % 2)
    arguments = [str(tmp_path / "data.npz"), "--workers", "2", "--size", "3"]
    assert main(["select", *arguments, *FAST, "--out", str(tmp_path / "run")]) == 0
    assert all(int(row["row"]) % 2 == int(row["label"]) for row in coreset(tmp_path / "run"))


def test_a_folder_of_images_gives_file_names_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    for name, low in (("cats", 0), ("dogs", 128)):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for i in range(12):
            pixels = rng.integers(low, low + 127, (6, 6, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pets" / name / f"{i}.png")
    export = tmp_path / "kept.csv"
    arguments = [f"{tmp_path}/pets", "--workers", "2", "--size", "2", "--export", str(export)]
    assert main(["select", *arguments, *FAST, "--out", str(tmp_path / "run")]) == 0
    rows = coreset(tmp_path / "run")
    assert all(row["file"].startswith(row["label"]) and (tmp_path / "pets" / row["file"]).exists() for row in rows)
    assert len(pl.read_csv(export)) == len(rows) == 4


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["missing.parquet", "--label", "kind"], "There is no missing.parquet"),
        (["{data}", "--label", "kinds"], "did you mean kind"),
        (["{data}"], "label"),
        (["{data}", "--label", "kind", "--worker-column", "place"], "place"),
        (["{data}", "--label", "kind", "--fixed", "protocols"], "protocol"),
        (["{data}", "--label", "kind", "--export", "kept.xlsx"], "--export writes .parquet or .csv"),
        (["{data}", "--label", "kind", "--partition", "dirichlet"], "A partition is"),
        (["{data}", "--label", "kind", "--partition", "site"], "does not say whose its samples are"),
        (["{data}", "--label", "kind", "--size", "70"], "is to keep 70"),
        (["--export", "kept.csv"], "--export gives back rows of your own file"),
        (["--method", "magic"], "There is no method `magic`"),
        (["--device", "cuda:7"], "no device `cuda:7`"),
        (["--set", "methods.random.step=3"], "There is no setting `methods.random.step`"),
        (["--set", "data.scenario.task=2"], "The scenario has tasks 1 to 1"),
        (["--set", "network.kind=resnet18", "{data}", "--label", "kind"], "`resnet18` takes images"),
        (["--set", "network.kind=signals"], "`signals` takes channels over time"),
    ],
)
def test_what_users_can_mend_is_one_sentence(
    frame: pl.DataFrame, arguments: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame.write_parquet(tmp_path / "data.parquet")
    given = [argument.format(data=tmp_path / "data.parquet") for argument in arguments]
    assert main(["select", *given, *FAST, "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert said.count("\n") == 1
    assert not (tmp_path / "run").exists()
