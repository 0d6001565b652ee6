"""docs/safety.md gives every limit with its number: a number that differs from the program's would
be a false promise.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import package_index, traces
from harness.history import watch_state
from harness.matrix import read_series
from harness.model import measured
from harness.registry import bounded_http, registry_client
from harness.report.charts import library
from harness.run.docker import containers, host_probe
from harness.run.hosts import side_by_side
from harness.run.images import held_container
from harness.run.trial import conversation, messages, payload
from harness.store import inputs, json_files

PAGE = (Path(__file__).parents[2] / "docs/safety.md").read_text()
MIB = 1 << 20


@pytest.mark.parametrize(
    "told",
    [
        f"else {side_by_side.SHARE * 100:.0f} % of the host's | {containers.MEMORY_BYTES >> 30} GiB |",
        f"| processes | {containers.PIDS_LIMIT} | {containers.PIDS} | {containers.PIDS_LIMIT} |",
        f"| {containers.PRINTED_BYTES >> 10} KiB; a helper that prints more is ended |",
        f"| {host_probe.ANSWER_S:.0f} s | {held_container.COMMAND_S / 3600:.0f} hours |",
        f"| {host_probe.PROBE_S:.0f} s | {held_container.COMMAND_S / 3600:.0f} hours |",
        f"| a start without a message | {conversation.STARTUP_S:.0f} s |",
        f"two answers ({2 * payload.ANSWER_TIMEOUT_S:.0f} s) + {conversation.STARTUP_S:.0f} s",
        f"twice `timeout` + {2 * payload.ANSWER_TIMEOUT_S:.0f} s + {conversation.STARTUP_S:.0f} s",
        f"{messages.LINE_LIMIT_BYTES // MIB} MiB; `hello` and `ready` {messages.FACTS_LIMIT_BYTES // MIB} MiB",
        f"{bounded_http.SOCKET_S:.0f} s; {bounded_http.ANSWER_S:.0f} s",
        f"{bounded_http.ATTEMPTS} (registry), {package_index.ATTEMPTS} (package index)",
        f"| redirects | {bounded_http.MOST_REDIRECTS} |",
        f"{bounded_http.MOST_BYTES // MIB} MiB (registry), {package_index.MOST_BYTES // MIB} MiB (package index)",
        f"| values in an answer | {bounded_http.MOST_VALUES:,} |",
        f"| files of one package | {package_index.MOST_FILES:,} |",
        f"| {package_index.MOST_CHARACTERS} characters; longer ones are left out |",
        f"| a number in a version | {int(read_series.TOO_LONG.pattern[3:-1]) - 1} digits |",
        f"| {registry_client.MOST_TAGS:,}, in {registry_client.MOST_PAGES:,} pages |",
        f"at most {library.MOST_BYTES // MIB} MiB that belongs to you",
        f"{json_files.MOST_BYTES >> 20} MiB and {json_files.MOST_VALUES:,} values each",
        f"{measured.MOST_ROWS:,} rows, {measured.MOST_COLUMNS} columns, {measured.MOST_VALUES:,} samples (rows",
        f"in `inputs/` | {inputs.MOST_BYTES >> 20} MiB |",
        f"a Dockerfile | {inputs.MOST_DOCKERFILE_BYTES >> 20} MiB |",
        f"`watch.json` | {watch_state.MOST_BYTES >> 20} MiB |",
        f"a trace | {traces.MOST_TRACE_BYTES >> 30} GiB |",
        f"{traces.MOST_HISTORY_BYTES >> 20} MiB, {traces.MOST_VERSIONS:,} versions, {traces.MOST_ROUNDS:,} rounds",
    ],
)
def test_a_limit_has_the_number_that_the_page_tells(told: str) -> None:
    assert told in " ".join(PAGE.split())
