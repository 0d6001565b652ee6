"""Makes each virtual environment of the process engine once, with uv, and keeps it in a cache.

A virtual environment cannot be moved, so it is made in its final place, under a lock, and a marker is written last. An
environment without the marker is incomplete and is made again. Each trial holds a shared lock, so that no other run
removes its environment.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

import uv

from harness.errors import ImageUnavailable, InfrastructureError
from harness.masking import without_credentials
from harness.model import Image, Install, Prepared, Varied
from harness.model.answers import Room
from harness.model.watching import Say
from harness.run import owners
from harness.run.engine import ImageStore, Kept, write_files
from harness.run.images import build_errors
from harness.run.interruptible import WAITS_S, NetworkRetries, run_command, unavailable
from harness.run.leases import REMEDY, locked, protected, reason_of, removable

MARKER = "harness-complete.json"
CONFIGURATION = "pyvenv.cfg"  # the first file of every virtual environment
NAME = re.compile(r"[0-9a-f]{20}")
WAITING = "waiting for another run that makes or uses this environment"
PASSED_ON = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "XDG_*_HOME", "XDG_*_DIR",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NETRC",
    "UV_*", "PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL",
    "CC", "CXX", "FC", "AR", "LD", "NVCC", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "FFLAGS", "LDFLAGS", "MAKEFLAGS",
    "MAX_JOBS", "CMAKE_*", "SKBUILD_*", "NPY_*", "PKG_CONFIG_PATH", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH",
    "LIBRARY_PATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CUDACXX", "TORCH_CUDA_ARCH_LIST", "CARGO_HOME",
    "RUSTUP_HOME", "RUSTFLAGS", "RUSTC", "SOURCE_DATE_EPOCH", "SETUPTOOLS_SCM_*", "SETUPTOOLS_USE_DISTUTILS",
)  # fmt: skip
"""Patterns (fnmatch) of the variables that uv and the build code of packages without a wheel get: those that the
network, package indexes and compilers need. The user's other variables may hold cloud credentials."""
KEPT_BACK = ("UV_PUBLISH_*", "UV_*TOKEN*", "UV_PYTHON*", "UV_PROJECT*", "UV_VENV*", "UV_SYSTEM_PYTHON")
"""Exceptions to PASSED_ON: variables that serve only to publish, or that select another environment."""


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return ${HARNESS_CACHE:-${XDG_CACHE_HOME:-~/.cache}/harness}/environments as an absolute path. Raises
    InfrastructureError if there is no home folder."""
    if own := environ.get("HARNESS_CACHE"):
        return Path(own).absolute() / "environments"
    try:
        cache = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or Path.home()) / ".cache"
    except RuntimeError as error:
        raise InfrastructureError("this user has no home folder and no HOME; set HARNESS_CACHE to a folder") from error
    return Path(cache).absolute() / "harness" / "environments"


class EnvironmentStore(ImageStore):
    """An ImageStore in the cache folder that `environ` selects. `host_in_words`: the kind of host, for messages.
    `waits_s`: seconds before each retry after a network error.

    The reference of an environment is the path of its Python.
    """

    def __init__(self, *, environ: Mapping[str, str], host_in_words: str, waits_s: tuple[float, ...] = WAITS_S) -> None:
        self._environ, self._host_in_words, self._retries = environ, host_in_words, NetworkRetries(waits_s)

    def prepare(self, image: Image, say: Say) -> Prepared:
        if isinstance(image.source, Varied):
            return as_it_is(image)
        if not isinstance(image.source, Install):
            raise ImageUnavailable(f"needs a container engine; this host is {self._host_in_words}", place=image.where)
        source = image.source

        def attempt() -> Prepared:
            try:
                return self._prepare(image, source, say)
            except ImageUnavailable:
                raise
            except InfrastructureError as error:
                raise ImageUnavailable(str(error), place=image.where) from error
            except OSError as error:
                raise ImageUnavailable(f"{reason_of(error)}; {REMEDY}", place=image.where) from error

        return self._retries.through(attempt, say=say)

    def _prepare(self, image: Image, source: Install, say: Say) -> Prepared:
        interpreter = find(source.python, environ=self._environ)
        if interpreter is None:
            present = ", ".join(versions(self._environ)) or "none"
            raise ImageUnavailable(f"no Python {source.python} on this machine; it has: {present}", place=image.where)
        build = build_of(interpreter)
        folder = self._folder(source, build=build)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder, shared=True, say=say, waiting=WAITING):  # a shared lock does not wait for running trials
            digest = _digest_in(folder)
        if digest is None:
            with locked(folder, say=say, waiting=WAITING):
                digest = _digest_in(folder)  # another run may have made the environment during the wait
                if digest is None:
                    if folder.exists():
                        shutil.rmtree(folder)
                    _make(folder, interpreter=interpreter, image=image, source=source, environ=self._environ, say=say)
                    digest = digest_of(folder, build=build)
                    scratch = (folder / MARKER).with_suffix(".new")
                    with scratch.open("w") as file:
                        packages = [without_credentials(package) for package in source.packages]
                        json.dump({"digest": digest, "build": build, "packages": packages}, file)
                        file.flush()
                        os.fsync(file.fileno())
                    scratch.rename(folder / MARKER)
        return Prepared(image=image, reference=str(python_of(folder)), digest=digest)

    def look(self, image: Image, say: Say) -> Prepared | None:
        source = image.source
        if isinstance(source, Varied):
            return as_it_is(image)
        if not isinstance(source, Install) or (found := find(source.python, environ=self._environ)) is None:
            return None
        folder = self._folder(source, build=build_of(found))
        digest = _digest_in(folder)
        return None if digest is None else Prepared(image=image, reference=str(python_of(folder)), digest=digest)

    def _folder(self, source: Install, *, build: str) -> Path:
        more = [*(["exact"] if source.exact else []), *([source.hashes] if source.hashes else [])]
        content = json.dumps([build, source.packages, *more])
        return cache_folder(self._environ) / hashlib.sha256(content.encode()).hexdigest()[:20]

    def holds(self, prepared: Prepared) -> bool:
        return isinstance(prepared.image.source, Varied) or _digest_in(Path(prepared.reference).parents[1]) is not None

    def size_bytes(self, prepared: Prepared) -> int:
        if isinstance(prepared.image.source, Varied):
            raise InfrastructureError("nothing was installed")
        return self._size_bytes(Path(prepared.reference).parents[1])

    def _size_bytes(self, folder: Path) -> int:
        """Return the size of the environment; files that it shares with uv's cache count in full."""
        try:
            details = [path.lstat() for path in folder.rglob("*")]
        except OSError as error:
            raise InfrastructureError(f"{reason_of(error)}; is another run removing it?") from error
        return sum(detail.st_size for detail in details if stat.S_ISREG(detail.st_mode))

    def _kept_folders(self) -> list[Path]:
        return [folder for folder in sorted(cache_folder(self._environ).glob("*")) if _is_ours(folder)]

    def kept(self) -> tuple[Kept, ...]:
        return tuple(
            Kept(
                reference=str(python_of(folder)),
                name=str(folder),
                made=True,
                layers={str(folder): self._size_bytes(folder)},
            )
            for folder in self._kept_folders()
        )

    def remove(self, kept: Kept, say: Say) -> bool:
        return self._remove(Path(kept.reference).parents[1], say)  # `name` is for users: a hybrid has another

    def remove_images(self, say: Say) -> tuple[str, ...]:
        folders = self._kept_folders()  # `kept` measures them, which fails if another run is making one
        return tuple(str(folder) for folder in folders if self._remove(folder, say))

    def _remove(self, folder: Path, say: Say) -> bool:
        """Remove an environment unless it is in use; return whether it is gone. The marker is removed first, and
        pyvenv.cfg last, so that the rest of an interrupted removal counts as incomplete but is still recognised as an
        environment."""
        if not _is_ours(folder):
            return False
        with removable(folder, say=say) as is_free:
            if is_free:
                (folder / MARKER).unlink(missing_ok=True)
                for path in [path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()]:
                    shutil.rmtree(path)
                shutil.rmtree(folder)
        return is_free

    def room(self) -> Room:
        return room_of(cache_folder(self._environ))


def as_it_is(image: Image) -> Prepared:
    """Return the image of a command that runs on the machine as it is: only the agent needs a Python."""
    digest = hashlib.sha256(json.dumps(image.environment).encode()).hexdigest()
    return Prepared(image=image, reference=sys.executable, digest=f"sha256:{digest}")


def in_use(python: Path) -> AbstractContextManager[None]:
    """Protect the environment of `python` from removal. Raises InfrastructureError if it has just been removed. The
    harness's own interpreter, by which commands run in place, is in none."""
    if python == Path(sys.executable):
        return contextlib.nullcontext()
    folder = python.parents[1]
    return protected(folder, what="environment", is_there=lambda: _digest_in(folder) is not None)


def python_of(folder: Path) -> Path:
    return folder / "bin" / "python"


def _is_ours(folder: Path) -> bool:
    """Return whether the harness made a folder as an environment. Raises InfrastructureError if it is unreadable."""
    try:
        made = any((folder / name).is_file() for name in (MARKER, CONFIGURATION))
    except OSError as error:
        raise InfrastructureError(f"{reason_of(error)}; remove it by hand") from error
    return made and NAME.fullmatch(folder.name) is not None and not folder.is_symlink()


def digest_of(folder: Path, *, build: str) -> str:
    """Return `sha256:<hex>` of the interpreter's build, and of each distribution's folder name and RECORD."""
    digest = hashlib.sha256(f"{build}\n".encode())
    for record in sorted(folder.glob("lib/python*/site-packages/*.dist-info/RECORD")):
        # Lines of compiled files differ between installs; lines of the wheel's files do not.
        lines = [line for line in record.read_text(errors="replace").splitlines() if _is_content(line)]
        digest.update("\n".join([record.parent.name, *sorted(lines), ""]).encode())
    return f"sha256:{digest.hexdigest()}"


def _is_content(line: str) -> bool:
    name = line.split(",", 1)[0]
    scripts_and_notes = ("../", "/")  # console scripts hold this folder's own path
    return not name.startswith(scripts_and_notes) and not name.endswith((".pyc", "/INSTALLER", "/RECORD", "/REQUESTED"))


def _digest_in(folder: Path) -> str | None:
    """Return the digest in the marker of a complete environment; None if there is no readable marker."""
    try:
        marker = json.loads((folder / MARKER).read_text())
    except (OSError, ValueError):
        return None  # incomplete, removed or damaged: `prepare` makes it again
    return str(marker["digest"]) if isinstance(marker, dict) and "digest" in marker else None


def _make(
    folder: Path, *, interpreter: Path, image: Image, source: Install, environ: Mapping[str, str], say: Say
) -> None:
    tool, python, environment = uv.find_uv_bin(), str(python_of(folder)), settings_of_uv(environ)
    installing = f"installing {without_credentials(' '.join(source.packages))}"

    def run(*command: str, must_succeed: bool = True) -> None:
        done = run_command(list(command), environment=environment, beat=lambda: say(installing))
        if must_succeed and done.returncode != 0:
            why = build_errors.of_uv(done.stderr)
            text = f"{why}{build_errors.if_other_python(why)}"
            raise unavailable(text, place=image.place, cause=done.stderr)

    run(tool, "venv", "--no-python-downloads", "--python", str(interpreter), str(folder))
    if source.packages:
        say(installing)
        exact = ["--no-deps"] if source.exact else []
        requirements = ["--", *source.packages]
        listed = folder / "requirements.txt"
        if source.needs_file:
            listed.touch(mode=0o600)
            listed.write_text("\n".join(source.lines))
            requirements = ["-r", str(listed)]
        try:
            run(tool, "pip", "install", *exact, "--python", python, *requirements)
        finally:
            listed.unlink(missing_ok=True)
    # Compile now, so that the first trial need not. uv's --compile-bytecode fails on Python 3.6. A failure is ignored,
    # because packages may contain files that do not compile (templates, tests of syntax errors).
    run(python, "-m", "compileall", "-q", str(folder / "lib"), must_succeed=False)


def settings_of_uv(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of uv and of the build code that it runs: the variables in PASSED_ON but not KEPT_BACK. uv
    does not read pip's settings, so pip's indexes and folders, which the version lookup (`harness.package_index`) uses,
    are translated into uv's settings.
    """

    def fits(name: str, patterns: Iterable[str]) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in patterns)

    kept = {name: value for name, value in environ.items() if fits(name, PASSED_ON) and not fits(name, KEPT_BACK)}
    if kept.get("PIP_INDEX_URL") and not (kept.get("UV_DEFAULT_INDEX") or kept.get("UV_INDEX_URL")):
        kept["UV_DEFAULT_INDEX"] = kept["PIP_INDEX_URL"]
    # uv fails if such a folder does not exist; pip ignores it.
    links = [link for link in kept.get("PIP_FIND_LINKS", "").split() if "://" in link or Path(link).is_dir()]
    both = {
        "UV_FIND_LINKS": ",".join(filter(None, (kept.get("UV_FIND_LINKS"), *links))),
        "UV_EXTRA_INDEX_URL": " ".join(filter(None, map(kept.get, ("UV_EXTRA_INDEX_URL", "PIP_EXTRA_INDEX_URL")))),
    }
    settings = {**kept, **{name: value for name, value in both.items() if value}}
    return {name: value for name, value in settings.items() if not name.startswith("PIP_")}


def room_of(folder: Path) -> Room:
    """Return the free and total space of the file system on which the folder is or will be."""
    usage = shutil.disk_usage(next(place for place in (folder, *folder.parents) if place.exists()))
    return Room(free_bytes=usage.free, total_bytes=usage.total)


# ---------------------------------------------------------------- interpreters


def find(version: str | None, *, environ: Mapping[str, str]) -> Path | None:
    """Return the first interpreter of a version, such as "3.7" or "3.7.16", and for None the harness's own. None if
    there is none."""
    if version is None:
        return Path(sys.executable)
    return next((path for path in candidates(environ) if is_version(version_of(path), version)), None)


def versions(environ: Mapping[str, str]) -> list[str]:
    """Return the Python versions on this machine, oldest first."""
    versions = {version for path in candidates(environ) if (version := version_of(path))}
    return sorted(versions, key=lambda text: [int(part) for part in re.findall(r"\d+", text)])


def is_version(version: str, wanted: str) -> bool:
    """Return whether `version` (3.7.16) is `wanted` or a release of it, if `wanted` is shorter (3.7)."""
    return version == wanted or version.startswith(f"{wanted}.")


def candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the harness's own interpreter, then those of pyenv, then of uv, then those on PATH."""
    yield Path(sys.executable)
    home = Path(environ.get("HOME", "/nonexistent"))
    pyenv = Path(environ.get("PYENV_ROOT", home / ".pyenv"))
    data = Path(environ.get("XDG_DATA_HOME", home / ".local/share"))
    yield from sorted(pyenv.glob("versions/*/bin/python"), reverse=True)
    yield from sorted(data.glob("uv/python/cpython-*/bin/python"), reverse=True)
    shims = pyenv / "shims"  # they are slow, and lead only to interpreters above
    path = os.pathsep.join(each for each in environ.get("PATH", os.defpath).split(os.pathsep) if Path(each) != shims)
    for minor in range(20, 5, -1):
        if found := shutil.which(f"python3.{minor}", path=path):
            yield Path(found)


def version_of(path: Path) -> str:
    """Return the version of an interpreter, such as "3.7.16"; "" if it does not run, or is older than 3.6."""
    code = "import sys; print('.'.join(map(str, sys.version_info[:3])) if sys.version_info >= (3, 6) else '')"
    return _printed(path, code)


def build_of(path: Path) -> str:
    """Return what tells interpreters of one version apart: path, compiler, time and options of the build."""
    details = "sys.version, sysconfig.get_platform(), sysconfig.get_config_var('CONFIG_ARGS')"
    return f"{path.resolve()} {_printed(path, f'import sys, sysconfig; print([{details}])')}"


def _printed(path: Path, code: str) -> str:
    """Return the output of `code` in an interpreter; "" if it fails or takes more than 20 s."""
    try:
        done = subprocess.run(
            [path, "-I", "-c", code], capture_output=True, text=True, errors="replace", timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


# ---------------------------------------------------------------- agent copy


class AgentCopy:
    """A folder with the agent's package, which is written when the first trial needs it. It is written again if a
    trial or a cleaner of temporary files has changed it. It is thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._folder: Path | None = None
        self._whole: Mapping[Path, _Details | None] = {}

    def link_into(self, root: Path, agent: Mapping[str, bytes]) -> None:
        """Make links in a trial's folder `root`, beside the copy, to the folders of `agent`. Raises OSError."""
        with self._lock:
            if any(_details(path) != details for path, details in self._whole.items()):
                self._remove()
            if self._folder is None:
                self._folder = _written(agent, root.parent / owners.new_name(owners.AGENT_PREFIX))
                self._whole = {path: _details(path) for path in (self._folder, *self._folder.rglob("*"))}
            for name in {PurePosixPath(place).parts[0] for place in agent}:
                (root / name).symlink_to(self._folder / name)

    def remove(self) -> None:
        """Remove the folder, if there is one. One that cannot be removed is left to the next run."""
        with self._lock:
            self._remove()

    def _remove(self) -> None:
        if self._folder is not None:
            with contextlib.suppress(InfrastructureError):
                owners.remove_folder(self._folder)
        self._folder, self._whole = None, {}


_Details = tuple[int, int, int]


def _details(path: Path) -> _Details | None:
    """Return what changes when a file or a folder is changed; None if there is none."""
    with contextlib.suppress(OSError):
        found = path.lstat()
        return found.st_mode, found.st_size, found.st_mtime_ns
    return None


def _written(agent: Mapping[str, bytes], folder: Path) -> Path:
    try:
        folder.mkdir(mode=0o700)
        write_files(agent, folder)
    except OSError:
        owners.remove_folder(folder)
        raise
    return folder
