"""What the image is: everything that `hello` tells, found without importing anything of the image. Takes ms."""

import fnmatch
import os
import platform
import re
import resource
import sys

from . import PROTOCOL, VERSION

LONGEST_VALUE = 4096
NOTHING_COMPILED = ", nothing compiled"


def facts(patterns, environment, cgroup):
    """The fields of `hello`. `patterns`: fnmatch patterns of the variables whose values may be told."""
    shown = {
        name: value[:LONGEST_VALUE]
        for name, value in environment.items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    }
    return {
        "protocol": PROTOCOL,
        "agent": VERSION,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "libc": _libc(),
        "packages": packages(sys.path),
        "wheels": wheels(sys.path),
        "cpu": _cpu(),
        "page_kib": os.sysconf("SC_PAGE_SIZE") // 1024,
        "huge_pages": _huge_pages(),
        "rlimits": _rlimits(),
        "cgroup": {"version": cgroup.version, "limit_bytes": cgroup.limit_bytes()},
        "environment": shown,
        "environment_names": sorted(set(environment) - set(shown)),
    }


def packages(places):
    """Normalised name -> version of what is installed. The names of the folders say it; hardly a file is opened."""
    return {name: version for name, version, _ in _installed(places)}


def wheels(places):
    """Normalised name -> the tag of the wheel it was installed from, such as `py3-none-any`; of several the first.

    A wheel for this platform alone (`linux_x86_64`), mostly made by the installer itself, may have nothing compiled in
    it, whatever its tag: that is told behind it. About 15 us a package.
    """
    found = {}
    for name, _, path in _installed(places):
        tag = re.search(r"^Tag:\s*(\S+)", _read(os.path.join(path, "WHEEL")), re.MULTILINE)
        if tag:
            found[name] = tag.group(1) + (NOTHING_COMPILED if _is_hollow(tag.group(1), path) else "")
    return found


def _is_hollow(tag, path):
    """Whether a compiler should have made something of it, and there is no library in it: it failed, or was missing."""
    record = _read(os.path.join(path, "RECORD")) if tag.split("-")[-1].startswith("linux_") else ""
    return bool(record) and re.search(r"\.so[.,]", record) is None


def _installed(places):
    """Normalised name, version and folder (or file) of what is installed; of one name the first that is found."""
    seen = set()
    for place in places:
        for entry in _listed(place):
            stem, kind = os.path.splitext(entry)
            if kind in (".dist-info", ".egg-info", ".egg"):
                path = os.path.join(place, entry)
                name, version = _split(stem, path)
                name = re.sub(r"[-_.]+", "-", name).lower()
                if name not in seen:
                    seen.add(name)
                    yield name, version, path


def _split(stem, path):
    """`name-version` of wheels, `name-version-pyX.Y` of eggs, `name` alone of development installs."""
    words = stem.split("-")
    if len(words) > 1:
        return words[0], words[1]
    return stem, _version_inside(path)


def _version_inside(path):
    text = _read(os.path.join(path, "PKG-INFO")) or _read(path)
    match = re.search(r"^Version:\s*(\S+)", text, re.MULTILINE)
    return match.group(1) if match else ""


def _listed(place):
    try:
        return sorted(os.listdir(place or "."))
    except OSError:
        return []  # a zip file, or an entry of sys.path that does not exist


def _libc():
    """Asked of the C library itself where it answers; musl does not."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or "unknown"
    except (OSError, ValueError):
        return "musl" if any("musl" in name for name in _listed("/lib")) else "unknown"


def _cpu():
    match = re.search(r"^(?:model name|Model|CPU part)\s*:\s*(.+)$", _read("/proc/cpuinfo"), re.MULTILINE)
    return match.group(1) if match else platform.machine()


def _huge_pages():
    match = re.search(r"\[(\w+)\]", _read("/sys/kernel/mm/transparent_hugepage/enabled"))
    return match.group(1) if match else None


def _rlimits():
    """Name -> "soft:hard"; -1 is no limit."""
    names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    return {name[len("RLIMIT_") :].lower(): "%d:%d" % resource.getrlimit(getattr(resource, name)) for name in names}


def _read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
