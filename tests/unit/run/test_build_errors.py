"""Why something could not be made. A reason after a long command would be cut off in every report."""

from __future__ import annotations

import pytest

from harness.run.images import build_errors
from harness.run.images.held_container import _failure
from harness.run.interruptible import NetworkTrouble

GONE = "No matching distribution found for orjson==3.9.15"
NO_VERSION = f"""\
ERROR: Could not find a version that satisfies the requirement orjson==3.9.15 (from versions: none)
ERROR: {GONE}"""
RETRYING = "WARNING: Retrying (Retry(total=0)) after connection broken by "
ABORTED = f"{RETRYING}'ProtocolError('aborted')': /simple/orjson/"


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("", ""),
        ("all is well\nno nvcc here\n ---> Removed 55867c85b451", "no nvcc here"),
        ("\x1b[91mE: no package x\x1b[0m", "E: no package x"),
        (
            f"Step 4/4 : RUN pip install orjson\n{NO_VERSION}\n[notice] A new release of pip is available\n\n"
            "Removing intermediate container 55867c85b451",
            GONE,
        ),
        (
            "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have updated it\n"
            "    idna==3.7 from file:///w/idna-3.7-py3-none-any.whl:\n"
            "        Expected sha256 0000\n"
            "             Got        82fe",
            "wrong hash: idna==3.7 from file:///w/idna-3.7-py3-none-any.whl: Expected sha256 0000 Got        82fe",
        ),
        (  # behind a company's proxy, pip ends with "no such version", and users look for another version
            f"{RETRYING}'SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify"
            f" failed'))': /simple/orjson/\n{NO_VERSION}",
            f"the package index cannot be reached (CERTIFICATE_VERIFY_FAILED): {GONE}",
        ),
        (
            f"{ABORTED}\n{NO_VERSION}",
            f"the package index cannot be reached ('ProtocolError('aborted')': /simple/orjson/): {GONE}",
        ),
        (  # `Could not build wheels` alone does not say that there is no compiler
            "  error: command 'gcc' failed: No such file or directory\n  [end of output]\n"
            "  ERROR: Failed building wheel for ujson\nFailed to build ujson\nERROR: Could not build wheels for ujson",
            "error: command 'gcc' failed: No such file or directory: Could not build wheels for ujson",
        ),
    ],
)
def test_the_reason_of_a_failure_is_its_last_complaint_with_its_cause(output: str, reason: str) -> None:
    assert build_errors.complaint(build_errors.readable(output).splitlines()).text == reason


@pytest.mark.parametrize(
    ("stderr", "reason"),
    [
        ("", "uv failed without a message"),
        (
            "error: No solution found when resolving dependencies\n  cause: Because x was not found\n",
            "Because x was not found",
        ),
        ("  × No solution found when resolving dependencies:\n  ╰─▶ Because x\n      is gone", "Because x is gone"),
        (
            "error: The build backend returned an error\n"
            "  cause: Call to `setuptools.build_meta` failed (exit status: 1)\n\n"
            "         [stdout]\n         some output\n\n"
            "         [stderr]\n         Traceback (most recent call last):\n"
            '           File "<string>", line 3, in <module>\n         RuntimeError: nvcc is needed\n\n'
            "hint: see the documentation\n",
            "RuntimeError: nvcc is needed: The build backend returned an error "
            "Call to `setuptools.build_meta` failed (exit status: 1)",
        ),
        (
            "  × Failed to download `six==1.16.0`\n  ╰─▶ Hash mismatch for `six==1.16.0`\n\n      Expected:\n"
            "        sha256:0000\n\n      Computed:\n        sha256:8abb\n",
            "the file of six==1.16.0 does not match its --hash; if you trust the file, write --hash=sha256:8abb",
        ),
    ],
)
def test_uv_s_reason_is_one_line_and_that_of_a_build_comes_first(stderr: str, reason: str) -> None:
    assert build_errors.of_uv(stderr) == reason


def test_an_index_that_cannot_be_reached_is_worth_another_try() -> None:
    assert isinstance(_failure("here", f"{ABORTED}\n{NO_VERSION}", {}), NetworkTrouble)
    assert not isinstance(_failure("here", NO_VERSION, {}), NetworkTrouble)


def test_an_install_that_fills_the_disk_says_what_to_do() -> None:
    why = "Could not install packages: [Errno 28] No space left on device"
    assert str(_failure("here", f"ERROR: {why}\n", {})).startswith(f"here: {why}; free some space on that")


def test_a_folder_of_this_machine_that_a_container_does_not_see_is_told() -> None:
    """The doctor and the plan knew the version, and pip said that it does not exist."""
    told = str(_failure("here", NO_VERSION, {"PIP_FIND_LINKS": "/wheels", "UV_INDEX_URL": ""}))
    assert told.startswith(f"here: {GONE}; a container does not get PIP_FIND_LINKS of this machine: use a base")
    assert str(_failure("here", NO_VERSION, {})) == f"here: {GONE}"
    assert "PIP_FIND_LINKS" not in str(_failure("here", "ERROR: gcc: not found\n", {"PIP_FIND_LINKS": "/wheels"}))
