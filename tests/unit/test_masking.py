"""Credentials, home folders and other private content are in no text that others may read."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest

from harness import masking
from harness.flows.sweep import SweepOptions, selected
from harness.masking import WITHHELD, scrubbed, told_words
from harness.report.text.harmless_text import plain
from harness.run.trial.messages import Done, parse_message
from harness.store import RunDirectory
from harness.store.plan_file import plan_to_json
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
        ("https://ada:p@ss@host/x?mail=a@b", "https://host/x?mail=a@b"),
        ("a pypi-AgEIcHlwaS5vcmc1, dckr_pat_abcdefgh, AIzaSyA1234567", "a [token], [token], [token]"),
        (
            f"npm_{'a1' * 18} but npm_config_cache_folder_of_this_machine",
            "[token] but npm_config_cache_folder_of_this_machine",
        ),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-_1 Bearer abcdefghij123456==", "[token] [token]"),
    ],
)
def test_what_is_left_out(text: str, told: str) -> None:
    assert scrubbed(text) == told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("train.py --hf-token s3cret --lr 0.1", "train.py --hf-token [withheld] --lr 0.1"),
        ("--password x --api-key=abcd1234", "--password [withheld] --api-key=[withheld]"),
        ("env DB_PWD=x HF_TOKEN=abcd1234 PWD=/x a", "env DB_PWD=[withheld] HF_TOKEN=[withheld] PWD=/x a"),
        ("--verbose password=x --debug --secret=y", "--verbose password=[withheld] --debug --secret=[withheld]"),
        ("--index https://ada:pw@host/simple", "--index https://host/simple"),
        ("--token {token} --secret $SECRET", "--token {token} --secret $SECRET"),
        ("--max-tokens 512 --pad-token <pad> --sort-key loss --eos-token eos", None),
        ("--tokenizer bert-base --monitor key --author ada --key /etc/key.pem", None),
    ],
)
def test_credentials_among_the_words_of_a_command_are_masked(words: str, told: str | None) -> None:
    """They stood in plan.json, repro.py and issue.md."""
    assert " ".join(told_words(words.split())) == (told or words)
    assert told_words(["sh", "-c", words]) == ["sh", "-c", told or words]


@pytest.fixture
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masking, "_known", set())
    monkeypatch.setattr(masking, "_pattern", [])


@pytest.mark.usefixtures("nothing_known")
def test_a_credential_that_was_given_is_masked_wherever_it_turns_up() -> None:
    """For example, in what the program prints of its arguments."""
    masking.learn_words(["--password", 'a"<é12', "--token", "s3cr3t.value", "x @ https://ada:p%40ssw0rd@host/x"])
    masking.learn_variables(
        [("API_KEY", "key-0123"), ("SORT_KEY", "name"), ("KEY_FILE", "/etc/key"), ("PASS", "1234567")]
    )
    given = "Namespace(password='a\"<é12') s3cr3t.value p@ssw0rd key-0123"
    assert masking.without_known(given) == f"Namespace(password='{WITHHELD}') {' '.join([WITHHELD] * 3)}"
    for written in (json.dumps(given), html.escape(given)):
        assert not {"s3cr3t", "ssw0rd", "0123"} & set(re.findall(r"s3cr3t|ssw0rd|0123", masking.without_known(written)))
        assert masking.without_known(written.encode()).decode() == masking.without_known(written)
    assert masking.without_known("name /etc/key 1234567 xs3cr3t.value") == "name /etc/key 1234567 xs3cr3t.value"
    for before in (
        "",
        "\n",
        "\r",
        "\t",
        "é",
        "\x1b[0m",
        "\x1b[35m",
        "\x1b[1;35m",
        "\x1b[m",
        "\x1b[01;31m\x1b[K",
    ):  # JSON has `\n` as a letter, too
        text = f"{before}s3cr3t.value\n"
        assert masking.without_known(json.dumps(text)) == json.dumps(f"{before}{WITHHELD}\n")
        assert masking.without_known(text) == f"{before}{WITHHELD}\n"


@pytest.mark.usefixtures("nothing_known")
def test_no_file_of_a_run_contains_a_credential_of_the_matrix(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(
        "version: 1\nseries:\n  s: {install: ['six @ https://ada:hunter22@host/six-{version}.whl'], versions: ['1']}\n"
        "  v: {vary: A, versions: ['1']}\n"
        "hosts: {here: {engine: process}}\nscenarios:\n"
        "  one: {series: [s], command: [train, --password, x, --hf-token, abcd-1234],\n"
        "        environment: {MY_PWD: abcd-5678}}\n"
        "  end: {series: [v], command: [up], stop: [down, --token, x1y2z3]}\n"
        "  two: {series: [s], serve: [server, '{port}'], client: [load, '{url}', --api-key, x1y2z3]}\n"
    )
    plan = selected(path, SweepOptions(), {})
    written = json.dumps(plan_to_json(plan))
    assert not re.findall("hunter22|abcd-1234|abcd-5678|x1y2z", written)
    scenario, varied, served = json.loads(written)["scenarios"]
    assert scenario["command"] == ["train", "--password", WITHHELD, "--hf-token", WITHHELD]
    assert varied["stop"] == ["down", "--token", WITHHELD]
    assert served["client"] == ["load", "{url}", "--api-key", WITHHELD]
    run = RunDirectory(tmp_path)
    run.write("report.md", "it printed abcd-1234 and ada:hunter22")
    run.write_decision({"why": "abcd-5678"})
    assert "abcd" not in (tmp_path / "report.md").read_text() + (tmp_path / "decisions.jsonl").read_text()
    assert plain("abcd-1234") == WITHHELD
    done = parse_message(b'{"type": "done", "end": "crash", "message": "no abcd-1234"}')
    assert isinstance(done, Done)
    assert done.message == f"no {WITHHELD}"


def test_a_long_line_takes_no_longer_than_its_length() -> None:
    """An image that prints one line of 500 KB blocked the report for hours."""
    processor.on_long_texts(
        [
            "a",
            "/",
            "a/",
            "/.harness",
            "a://",
            "://a",
            "a.",
            "/home/",
            "/root",
            "sk-",
            "KEY1",
            "eyJ-",
            "Bearer ",
            "a=",
            "-",
        ],
        imports="from harness.masking import is_secret, scrubbed, told_words",
        code="scrubbed(text); scrubbed(text + '@'); is_secret(text, text); told_words([text])",
    )
