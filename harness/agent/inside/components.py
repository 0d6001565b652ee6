"""Lists the contents of an image for `harness narrow`: its distributions with their files, and the libraries that the
scenario maps. Such a launch reaches no verdict, so the cost of the listing does not matter."""

import hashlib
import json
import os
import platform
import re
import sys

from ..probes import image, processes

FORMAT = 1
READ_BYTES = 1 << 20
LIBRARY = re.compile(r"\.so(\.|$)")
MOST_METADATA = 1 << 20
MOST_RECORD = 64 << 20


class Components(object):
    """Collects the paths of mapped libraries while the scenario runs; reads everything else at the end."""

    def __init__(self):
        self._mapped = set()

    def look(self):
        """Note which libraries the descendants of this process have mapped now."""
        for pid in processes.descendants():
            self._mapped |= {path for path in processes.mapped(pid) if LIBRARY.search(os.path.basename(path))}

    def files(self):
        """Return {file name: text}."""
        hashes = {path: sha256(path) for path in sorted(self._mapped)}
        contents = {
            "format": FORMAT,
            **image.interpreter(),
            "machine": platform.machine(),
            "distributions": list(distributions(sys.path)),
            "mapped": {path: digest for path, digest in hashes.items() if digest},
        }
        return {"components.json": json.dumps(contents)}


def sha256(path):
    """Return the SHA-256 of a file in hex; "" if it is gone or cannot be read."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            for piece in iter(lambda: file.read(READ_BYTES), b""):
                digest.update(piece)
    except OSError:
        return ""
    return digest.hexdigest()


def distributions(places):
    """Yield a dict for each installed distribution; if several have the same name, for the first, which is imported."""
    for name, version, path in image.installed_packages(places):
        metadata = _head(os.path.join(path, "METADATA")) or _head(os.path.join(path, "PKG-INFO")) or _head(path)
        yield {
            "name": name,
            "version": version,
            "place": os.path.dirname(path),
            "folder": os.path.basename(path),
            "requires": re.findall(r"^Requires-Dist:\s*(.+?)\s*$", metadata, re.MULTILINE),
            "origin": _origin(path),
            "files": record(_text(os.path.join(path, "RECORD"), MOST_RECORD)),
        }


def record(text):
    """Return path -> hash, both as in RECORD, without the files that the installer writes or compiles."""
    hashes = {}
    for line in text.splitlines():
        path, _, rest = line.rpartition(",")[0].rpartition(",")
        path = path.strip('"').replace('""', '"')
        if path and not path.endswith((".pyc", "/RECORD", "/INSTALLER", "/REQUESTED", "/direct_url.json")):
            hashes[path] = rest
    return hashes


def _origin(path):
    """Return the URL that a distribution was installed from directly; "" if it came from an index."""
    try:
        return str(json.loads(_text(os.path.join(path, "direct_url.json"), MOST_METADATA)).get("url", ""))
    except (ValueError, AttributeError):
        return ""


def _head(path):
    """Return the fields of a METADATA file, without the description below them."""
    return _text(path, MOST_METADATA).partition("\n\n")[0]


def _text(path, most):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(most)
    except (OSError, ValueError):
        return ""
