"""Prints one hash of the content of all Python distributions that an interpreter sees.

The Python of an image runs this file after an install (`python -c`, CPython 3.6 to 3.13). The harness never imports it,
and no launch contains it.

The hash is the SHA-256 of each distribution's folder name and the lines of its RECORD. Lines of compiled files are left
out, because they differ between installs. A distribution without a RECORD (an egg) counts only by its folder name.
"""

import hashlib
import sys
from pathlib import Path

patterns = ("*.dist-info", "*.egg-info")
infos = {info for folder in sys.path if folder for pattern in patterns for info in Path(folder).glob(pattern)}
digest = hashlib.sha256()
for info in sorted(infos, key=lambda info: (info.name, str(info))):
    record = info / "RECORD"
    lines = record.read_text(encoding="utf-8").splitlines() if record.is_file() else []
    kept = sorted(line for line in lines if not line.split(",")[0].endswith(".pyc"))
    digest.update("\n".join([info.name, *kept, ""]).encode())
print(digest.hexdigest())
