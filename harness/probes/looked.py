"""Records one launch with a probe: how it ended, and the files that it sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.model import Trial

MOST_FILE_CHARACTERS = 64 << 20


@dataclass(frozen=True, kw_only=True)
class Looked:
    """One launch with a probe: how it ended, and the files that it left. `left_out`: files that are too large."""

    trial: Trial
    files: Mapping[str, str]
    is_script: bool
    left_out: Sequence[str] = ()

    @property
    def problem(self) -> str:
        if self.trial.ended_well:
            most = f"left out, because the files would exceed {MOST_FILE_CHARACTERS / (1 << 20):g} MiB"
            return f"{', '.join(self.left_out)}: {most}" if self.left_out else ""
        # The last line names the failure; before it come a traceback or notes on how the process ended.
        reason = (self.trial.told.strip().splitlines() or ["no message"])[-1]
        printed = (self.trial.output_tail.strip().splitlines() or [""])[-1]
        if not self.is_script and not reason.endswith(printed):
            reason += f": {printed}"
        return self.trial.after_end(reason)


class SentFiles:
    """The files that a launch sends in parts, up to MOST_FILE_CHARACTERS; a file that does not fit is dropped."""

    def __init__(self) -> None:
        self.left_out: list[str] = []
        self._parts: dict[str, list[str]] = {}
        self._room = MOST_FILE_CHARACTERS

    def note(self, name: str, text: str) -> None:
        if name in self.left_out:
            return
        self._room -= len(text)
        if self._room >= 0:
            self._parts.setdefault(name, []).append(text)
        else:
            self._room += len(text) + sum(map(len, self._parts.pop(name, ())))
            self.left_out.append(name)

    def whole(self) -> dict[str, str]:
        return {name: "".join(parts) for name, parts in self._parts.items()}
