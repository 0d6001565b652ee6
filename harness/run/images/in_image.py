"""Runs inside images, on CPython 3.6 to 3.15 (`python -c THIS_TEXT TASK`): for a graft, collects files in one image and
puts them into another; for an overlay, prints one hash of all that is installed.
"""

import hashlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any, Dict

STAGE = "/.harness-graft"
TREE = STAGE + "/tree"
LIBRARIES = "/.harness-libraries"
Manifest = Dict[str, Any]


def main(task: str) -> None:
    if task == "installed":
        print(installed())
        return
    with open(STAGE + "/manifest.json", encoding="utf-8") as file:
        manifest = json.load(file)
    {"collect": collect, "remove": remove, "place": place}[task](manifest)


def collect(manifest: Manifest) -> None:
    """Copy the files that the manifest names into TREE, at the paths that they get in the other image."""
    os.makedirs(TREE, exist_ok=True)
    for source, target in manifest["copy"]:
        copy(source, TREE + target)
    for library in manifest["libraries"]:
        folder, real = os.path.dirname(library), os.path.realpath(library)
        for name in sorted(os.listdir(folder)):
            if os.path.realpath(os.path.join(folder, name)) == real:
                copy(real, os.path.join(TREE + LIBRARIES, name))


def copy(source: str, target: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(source):
        os.symlink(os.readlink(source), target)
    elif os.path.isdir(source):
        shutil.copytree(source, target, symlinks=True)
    elif os.path.exists(source):
        shutil.copy2(source, target)


def remove(manifest: Manifest) -> None:
    """Remove the files and folders that the manifest names, and the modules that were compiled from them."""
    for path in manifest["remove"]:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):
            os.remove(path)
        if path.endswith(".py"):
            remove_compiled(path)


def remove_compiled(path: str) -> None:
    folder = os.path.join(os.path.dirname(path), "__pycache__")
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        if name.startswith(os.path.basename(path)[: -len("py")]):
            os.remove(os.path.join(folder, name))


def place(manifest: Manifest) -> None:
    """Move the files of the other image from TREE to their final paths, and remove STAGE."""
    for folder, folders, files in os.walk(TREE):
        names = files + [name for name in folders if os.path.islink(os.path.join(folder, name))]
        target = folder[len(TREE) :] or "/"
        os.makedirs(target, exist_ok=True)
        for name in names:
            os.rename(os.path.join(folder, name), os.path.join(target, name))
    shutil.rmtree(STAGE)


def installed() -> str:
    """Return the SHA-256 of the folder name of each distribution that this interpreter sees, and of the lines of its
    RECORD. Lines of compiled files are left out, because they differ between installs. A distribution without a RECORD
    (an egg) counts only by its folder name.
    """
    patterns = ("*.dist-info", "*.egg-info")
    infos = {info for folder in sys.path if folder for pattern in patterns for info in Path(folder).glob(pattern)}
    digest = hashlib.sha256()
    for info in sorted(infos, key=lambda info: (info.name, str(info))):
        record = info / "RECORD"
        lines = record.read_text(encoding="utf-8").splitlines() if record.is_file() else []
        kept = sorted(line for line in lines if not line.split(",")[0].endswith(".pyc"))
        digest.update("\n".join([info.name, *kept, ""]).encode())
    return digest.hexdigest()


main(sys.argv[1])
