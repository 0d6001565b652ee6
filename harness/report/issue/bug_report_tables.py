"""Writes the Markdown tables of a bug report: the versions, and the system that measured them."""

from __future__ import annotations

from tabulate import tabulate

from harness import amounts
from harness.masking import is_private, scrubbed
from harness.model import CellResult, Install, Pull
from harness.model.answers.evidence import Issue
from harness.report.exports.markdown import escaped
from harness.report.text import cell_words, signal_words

MOST_VERSIONS = 60
SYSTEM = {
    "engine": "engine", "kernel": "kernel", "architecture": "architecture", "cpu": "CPU", "cpus": "CPUs",
    "memory_bytes": "memory, bytes", "python": "Python", "implementation": "implementation", "libc": "C library",
    "huge_pages": "transparent huge pages",
}  # fmt: skip


def line(text: str) -> str:
    """Return `text` as one line of Markdown, without private content."""
    return escaped(scrubbed(text))


def versions(issue: Issue) -> str:
    """Return a table of the versions in the finding's row of the matrix, the newest MOST_VERSIONS of them."""
    shown = issue.history[-MOST_VERSIONS:]
    rows = [[line(cell) for cell in _row(entry)] for entry in shown]
    header = ["version", "image", "verdict", "KiB/step (interval)", "ms/step (interval)", "peak MiB", "launches"]
    return tabulate(rows, headers=header, tablefmt="github", disable_numparse=True)


def _row(entry: CellResult) -> list[str]:
    verdict = entry.verdict
    failed = f", {verdict.failed} failed" if verdict.failed else ""
    peak_kib, _ = signal_words.figure_of("peak_memory", verdict)
    step_s, around = signal_words.figure_of("step_time", verdict)
    step_ms = None if step_s is None else 1000 * step_s
    return [
        entry.cell.image.version,
        _image(entry),
        cell_words.verdict_word(verdict) + (f" {cell_words.signal_name(verdict.signal)}" if verdict.signal else ""),
        amounts.with_interval(*signal_words.figure_of("memory", verdict)),
        amounts.with_interval(step_ms, around and (1000 * around[0], 1000 * around[1])),
        "" if peak_kib is None else amounts.number(peak_kib / 1024),
        f"{verdict.trials}{failed}",
    ]


def _image(entry: CellResult) -> str:
    source = entry.cell.image.source
    digest = f" ({entry.digest[:19]})" if entry.digest else ""
    if isinstance(source, Install):
        return f"{' '.join(source.packages)}{digest}"
    return f"{source.reference if isinstance(source, Pull) else 'built'}{digest}"


def system(issue: Issue) -> str:
    """Return a table of facts about the machine, without private variables."""
    told = issue.system
    if not told:
        return "not known"
    rows = [[label, line(str(told[name]))] for name, label in SYSTEM.items() if name in told]
    for gpu in told.get("gpus", ()):
        rows.append(["GPU", line(", ".join(f"{name} {value}" for name, value in gpu.items()))])
    if not told.get("gpus"):
        rows.append(["GPU", "none used"])
    environment = told.get("environment", {}).items()
    rows += [[line(name), line(value)] for name, value in environment if not is_private(name, value)]
    return tabulate(rows, headers=["", ""], tablefmt="github", disable_numparse=True)


def packages(issue: Issue) -> str:
    installed = issue.system.get("packages", {})
    text = ", ".join(f"{name} {version}" for name, version in sorted(installed.items()))
    libraries = ", ".join(map(str, issue.system.get("libraries", ())))
    return line(text or "packages not known") + "\n\n" + line(libraries or "libraries not known")
