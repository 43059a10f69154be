"""Packets of an industrial testbed, normal and of fourteen kinds of attack, as tables of what tshark saw in them.

Ferrag, Friha, Hamouda, Maglaras, Janicke: Edge-IIoTset: A New Comprehensive Realistic Cyber Security Dataset of IoT and
IIoT Applications for Centralized and Federated Learning, IEEE Access 10, 2022.

The publisher wrote the tables without quotes. Where tshark gave two values for one field ("5353,5353" for the two ports
of a packet), all cells after it moved one column to the right; the whole file of MITM lost its first five cells, and
everything moved to the left. So names of hosts stand in columns of ports, and times in columns of numbers. A row is
broken here if a cell holds what its column cannot: a word for a number, a fraction for a count, 197 for a flag. The
ports are checked as well, though they are no features: they often tell. What moved into a column that could hold it
is not seen, and neither is a row that is all zeros; the rows that lost their time stamp are counted in a note.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import polars as pl
import torch

from f2cto.data.cells import Kind, words
from f2cto.data.samples import DataSet, Samples
from f2cto.data.sources.source import Published, Source
from f2cto.data.tables import Table, label_column, scan_table, typed, without_useless

WHOLE_SETS = ("DNN-EdgeIIoT-dataset.csv", "ML-EdgeIIoT-dataset.csv")  # the first that is there is read
LABEL, TIME = "Attack_type", "frame.time"
CLASSES = (
    *("Normal", "Backdoor", "DDoS_HTTP", "DDoS_ICMP", "DDoS_TCP", "DDoS_UDP", "Fingerprinting", "MITM", "Password"),
    *("Port_Scanning", "Ransomware", "SQL_injection", "Uploading", "Vulnerability_scanner", "XSS"),
)
# What the files of single attacks call some of them.
ALIASES = MappingProxyType(
    {
        "OS_Fingerprinting": "Fingerprinting",
        "DDoS_HTTP_Flood": "DDoS_HTTP",
        "DDoS_ICMP_Flood": "DDoS_ICMP",
        "DDoS_TCP_SYN_Flood": "DDoS_TCP",
        "DDoS_UDP_Flood": "DDoS_UDP",
    }
)
# The authors leave these out in their published preprocessing, and so do we.
DROPPED = (
    *("frame.time", "ip.src_host", "ip.dst_host", "arp.src.proto_ipv4", "arp.dst.proto_ipv4", "http.file_data"),
    *("http.request.full_uri", "icmp.transmit_timestamp", "http.request.uri.query", "tcp.options", "tcp.payload"),
    *("tcp.srcport", "tcp.dstport", "udp.port", "mqtt.msg"),
)
PORTS = ("tcp.srcport", "tcp.dstport")
# The authors take dns.qry.name.len for words too, because host names moved into it; to us those are broken cells.
WORDS = (
    *("http.request.method", "http.referer", "http.request.version"),
    *("mqtt.conack.flags", "mqtt.protoname", "mqtt.topic"),
)
FLAGS = (
    *("http.response", "tcp.connection.fin", "tcp.connection.rst", "tcp.connection.syn", "tcp.connection.synack"),
    *("tcp.flags.ack", "dns.qry.qu", "mqtt.conflag.cleansess"),
)
COUNTS = (
    *("arp.opcode", "arp.hw.size", "icmp.checksum", "icmp.seq_le", "icmp.unused", "http.content_length"),
    *("http.tls_port", "tcp.ack", "tcp.ack_raw", "tcp.checksum", "tcp.flags", "tcp.len", "tcp.seq", "udp.stream"),
    *("dns.qry.name", "dns.qry.name.len", "dns.qry.type", "dns.retransmission", "dns.retransmit_request"),
    *("dns.retransmit_request_in", "mqtt.conflags", "mqtt.hdrflags", "mqtt.len", "mqtt.msg_decoded_as"),
    *("mqtt.msgtype", "mqtt.proto_len", "mqtt.topic_len", "mqtt.ver", "mbtcp.len", "mbtcp.trans_id", "mbtcp.unit_id"),
)
KINDS = MappingProxyType(
    {
        **dict.fromkeys(WORDS, Kind.WORD),
        **dict.fromkeys(FLAGS, Kind.FLAG),
        **dict.fromkeys((*COUNTS, *PORTS), Kind.WHOLE),
        "udp.time_delta": Kind.NUMBER,
    }
)
# Protocols and flags: to change them would be to send another kind of packet.
FIXED = (
    *WORDS,
    *FLAGS,
    *("arp.opcode", "arp.hw.size", "tcp.flags", "dns.qry.type", "mqtt.conflags", "mqtt.hdrflags", "mqtt.msgtype"),
    *("mqtt.proto_len", "mqtt.ver", "mbtcp.unit_id"),
)


def load(root: Path) -> DataSet:
    """All packets of one of the joint files or, without those, of the files of single attacks; there is no split.

    Rows are numbered through the files, in the order of their names.
    """
    paths = _paths(root / SOURCE.folder)
    joined = _joined([_table(path) for path in paths])
    _, y = label_column(joined.frame, LABEL, paths[0], CLASSES)
    table = without_useless(replace(joined, frame=joined.frame.drop(LABEL)))
    present = y.bincount().nonzero().flatten()
    return DataSet(
        name=SOURCE.name,
        train=Samples(table.frame, torch.searchsorted(present, y), table.rows),
        test=None,
        classes=tuple(CLASSES[i] for i in present.tolist()),
        fixed=tuple(name for name in FIXED if name in table.frame.columns),
        notes=(
            f"Read: {', '.join(path.name for path in paths)}.",
            *_missing(present.tolist()),
            f"Left out as by its authors: {', '.join(DROPPED)}.",
            *table.notes,
        ),
    )


def _paths(folder: Path) -> list[Path]:
    for name in WHOLE_SETS:
        if found := sorted(SOURCE.needed(folder).rglob(name)):
            return found[:1]
    return sorted(folder.rglob("*.csv"), key=lambda path: path.name) or [SOURCE.needed(folder / WHOLE_SETS[0])]


def _table(path: Path) -> Table:
    """One file's whole rows; labels are checked here, where the file is known."""
    table = typed(scan_table(path), KINDS, path, carried=(TIME, LABEL))
    frame = table.frame.with_columns(words(pl.col(LABEL)).replace(dict(ALIASES)))
    label_column(frame, LABEL, path, CLASSES, table.rows)
    moved = int((~frame[TIME].str.contains(":", literal=True)).fill_null(value=True).sum())
    note = (
        f"{path.name}: {moved:,} rows have no time in {TIME}, so their cells have moved, but each holds what its "
        "column can; they are kept, as by its authors."
    )
    return replace(table, frame=frame.drop(TIME, *PORTS), notes=(*table.notes, *([note] if moved else [])))


def _joined(tables: Sequence[Table]) -> Table:
    starts = torch.tensor([0, *(table.count for table in tables)]).cumsum(0)
    return Table(
        frame=pl.concat([table.frame for table in tables]),
        rows=torch.cat([table.rows + start for table, start in zip(tables, starts[:-1], strict=True)]),
        count=int(starts[-1]),
        notes=tuple(note for table in tables for note in table.notes),
    )


def _missing(present: Sequence[int]) -> tuple[str, ...]:
    absent = [name for i, name in enumerate(CLASSES) if i not in present]
    return (f"{len(present)} of {len(CLASSES)} classes are here; missing are {', '.join(absent)}.",) if absent else ()


SOURCE = Source(
    name="edge-iiotset",
    about="2,219,201 packets of an industrial testbed in 46 columns: normal ones and 14 kinds of attack.",
    load=load,
    folder="edge-iiotset",
    by_hand=(
        f"Download {WHOLE_SETS[0]} from https://www.kaggle.com/datasets/mohamedamineferrag/"
        "edgeiiotset-cyber-security-dataset-of-iot-iiot (or IEEE DataPort, https://doi.org/10.21227/mbc1-1h68) and put "
        "it into the folder edge-iiotset of the data folder."
    ),
    published=Published(train=2_219_201, test=0, classes=15),
)
