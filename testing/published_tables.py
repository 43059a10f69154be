"""Tiny tables written as the publishers of UNSW-NB15 and Edge-IIoTset write theirs."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

UNSW_COLUMNS = (
    *("id", "dur", "proto", "service", "state", "spkts", "dpkts", "sbytes", "dbytes", "rate", "sttl", "dttl", "sload"),
    *("dload", "sloss", "dloss", "sinpkt", "dinpkt", "sjit", "djit", "swin", "stcpb", "dtcpb", "dwin", "tcprtt"),
    *("synack", "ackdat", "smean", "dmean", "trans_depth", "response_body_len", "ct_srv_src", "ct_state_ttl"),
    *("ct_dst_ltm", "ct_src_dport_ltm", "ct_dst_sport_ltm", "ct_dst_src_ltm", "is_ftp_login", "ct_ftp_cmd"),
    *("ct_flw_http_mthd", "ct_src_ltm", "ct_srv_dst", "is_sm_ips_ports", "attack_cat", "label"),
)
EDGE_COLUMNS = (
    *("frame.time", "ip.src_host", "ip.dst_host", "arp.dst.proto_ipv4", "arp.opcode", "arp.hw.size"),
    *("arp.src.proto_ipv4", "icmp.checksum", "icmp.seq_le", "icmp.transmit_timestamp", "icmp.unused"),
    *("http.file_data", "http.content_length", "http.request.uri.query", "http.request.method", "http.referer"),
    *("http.request.full_uri", "http.request.version", "http.response", "http.tls_port", "tcp.ack", "tcp.ack_raw"),
    *("tcp.checksum", "tcp.connection.fin", "tcp.connection.rst", "tcp.connection.syn", "tcp.connection.synack"),
    *("tcp.dstport", "tcp.flags", "tcp.flags.ack", "tcp.len", "tcp.options", "tcp.payload", "tcp.seq"),
    *("tcp.srcport", "udp.port", "udp.stream", "udp.time_delta", "dns.qry.name", "dns.qry.name.len", "dns.qry.qu"),
    *("dns.qry.type", "dns.retransmission", "dns.retransmit_request", "dns.retransmit_request_in"),
    *("mqtt.conack.flags", "mqtt.conflag.cleansess", "mqtt.conflags", "mqtt.hdrflags", "mqtt.len"),
    *("mqtt.msg_decoded_as", "mqtt.msg", "mqtt.msgtype", "mqtt.proto_len", "mqtt.protoname", "mqtt.topic"),
    *("mqtt.topic_len", "mqtt.ver", "mbtcp.len", "mbtcp.trans_id", "mbtcp.unit_id", "Attack_label", "Attack_type"),
)
Row = Mapping[str, str]


def unsw_row(number: int, attack: str = "Normal", **cells: str) -> Row:
    """The flow with this number, counted from 0; columns of numbers hold it, unless `cells` says otherwise."""
    plain = dict.fromkeys(UNSW_COLUMNS, str(number))
    words = {"proto": "tcp" if number % 2 else "udp", "service": "-", "state": "FIN", "attack_cat": attack}
    return {**plain, "id": str(number + 1), "label": str(int(attack != "Normal")), **words, **cells}


def edge_row(number: int, attack: str, cells: Row | None = None) -> Row:
    """A TCP packet of 3 `number` bytes; all that is not given is 0.0, as published."""
    packet = {
        "frame.time": f" 2021 22:14:{number:02d}.939803000 ",
        "ip.src_host": "192.168.0.170",
        "tcp.srcport": "1883.0",
        "tcp.dstport": "55412.0",
        "tcp.checksum": f"0x0000{16 * number:04x}",
        "tcp.flags": "0x00000010",
        "tcp.flags.ack": str(float(number % 2)),
        "tcp.len": str(float(3 * number)),
    }
    label = {"Attack_label": str(int(attack != "Normal")), "Attack_type": attack}
    return {**dict.fromkeys(EDGE_COLUMNS, "0.0"), **packet, **label, **(cells or {})}


def shifted_row(number: int, attack: str) -> Row:
    """The same packet after its first five cells were lost: everything stands five columns too far left."""
    row = edge_row(number, attack, {"tcp.payload": "066687ce", "dns.qry.name": "_ipp._tcp.local"})
    cells = [row[name] for name in EDGE_COLUMNS[:-2]]
    return {**row, **dict(zip(EDGE_COLUMNS[:-2], [*cells[5:], *["0.0"] * 5], strict=True))}


def write_table(path: Path, columns: Sequence[str], rows: Sequence[Row], *, bom: bool = False) -> Path:
    """The rows as a CSV file, with the mark of UTF-8 at its start if `bom` says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8-sig" if bom else "utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows([row[name] for name in columns] for row in rows)
    return path


def write_unsw(root: Path, part: str, rows: Sequence[Row]) -> Path:
    """A `part` is "training" or "testing"; the published files start with a byte order mark."""
    return write_table(root / "unsw-nb15" / f"UNSW_NB15_{part}-set.csv", UNSW_COLUMNS, rows, bom=True)


def write_edge(root: Path, place: str, rows: Sequence[Row]) -> Path:
    """A file of Edge-IIoTset at its published place below the folder."""
    return write_table(root / "edge-iiotset" / place, EDGE_COLUMNS, rows)
