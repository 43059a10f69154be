"""A simulated site's checkpoint in the state that Flower keeps for its node, and its coreset in a folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from torch import Tensor

from f2cto.federation.snapshots import ALIASES, each_once, with_aliases
from f2cto.federation.wire import Frame
from f2cto.flower.packing import content_of, frame_of
from f2cto.site.store import Store

JOB, STATE, CALL = "job", "state", "call"


class ContextStore(Store):
    """The files of a site as records, for processes that know nothing of the messages before.

    Flower brings the records to whichever process works for the node next.
    """

    def __init__(self, records: RecordDict, folder: Path) -> None:
        """Use the node's records, and a folder that is made if need be."""
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(folder)
        self._records = records

    def begin(self, job: Mapping[str, str]) -> None:
        """Take note of a new job; nothing is left of the former one."""
        self._records.clear()
        self._records[JOB] = ConfigRecord(dict(job))

    def job(self) -> dict[str, str]:
        """The job in hand; empty where there is none."""
        return {str(key): str(value) for key, value in self._records.config_records.get(JOB, {}).items()}

    def save_state(self, state: Mapping[str, Tensor], about: Mapping[str, str]) -> None:  # noqa: ARG002  (as the job's)
        """Keep a state."""
        whole, aliases = each_once(state)
        self._records[STATE] = ArrayRecord({name: Array(value.cpu().numpy()) for name, value in whole.items()})
        self._records[ALIASES] = ConfigRecord(dict(aliases))

    def state(self, about: Mapping[str, str]) -> dict[str, Tensor]:  # noqa: ARG002
        """The state that was kept; empty where there is none."""
        arrays = self._records.array_records.get(STATE, ArrayRecord())
        # Copied by torch, whose memory is aligned: sums over memory that is not may differ in the last bit.
        whole = {name: torch.from_numpy(array.numpy()).clone() for name, array in arrays.items()}
        aliases = self._records.config_records.get(ALIASES, ConfigRecord())
        return with_aliases(whole, {name: str(of) for name, of in aliases.items()})

    def add_call(self, call: Frame, serial: int) -> None:
        """Keep a question."""
        for name, record in content_of(call).items():
            self._records[f"{CALL} {serial:09} {name}"] = record

    def calls(self) -> Iterator[Frame]:
        """The questions so far, in their order."""
        for key in sorted(self._records):
            if key.startswith(CALL) and key.endswith(" head"):
                serial = key.removesuffix("head")
                yield frame_of(RecordDict({name: self._records[serial + name] for name in ("head", "arrays")}))

    def set_aside(self) -> Path:
        """Forget a checkpoint that cannot be gone on with: in a simulation nobody looks at it."""
        for key in [key for key in self._records if key != JOB]:
            del self._records[key]
        return self.folder
