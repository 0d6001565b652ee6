"""Why something could not be made. A reason after a long command would be cut off in every report."""

from __future__ import annotations

from harness.run.images import build_errors
from harness.run.images.held_container import _failure
from harness.run.interruptible import NetworkTrouble


def test_a_build_s_reason_is_its_last_complaint() -> None:
    lines = [
        "Step 4/4 : RUN pip install multidict==99",
        "ERROR: Could not find a version that satisfies the requirement multidict==99 (from versions: 6.0.5)",
        "ERROR: No matching distribution found for multidict==99",
        "[notice] A new release of pip is available",
        "",
        "Removing intermediate container 55867c85b451",
    ]
    assert build_errors.complaint(lines).text == "No matching distribution found for multidict==99"


def test_a_wrong_hash_is_told_with_its_package() -> None:
    lines = [
        "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have updated the package",
        "    idna==3.7 from file:///w/idna-3.7-py3-none-any.whl:",
        "        Expected sha256 0000",
        "             Got        82fe",
    ]
    assert build_errors.complaint(lines).text == (
        "wrong hash: idna==3.7 from file:///w/idna-3.7-py3-none-any.whl: Expected sha256 0000 Got        82fe"
    )


def test_without_a_complaint_it_is_the_last_line_that_says_something() -> None:
    assert build_errors.complaint(["all is well", "no nvcc here", " ---> Removed 55867c85b451"]).text == "no nvcc here"
    assert not build_errors.complaint([]).text


def test_colours_of_a_build_are_no_text() -> None:
    assert build_errors.complaint([build_errors.readable("\x1b[91mE: no package x\x1b[0m")]).text == "E: no package x"


def test_uv_says_what_cannot_be_had() -> None:
    told = build_errors.of_uv(
        "error: No solution found when resolving dependencies\n  cause: Because x was not found\n"
    )
    assert told == "Because x was not found"
    assert build_errors.of_uv("  × No solution found when resolving dependencies:\n  ╰─▶ Because x\n      is gone") == (
        "Because x is gone"
    )


def test_a_package_that_cannot_be_built_tells_its_own_reason_first() -> None:
    stderr = """error: The build backend returned an error
  cause: Call to `setuptools.build_meta` failed (exit status: 1)

         [stdout]
         some output

         [stderr]
         Traceback (most recent call last):
           File "<string>", line 3, in <module>
         RuntimeError: nvcc is needed

hint: see the documentation
"""
    assert build_errors.of_uv(stderr) == (
        "RuntimeError: nvcc is needed: The build backend returned an error "
        "Call to `setuptools.build_meta` failed (exit status: 1)"
    )
    assert (
        build_errors.of_uv(
            "  × Failed to download `six==1.16.0`\n  ╰─▶ Hash mismatch for `six==1.16.0`\n\n      Expected:\n"
            "        sha256:0000\n\n      Computed:\n        sha256:8abb\n"
        )
        == "the file of six==1.16.0 does not match its --hash; if you trust the file, write "
        "--hash=sha256:8abb"
    )
    assert build_errors.of_uv("") == "uv failed without a message"


def test_an_index_that_cannot_be_reached_has_no_missing_version() -> None:
    """Behind a company's proxy, pip ends with "no such version", and users look for another version."""
    lines = [
        "WARNING: Retrying (Retry(total=0)) after connection broken by 'SSLError(SSLCertVerificationError(1, "
        "'[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed'))': /simple/orjson/",
        "ERROR: Could not find a version that satisfies the requirement orjson==3.9.15 (from versions: none)",
        "ERROR: No matching distribution found for orjson==3.9.15",
    ]
    assert build_errors.complaint(lines).text == (
        "the package index cannot be reached (CERTIFICATE_VERIFY_FAILED): "
        "No matching distribution found for orjson==3.9.15"
    )
    assert build_errors.complaint(lines[1:]).text == "No matching distribution found for orjson==3.9.15"
    aborted = (
        "WARNING: Retrying (Retry(total=0)) after connection broken by 'ProtocolError('aborted')': /simple/orjson/"
    )
    assert build_errors.complaint([aborted, *lines[1:]]).text == (
        "the package index cannot be reached ('ProtocolError('aborted')': /simple/orjson/): "
        "No matching distribution found for orjson==3.9.15"
    )
    assert isinstance(_failure("here", "\n".join([aborted, *lines[1:]]), {}), NetworkTrouble), "worth another try"
    assert not isinstance(_failure("here", "\n".join(lines[1:]), {}), NetworkTrouble)


def test_an_install_that_fills_the_disk_says_what_to_do() -> None:
    told = str(_failure("here", "ERROR: Could not install packages: [Errno 28] No space left on device\n", {}))
    assert told.startswith(
        "here: Could not install packages: [Errno 28] No space left on device; free some space on that"
    )


def test_a_folder_of_this_machine_that_a_container_does_not_see_is_told() -> None:
    """The doctor and the plan knew the version, and pip said that it does not exist."""
    missing = "ERROR: No matching distribution found for mine==7\n"
    told = str(_failure("here", missing, {"PIP_FIND_LINKS": "/wheels", "UV_INDEX_URL": ""}))
    assert told.startswith(
        "here: No matching distribution found for mine==7; a container does not get PIP_FIND_LINKS of this machine: "
        "use a base"
    )
    assert str(_failure("here", missing, {})) == "here: No matching distribution found for mine==7"
    assert "PIP_FIND_LINKS" not in str(_failure("here", "ERROR: gcc: not found\n", {"PIP_FIND_LINKS": "/wheels"}))


def test_a_wheel_that_cannot_be_built_has_its_compiler_s_reason() -> None:
    """`Could not build wheels` alone does not say that there is no compiler."""
    lines = [
        "  error: command 'gcc' failed: No such file or directory",
        "  [end of output]",
        "  ERROR: Failed building wheel for ujson",
        "Failed to build ujson",
        "ERROR: Could not build wheels for ujson",
    ]
    told = build_errors.complaint(lines).text
    assert told == "error: command 'gcc' failed: No such file or directory: Could not build wheels for ujson"
