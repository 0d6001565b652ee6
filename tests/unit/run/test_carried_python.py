"""The harness's own interpreter in an image: it must need nothing that the image has."""

from __future__ import annotations

import json
import re
import subprocess
from encodings.aliases import aliases
from pathlib import Path

import pytest

from harness.errors import InfrastructureError
from harness.run.trial import carried_python
from harness.run.trial.payload import agent_files

LISTS = """
import json, sys
sys.path.insert(0, sys.argv[1])
from harness_agent.serving import choose_client
from harness_agent.supervisor import job
from harness_agent.probes import image
import collections, ctypes, zlib
collections.Counter("aab").most_common(1)
files = [module.__file__ for module in list(sys.modules.values()) if getattr(module, "__file__", None)]
with open("/proc/self/maps") as maps:
    files += sorted({line.split(None, 5)[5].strip() for line in maps if ".so" in line})
print(json.dumps([sys.prefix, files, image.interpreter()]))
"""


def test_it_imports_the_agent_from_its_own_files_alone(tmp_path: Path) -> None:
    """A library was brought under the name of its file, libz.so.1.2.13, and not under that by which it is asked for: a
    client's script ended in an ImportError in an Alpine image, and the agent had no ctypes.
    """
    files = {**agent_files(), **carried_python.carried_python(frozenset({"ctypes", "zlib"}))}
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    for name in carried_python.executables():
        (tmp_path / name).chmod(0o755)
    command = [*carried_python.words(str(tmp_path)), "-B", "-c", LISTS, str(tmp_path)]
    ended = subprocess.run(command, env={"PYTHONHOME": "/gone"}, cwd="/", capture_output=True, check=False, timeout=60)
    assert not ended.stderr, ended.stderr.decode()
    prefix, imported, told = json.loads(ended.stdout)
    assert prefix == str(tmp_path / "python")
    assert [path for path in imported if not Path(path).is_relative_to(tmp_path)] == []
    assert "python" not in told, "an image without Python was said to have that of the harness"


def test_it_has_each_codec_that_the_agent_names() -> None:
    """No source imports one: in containers, a server with `requests:` ended in `unknown encoding: utf-8-sig`."""
    sources = b"".join(content for content in agent_files().values())
    named = set(re.findall(rb'(?:encoding=|code\()"([a-z0-9-]+)"', sources))
    modules = {aliases.get(own, own) for own in (name.decode().replace("-", "_") for name in named)}
    carried = {Path(name).stem for name in carried_python.carried_python() if "/encodings/" in name}
    assert {"ascii", "utf_8_sig"} <= modules <= carried


def test_a_library_is_brought_under_the_names_of_the_links_to_it(tmp_path: Path) -> None:
    for name, links in {"libbz2.so.1.0.4": ["libbz2.so", "libbz2.so.1", "libbz2.so.1.0"], "libown.so": []}.items():
        (tmp_path / name).write_bytes(b"")
        for link in links:
            (tmp_path / link).symlink_to(name)
    (tmp_path / "gone.so.1").symlink_to("nothing")
    (tmp_path / "loop.so.1").symlink_to("loop.so.1")
    names = carried_python._names(tmp_path / "libbz2.so.1.0.4")
    assert sorted(names) == ["libbz2.so.1", "libbz2.so.1.0", "libbz2.so.1.0.4"]
    assert carried_python._names(tmp_path / "libown.so") == ["libown.so"]


def test_another_processor_is_told_in_a_line() -> None:
    with pytest.raises(InfrastructureError, match="and that machine is riscv64"):
        carried_python.check_machine("riscv64")


def test_it_brings_what_a_client_s_script_imports() -> None:
    files = {
        "scenario/client.py": b"from xmlrpc import client\n",
        "scenario/bad.py": b"def",
        "start.py": b"import turtle",
    }
    more = carried_python.needed_by(files)
    assert more == {"xmlrpc", "xmlrpc.client"}
    brought = carried_python.carried_python(more).keys() - carried_python.carried_python().keys()
    assert any(name.endswith("/xmlrpc/client.pyc") for name in brought)
