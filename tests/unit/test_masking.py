"""Text that strangers should not read is masked, whatever the length of the text."""

from __future__ import annotations

import pytest

from harness.masking import scrubbed
from tests.unit import processor


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("see https://ada:pw@host/simple and git+ssh://ada@host", "see https://host/simple and git+ssh://host"),
        ("/tmp/harness-trial-1/.harness/scenario/a.py and /.harness/scenario/b.py", "scenario/a.py and scenario/b.py"),
        ('File "/srv/ada/tmp/harness-trial-aa8.40_11_7b/scenario/grow.py", line 3', 'File "scenario/grow.py", line 3'),
        ("/x/harness-trial-1/agent.py", "/x/harness-trial-1/agent.py"),
        ("file:///home/ada/x, /root/.cache, /rooted", "file://~/x, ~/.cache, /rooted"),
        ("user@host without a scheme", "user@host without a scheme"),
    ],
)
def test_what_is_left_out(text: str, told: str) -> None:
    assert scrubbed(text) == told


def test_a_long_line_takes_no_longer_than_its_length() -> None:
    """An image that prints one line of 500 KB blocked the report for hours."""
    processor.on_long_texts(
        ["a", "/", "a/", "/.harness", "a://", "://a", "a.", "/home/", "/root", "sk-", "KEY1"],
        imports="from harness.masking import is_secret, scrubbed",
        code="scrubbed(text); scrubbed(text + '@'); is_secret(text, text)",
    )
