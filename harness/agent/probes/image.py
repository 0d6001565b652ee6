"""Reads what an image and its machine hold, without importing anything: packages, wheels, the C library, limits."""

import fnmatch
import os
import platform
import re
import resource
import sys

from .. import PROTOCOL, VERSION
from . import memory, processes

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))  # of the trial's files
LONGEST_VALUE = 4096
NOTHING_COMPILED = ", nothing compiled"


def facts(patterns, environment, cgroup):
    """Return the fields of `hello`. `patterns`: fnmatch patterns of the variables whose values may be reported."""
    shown = {
        name: value[:LONGEST_VALUE]
        for name, value in environment.items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    }
    packages = list(installed_packages(sys.path))
    match = re.search(r"^(?:model name|Model|CPU part)\s*:\s*(.+)$", _read("/proc/cpuinfo"), re.MULTILINE)
    return {
        "protocol": PROTOCOL,
        "agent": VERSION,
        **interpreter(),
        "packages": {name: version for name, version, _ in packages},
        "wheels": wheel_tags(packages),
        "cpu": match.group(1) if match else platform.machine(),
        "page_kib": os.sysconf("SC_PAGE_SIZE") // 1024,
        "huge_pages": _huge_pages(),
        "rlimits": _rlimits(),
        "cgroup": {"version": cgroup.version, "limit_bytes": cgroup.limit_bytes()},
        "environment": shown,
        "environment_names": sorted(set(environment) - set(shown)),
    }


def wheel_tags(packages):
    """Return normalised name -> the tag of its wheel, such as `py3-none-any`; if there are several tags, the first.

    A wheel for this platform alone (`linux_x86_64`) was usually built by the installer, and may contain nothing
    compiled despite its tag: NOTHING_COMPILED is then appended. Takes about 15 us per package.
    """
    tags = {}
    for name, _, path in packages:
        match = re.search(r"^Tag:\s*(\S+)", _read(os.path.join(path, "WHEEL")), re.MULTILINE)
        if match:
            tag = match.group(1)
            tags[name] = tag + NOTHING_COMPILED if _is_hollow(tag, path) else tag
    return tags


def _is_hollow(tag, path):
    """Return whether a package that should contain a compiled library has none: its build had no working compiler."""
    record = _read(os.path.join(path, "RECORD")) if tag.split("-")[-1].startswith("linux_") else ""
    return bool(record) and re.search(r"\.so[.,]", record) is None


def installed_packages(places):
    """Yield the normalised name, version and folder (or file) of each package; if several have the same name, only the
    first.
    """
    seen = set()
    for place in places:
        for entry in sorted(processes.listed(place or ".")):
            stem, kind = os.path.splitext(entry)
            if kind in (".dist-info", ".egg-info", ".egg"):
                path = os.path.join(place, entry)
                name, version = _split(stem, path)
                name = re.sub(r"[-_.]+", "-", name).lower()
                if name not in seen:
                    seen.add(name)
                    yield name, version, path


def _split(stem, path):
    """Split `name-version` of wheels, `name-version-pyX.Y` of eggs, `name` alone of development installs."""
    words = stem.split("-")
    if len(words) > 1:
        return words[0], words[1]
    text = _read(os.path.join(path, "PKG-INFO")) or _read(path)
    match = re.search(r"^Version:\s*(\S+)", text, re.MULTILINE)
    return stem, (match.group(1) if match else "")


def interpreter():
    """Return the fields of the image's Python and of its C library. If the harness has brought this interpreter with
    its C library, because the image has none, only what the image's files tell of its own C library.
    """
    musl = {"libc": "musl"} if any("musl" in name for name in processes.listed("/lib")) else {}
    if sys.prefix == os.path.join(ROOT, "python"):
        return musl
    found = {"python": platform.python_version(), "implementation": platform.python_implementation()}
    try:
        return {**found, "libc": os.confstr("CS_GNU_LIBC_VERSION") or "unknown"}
    except (OSError, ValueError):  # musl tells no version
        return {"libc": "unknown", **found, **musl}


def _huge_pages():
    match = re.search(r"\[(\w+)\]", _read("/sys/kernel/mm/transparent_hugepage/enabled"))
    return match.group(1) if match else None


def _rlimits():
    """Return name -> "soft:hard"; -1 means unlimited."""
    names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    return {name[len("RLIMIT_") :].lower(): "%d:%d" % resource.getrlimit(getattr(resource, name)) for name in names}


def _read(path):
    return memory.contents(path).decode("utf-8", "replace")
