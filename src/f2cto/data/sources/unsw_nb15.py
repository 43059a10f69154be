"""Network flows, normal and of nine kinds of attack: the two CSV files that its authors cut for training and testing.

Moustafa, Slay: UNSW-NB15: A Comprehensive Data Set for Network Intrusion Detection Systems, MilCIS, 2015.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

from f2cto.data.cells import Kind
from f2cto.data.samples import DataSet, Samples
from f2cto.data.sources.source import Published, Source
from f2cto.data.tables import Table, label_column, scan_table, typed

TRAIN, TEST = "UNSW_NB15_training-set.csv", "UNSW_NB15_testing-set.csv"
LABEL = "attack_cat"
CLASSES = (
    *("Normal", "Generic", "Exploits", "Fuzzers", "DoS"),
    *("Reconnaissance", "Analysis", "Backdoor", "Shellcode", "Worms"),
)
WORDS = ("proto", "service", "state")
# Not `id`, which counts the rows, nor `label`, which says whether the class is Normal. `is_ftp_login` is not checked as
# a flag, whatever its name: it also holds 2.
NUMBERS = (
    *("dur", "spkts", "dpkts", "sbytes", "dbytes", "rate", "sttl", "dttl", "sload", "dload", "sloss", "dloss"),
    *("sinpkt", "dinpkt", "sjit", "djit", "swin", "stcpb", "dtcpb", "dwin", "tcprtt", "synack", "ackdat"),
    *("smean", "dmean", "trans_depth", "response_body_len", "ct_srv_src", "ct_state_ttl", "ct_dst_ltm"),
    *("ct_src_dport_ltm", "ct_dst_sport_ltm", "ct_dst_src_ltm", "is_ftp_login", "ct_ftp_cmd", "ct_flw_http_mthd"),
    *("ct_src_ltm", "ct_srv_dst", "is_sm_ips_ports"),
)
KINDS = MappingProxyType({**dict.fromkeys(WORDS, Kind.WORD), **dict.fromkeys(NUMBERS, Kind.NUMBER)})
FIXED = (*WORDS, "is_ftp_login", "is_sm_ips_ports")  # who speaks which protocol is not an attacker's to choose


def load(root: Path) -> DataSet:
    """The flows of the file named training-set, and of the other one if it is there."""
    folder = root / SOURCE.folder
    trained, train = _part(SOURCE.needed(_place(folder, TRAIN)))
    notes = ["Left out: id, which counts the rows, and label, which follows from attack_cat.", *trained.notes]
    if trained.count == PUBLISHED.test:
        notes.append(f"{TRAIN} holds the {PUBLISHED.test:,} rows that its authors call testing-set.")
    if not _place(folder, TEST).exists():
        notes.append(f"{TEST} is not here: there is no test part.")
        return DataSet(SOURCE.name, train, None, CLASSES, fixed=FIXED, notes=tuple(notes))
    tested, test = _part(_place(folder, TEST))
    return DataSet(SOURCE.name, train, test, CLASSES, fixed=FIXED, notes=(*notes, *tested.notes))


def _place(folder: Path, name: str) -> Path:
    """Where the file lies: in the folder or, as in the publisher's archive, somewhere below."""
    return next(iter(sorted(folder.rglob(name))), folder / name)


def _part(path: Path) -> tuple[Table, Samples]:
    table = typed(scan_table(path), KINDS, path, carried=(LABEL,))
    _, y = label_column(table.frame, LABEL, path, CLASSES, table.rows)
    return table, Samples(table.frame.drop(LABEL), y, table.rows)


PUBLISHED = Published(train=175_341, test=82_332, classes=10)
SOURCE = Source(
    name="unsw-nb15",
    about="175,341 and 82,332 network flows of 42 columns: normal ones and nine kinds of attack.",
    load=load,
    folder="unsw-nb15",
    by_hand=(
        f"Download {TRAIN} and {TEST} from https://research.unsw.edu.au/projects/unsw-nb15-dataset and put them into "
        "the folder unsw-nb15 of the data folder."
    ),
    published=PUBLISHED,
)
