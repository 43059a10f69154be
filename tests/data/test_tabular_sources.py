from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
import torch

from f2cto.data.encoding import encode
from f2cto.data.errors import DataError
from f2cto.data.samples import Samples
from f2cto.data.sources import edge_iiotset, unsw_nb15
from f2cto.data.sources.source import Source
from testing.published_tables import (
    EDGE_COLUMNS,
    UNSW_COLUMNS,
    edge_row,
    shifted_row,
    unsw_row,
    write_edge,
    write_table,
    write_unsw,
)

TRAIN = "UNSW_NB15_training-set.csv"
DNN = "Selected dataset for ML and DL/DNN-EdgeIIoT-dataset.csv"
ML = "Selected dataset for ML and DL/ML-EdgeIIoT-dataset.csv"


def frame_of(samples: Samples) -> pl.DataFrame:
    assert isinstance(samples.x, pl.DataFrame)
    return samples.x


# UNSW-NB15


def test_unsw(tmp_path: Path) -> None:
    attacks = ["Normal", "Worms", "Generic", "Normal"]
    write_unsw(tmp_path, "training", [unsw_row(i, attack) for i, attack in enumerate(attacks)])
    write_unsw(tmp_path, "testing", [unsw_row(7, "DoS")])
    data = unsw_nb15.load(tmp_path)
    assert data.test is not None
    assert len(data.classes) == 10
    assert [data.classes[i] for i in data.train.y] == attacks
    assert [data.classes[i] for i in data.test.y] == ["DoS"]
    assert data.train.rows.tolist() == [0, 1, 2, 3]
    frame = frame_of(data.train)
    assert frame.columns == [name for name in UNSW_COLUMNS if name not in {"id", "attack_cat", "label"}]
    assert frame["sbytes"].to_list() == [0, 1, 2, 3]
    assert frame["proto"].cast(pl.String).to_list() == ["udp", "tcp", "udp", "tcp"]
    assert data.notes == ("Left out: id, which counts the rows, and label, which follows from attack_cat.",)


def test_unsw_becomes_features_with_its_protocols_fixed(tmp_path: Path) -> None:
    write_unsw(tmp_path, "training", [unsw_row(i, "Worms" if i % 2 else "Normal") for i in range(6)])
    data = unsw_nb15.load(tmp_path)
    encoded = encode([data.train.take(torch.arange(i, 6, 2)) for i in range(2)], [data.train], data.fixed)
    fixed = [encoded.names[i] for i in encoded.fixed]
    assert fixed == ["proto=tcp", "proto=udp", "is_ftp_login", "is_sm_ips_ports"]
    assert torch.equal(encoded.others[0].x[1::2], encoded.shards[1].x)


def test_half_of_unsw(tmp_path: Path) -> None:
    (tmp_path / "unsw-nb15" / "CSV Files").mkdir(parents=True)
    write_unsw(tmp_path, "training", [unsw_row(0), unsw_row(1)]).rename(tmp_path / "unsw-nb15" / "CSV Files" / TRAIN)
    data = unsw_nb15.load(tmp_path)
    assert data.test is None
    assert data.notes[-1] == "UNSW_NB15_testing-set.csv is not here: there is no test part."


def test_broken_rows_of_unsw_are_counted(tmp_path: Path) -> None:
    rows = [unsw_row(0), unsw_row(1, sbytes="tcp"), unsw_row(2, dur="", proto=""), unsw_row(3), unsw_row(4, rate="inf")]
    write_unsw(tmp_path, "training", rows)
    data = unsw_nb15.load(tmp_path)
    assert data.train.rows.tolist() == [0, 3]
    broken = "dur (1), proto (1), sbytes (1), rate (1)"
    assert data.notes[1] == f"{TRAIN}: 3 of 5 rows had broken cells and were left out: {broken}."


def test_a_cut_file_of_unsw_loses_its_last_row(tmp_path: Path) -> None:
    path = write_unsw(tmp_path, "training", [unsw_row(i) for i in range(3)])
    path.write_bytes(path.read_bytes()[:-60])
    data = unsw_nb15.load(tmp_path)
    assert data.train.rows.tolist() == [0, 1]
    assert "1 of 3 rows had broken cells" in data.notes[1]


def test_a_label_outside_the_list_of_unsw(tmp_path: Path) -> None:
    write_unsw(tmp_path, "training", [unsw_row(0, sbytes="?"), unsw_row(1), unsw_row(2, "Backdoors")])
    with pytest.raises(DataError, match=rf"{TRAIN} has label `Backdoors` in row 2 of column `attack_cat` but needs"):
        unsw_nb15.load(tmp_path)


@pytest.mark.parametrize(
    ("missing", "complaint"),
    [
        ("attack_cat", f"{TRAIN} has no column `attack_cat`; did you mean"),
        ("ct_src_ltm", rf"{TRAIN} has no column `ct_src_ltm`; did you mean ct_dst_src_ltm or ct_dst_ltm"),
    ],
)
def test_a_missing_column_of_unsw(tmp_path: Path, missing: str, complaint: str) -> None:
    columns = [name for name in UNSW_COLUMNS if name != missing]
    write_table(tmp_path / "unsw-nb15" / TRAIN, columns, [unsw_row(0)])
    with pytest.raises(DataError, match=complaint):
        unsw_nb15.load(tmp_path)


# Edge-IIoTset


def test_edge(tmp_path: Path) -> None:
    rows = [edge_row(i, attack) for i, attack in enumerate(["Normal", "XSS", "Normal", "DDoS_UDP"])]
    write_edge(tmp_path, DNN, rows)
    write_edge(tmp_path, ML, [edge_row(0, "Normal")])
    write_edge(tmp_path, "Attack traffic/XSS_attack.csv", [edge_row(0, "XSS")])
    data = edge_iiotset.load(tmp_path)
    assert data.classes == ("Normal", "DDoS_UDP", "XSS")
    assert data.train.y.tolist() == [0, 2, 0, 1]
    frame = frame_of(data.train)
    assert frame.columns == ["tcp.checksum", "tcp.flags.ack", "tcp.len"]  # all else is constant or dropped
    assert frame["tcp.checksum"].to_list() == [0, 16, 32, 48]
    assert data.fixed == ("tcp.flags.ack",)
    assert data.notes[0] == "Read: DNN-EdgeIIoT-dataset.csv."
    assert "3 of 15 classes are here; missing are Backdoor, DDoS_HTTP," in data.notes[1]
    assert "Left out as by its authors: frame.time, ip.src_host," in data.notes[2]


def test_the_smaller_joint_file_comes_second(tmp_path: Path) -> None:
    write_edge(tmp_path, ML, [edge_row(i, "Normal") for i in range(3)])
    write_edge(tmp_path, "Attack traffic/XSS_attack.csv", [edge_row(0, "XSS")])
    assert len(edge_iiotset.load(tmp_path).train) == 3


def test_files_of_single_attacks(tmp_path: Path) -> None:
    """Rows are numbered through the files, in the order of their names; broken rows count."""
    normal = [edge_row(1, "Normal"), edge_row(2, "Normal")]
    write_edge(tmp_path, "Normal traffic/Water_Level/Water_Level.csv", normal)
    prints = [edge_row(3, "OS_Fingerprinting"), edge_row(4, "OS_Fingerprinting", {"tcp.len": "?"})]
    write_edge(tmp_path, "Attack traffic/OS_Fingerprinting_attack.csv", prints)
    data = edge_iiotset.load(tmp_path)
    assert data.classes == ("Normal", "Fingerprinting")
    assert data.train.y.tolist() == [1, 0, 0]
    assert data.train.rows.tolist() == [0, 2, 3]
    assert frame_of(data.train)["tcp.len"].to_list() == [9, 3, 6]
    assert data.notes[0] == "Read: OS_Fingerprinting_attack.csv, Water_Level.csv."


def test_shifted_cells_are_broken(tmp_path: Path) -> None:
    """Five columns to the left: the flags stand in tcp.connection.fin, the payload in tcp.dstport."""
    write_edge(tmp_path, DNN, [edge_row(0, "Normal"), shifted_row(1, "MITM"), edge_row(2, "XSS")])
    data = edge_iiotset.load(tmp_path)
    assert data.train.rows.tolist() == [0, 2]
    note = next(note for note in data.notes if "broken" in note)
    assert note.startswith("DNN-EdgeIIoT-dataset.csv: 1 of 3 rows had broken cells and were left out: ")
    assert "tcp.connection.fin (1)" in note
    assert "tcp.dstport (1)" in note


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        ("tcp.seq", "0.000502"),
        ("dns.qry.qu", "197.0"),
        ("tcp.srcport", "_googlecast._tcp.local"),
        ("dns.qry.name.len", "0.debian.pool.ntp.org"),
        ("udp.time_delta", "inf"),
        ("mqtt.topic", ""),
    ],
)
def test_cells_that_moved_are_seen(tmp_path: Path, column: str, cell: str) -> None:
    write_edge(tmp_path, DNN, [edge_row(0, "Normal"), edge_row(1, "XSS", {column: cell}), edge_row(2, "XSS")])
    data = edge_iiotset.load(tmp_path)
    assert data.train.rows.tolist() == [0, 2]
    assert any(f"1 of 3 rows had broken cells and were left out: {column} (1)." in note for note in data.notes)


def test_rows_without_a_time_are_counted(tmp_path: Path) -> None:
    rows = [edge_row(0, "Normal"), edge_row(1, "MITM", {"frame.time": "6.0", "ip.src_host": "0"})]
    write_edge(tmp_path, DNN, rows)
    data = edge_iiotset.load(tmp_path)
    assert len(data.train) == 2
    assert any("1 rows have no time in frame.time, so their cells have moved" in note for note in data.notes)


def test_the_writing_of_zero_tells_nothing(tmp_path: Path) -> None:
    """The published files of attacks have 0.0 where those of normal traffic have 0."""
    words = [name for name in edge_iiotset.WORDS if name != "mqtt.topic"]
    rows = [
        edge_row(0, "Normal", {**dict.fromkeys(words, "0"), "mqtt.topic": "Water_Level"}),
        edge_row(1, "XSS", {**dict.fromkeys(words, "0.0"), "mqtt.topic": "0"}),
        edge_row(2, "XSS", {**dict.fromkeys(words, "0.0"), "mqtt.topic": "0.0"}),
    ]
    write_edge(tmp_path, DNN, rows)
    frame = frame_of(edge_iiotset.load(tmp_path).train)
    assert not set(words) & set(frame.columns)
    assert frame["mqtt.topic"].cast(pl.String).to_list() == ["Water_Level", "0", "0"]


def test_labels_and_columns_of_edge_are_checked(tmp_path: Path) -> None:
    write_edge(tmp_path, "Attack traffic/XSS_attack.csv", [edge_row(0, "XSS")])
    write_edge(tmp_path, "Attack traffic/Zero_attack.csv", [edge_row(0, "XSS"), edge_row(1, "Zero_day")])
    with pytest.raises(DataError, match=r"Zero_attack\.csv has label `Zero_day` in row 1 of column `Attack_type`"):
        edge_iiotset.load(tmp_path)
    columns = [name for name in EDGE_COLUMNS if name != "mqtt.len"]
    write_table(tmp_path / "edge-iiotset" / "Attack traffic/Zero_attack.csv", columns, [edge_row(0, "XSS")])
    with pytest.raises(DataError, match=r"Zero_attack\.csv has no column `mqtt.len`; did you mean"):
        edge_iiotset.load(tmp_path)


def test_a_byte_order_mark_and_spaces_in_the_header_do_no_harm(tmp_path: Path) -> None:
    columns = [f" {name}" for name in EDGE_COLUMNS]
    rows = [{f" {name}": cell for name, cell in edge_row(i, "XSS").items()} for i in range(2)]
    write_table(tmp_path / "edge-iiotset" / DNN, columns, rows, bom=True)
    assert edge_iiotset.load(tmp_path).train.rows.tolist() == [0, 1]


@pytest.mark.parametrize(("lines", "complaint"), [(0, "is empty"), (1, "has a header but no rows")])
@pytest.mark.parametrize(
    ("source", "name", "columns"),
    [
        (edge_iiotset.SOURCE, "DNN-EdgeIIoT-dataset.csv", EDGE_COLUMNS),
        (unsw_nb15.SOURCE, TRAIN, UNSW_COLUMNS),
    ],
)
def test_empty_files(
    source: Source, name: str, columns: tuple[str, ...], lines: int, complaint: str, tmp_path: Path
) -> None:
    path = tmp_path / source.folder / name
    path.parent.mkdir()
    path.write_text((",".join(columns) + "\n") * lines)
    with pytest.raises(DataError, match=f"{name} {complaint}; download or export it again"):
        source.load(tmp_path)


@pytest.mark.parametrize("source", [edge_iiotset.SOURCE, unsw_nb15.SOURCE], ids=lambda source: source.name)
@pytest.mark.parametrize("folder", [True, False])
def test_nothing_there(source: Source, folder: bool, tmp_path: Path) -> None:  # noqa: FBT001
    if folder:
        (tmp_path / source.folder).mkdir()
    with pytest.raises(DataError, match=f"is missing; download .* into the folder {source.folder} of the data folder"):
        source.load(tmp_path)
