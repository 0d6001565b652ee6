"""Keeps a Slurm host's images: as files in a folder that this machine shares with the nodes (`ImageFiles`), or in the
container engine of a node (`NodeImages`).

There is one image file for each digest, and a node imports it to a temporary name. The file gets its final name when
the node has reported its whole size, so that the partial file of a killed import or of a lost node is never taken for
an image.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from harness.errors import EngineUnreachable, ImageUnavailable, InfrastructureError, named_place
from harness.model import Image, Install, Prepared, Pull
from harness.model.answers import Room
from harness.model.watching import Say, unheard
from harness.registry.bounded_http import RegistrySilent, RegistryTrouble
from harness.registry.image_references import DIGEST, RegistryName, parse
from harness.registry.registry_client import Registry
from harness.run import owners
from harness.run.engine import ImageStore, Kept
from harness.run.images import our_images
from harness.run.images.disk_budget import architecture_of
from harness.run.images.find_images import prepared as prepared_of
from harness.run.images.our_images import EngineImage
from harness.run.interruptible import Beat, NetworkTrouble, silent, unavailable
from harness.run.leases import locked, protected, reason_of, removable
from harness.run.process import environments
from harness.run.process.environments import room_of
from harness.run.slurm.hold import Hold
from harness.run.slurm.request import NodeRequest
from harness.run.slurm.steps import ANSWER_S, printed_on_node

FOLDER = "containers"
MOST_RECORD_BYTES = 1 << 20
IMPORT = (
    'folder=$1; file=$2; own=${TMPDIR:-/tmp}/$3; shift 3; [ -d "$folder" ] || { echo "this node does not see $folder:'
    ' choose a folder for images: that this machine and the nodes share" >&2; exit 1; }; trap : TERM INT;'
    ' mkdir -m 700 "$own" || exit 1; TMPDIR=$own "$@" >&2 && sync "$file" && [ -s "$file" ]'
    ' && echo "imported $(stat -c %s "$file")"; code=$?; rm -rf "$own"; [ $code = 0 ] || rm -f "$file"; exit $code'
)
"""Imports an image with temporary files in a folder that is removed afterwards. Its name says whose it is, so that the
next run removes what a killed import left in /tmp."""
DONE = "imported "
WAITING = "waiting for another run that imports or uses this image"


SUFFIXES = {"enroot": ".sqsh", "pyxis": ".sqsh", "apptainer": ".sif"}


def import_command(container: str, name: RegistryName, digest: str, file: Path) -> list[str]:
    """Return the command that imports an image into a file."""
    if container == "apptainer":
        return ["apptainer", "pull", "--disable-cache", str(file), f"docker://{name}@{digest}"]
    # The digest takes the place of the tag: versions before 4 refuse `@sha256:…`.
    return ["enroot", "import", "--output", str(file), f"docker://{name.server}#{name.repository}:{digest}"]


@dataclass(frozen=True, kw_only=True)
class Record:
    """The facts about an image file. `references`: the names in matrix files that resolved to this image."""

    digest: str
    references: tuple[str, ...]
    labels: Mapping[str, str]
    environment: Mapping[str, str]


RECORD = TypeAdapter(Record)


class ImageFiles(ImageStore):
    """An ImageStore of image files for one container program. `environ` selects their folder, and logins."""

    def __init__(self, hold: Hold, *, environ: Mapping[str, str]) -> None:
        self._hold, self._container = hold, hold.request.container
        self._suffix = SUFFIXES[self._container]
        self._folder = (hold.request.images or environments.cache_folder(environ).parent) / FOLDER
        self._registry = Registry.from_environ(environ)

    # ------------------------------------------------------------ getting

    def prepare(self, image: Image, say: Say) -> Prepared:
        reference = pull_reference(image, container=self._container)
        try:
            return self._prepare(image, reference, say)
        except ImageUnavailable:
            raise
        except (InfrastructureError, RegistryTrouble, OSError) as error:
            text = f"{reference}: cannot be imported: {reason_of(error) if isinstance(error, OSError) else error}"
            if isinstance(error, RegistrySilent):
                raise NetworkTrouble(text, place=image.where) from error
            cause = "" if isinstance(error, RegistryTrouble) else str(error)
            raise unavailable(text, place=image.where, cause=cause) from error

    def _prepare(self, image: Image, reference: str, say: Say) -> Prepared:
        name, there = parse(reference), self._named(reference)
        digest = name.reference if DIGEST.fullmatch(name.reference) else self._digest(name, reference, there, say)
        if there is not None and there.digest == digest:
            return self._prepared(image, there)
        file = self._file(digest)
        self._folder.mkdir(parents=True, exist_ok=True)
        with locked(file, say=say, waiting=WAITING):
            record = _read(file)
            if record is None or not file.exists():
                self._hold.node(say)
                architecture = architecture_of(self._hold.facts)
                published = self._registry.facts(f"{name}@{digest}", architecture=architecture)
                if not file.exists():
                    self._import(name, digest, file, say)
                record = Record(
                    digest=digest, references=(), labels=published.labels, environment=published.environment
                )
            if reference not in record.references:
                record = replace(record, references=(*record.references, reference))
                new = _record_of(file).with_suffix(".new")
                new.write_bytes(RECORD.dump_json(record))
                new.replace(_record_of(file))
        return self._prepared(image, record)

    def _digest(self, name: RegistryName, reference: str, there: Record | None, say: Say) -> str:
        """Return the digest that the tag points to now; if the registry does not answer, the digest of the image
        `there`. Raises RegistryTrouble if there is none, and InfrastructureError if the tag does not exist."""
        say(f"asking the registry for {reference}")
        try:
            digest = self._registry.digest(reference)
        except RegistryTrouble:
            if there is None:
                raise
            return there.digest
        if digest is None:
            raise InfrastructureError(f"{name.host} has no tag {name.reference} of {name.repository}; check the name")
        return digest

    def _import(self, name: RegistryName, digest: str, file: Path, say: Say) -> None:
        """Import the image on the node, after removing the files of dead imports: the caller has the lock."""
        for left in _parts(file):
            left.unlink(missing_ok=True)
        own_name = owners.new_name()
        part = file.with_name(f".{file.stem}.{own_name}{file.suffix}")
        importing = import_command(self._container, name, digest, part)
        command = ["sh", "-c", IMPORT, "sh", str(part.parent), str(part), own_name, *importing]
        try:
            told = f"importing {name}@{digest[:19]}"
            output = printed_on_node(self._hold.node(say), *command, limit_s=PULL_S, beat=lambda: say(told))
            if output.strip() != f"{DONE}{part.stat().st_size}":  # srun also ends with 0 when its node is lost
                raise InfrastructureError(f"the node did not confirm that the file is complete: {output[-200:]!r}")
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)

    # ------------------------------------------------------------ finding

    def look(self, image: Image, say: Say) -> Prepared | None:
        with contextlib.suppress(ImageUnavailable):  # `prepare` reports it
            record = self._named(pull_reference(image, container=self._container))
            return None if record is None else self._prepared(image, record)
        return None

    def holds(self, prepared: Prepared) -> bool:
        return Path(prepared.reference).exists()

    def size_bytes(self, prepared: Prepared) -> int:
        try:
            return Path(prepared.reference).stat().st_size
        except OSError as error:
            text = f"{reason_of(error)}; is another run removing it?"
            raise InfrastructureError(text, place=prepared.image.where) from error

    def room(self) -> Room:
        return room_of(self._folder)

    @contextlib.contextmanager
    def in_use(self, prepared: Prepared) -> Iterator[None]:
        """Protect the image from removal during the block. Raises InfrastructureError if it has just been removed."""
        file = Path(prepared.reference)
        with contextlib.ExitStack() as protecting:
            with named_place(self._hold.place):
                protecting.enter_context(protected(file, what="image", is_there=file.exists))
            yield

    def _named(self, reference: str) -> Record | None:
        """Return the record of the image that was last imported under this name, or that has this digest; else None."""
        digest = parse(reference).reference
        if DIGEST.fullmatch(digest):
            file = self._file(digest)
            return _read(file) if file.exists() else None
        files = [file for file, record in self._records() if reference in record.references]
        return _read(max(files, key=lambda file: file.stat().st_mtime)) if files else None

    def _records(self) -> Iterator[tuple[Path, Record]]:
        for file in sorted(self._folder.glob(f"[!.]*{self._suffix}")):
            record = _read(file)
            if record is not None and file == self._file(record.digest):
                yield file, record

    def _file(self, digest: str) -> Path:
        return self._folder / f"{digest.removeprefix('sha256:')}{self._suffix}"

    def _prepared(self, image: Image, record: Record) -> Prepared:
        return Prepared(
            image=image, reference=str(self._file(record.digest)), digest=record.digest, labels=record.labels,
            environment=record.environment, has_entrypoint=True,
        )  # fmt: skip

    # ------------------------------------------------------------ removing

    def kept(self) -> tuple[Kept, ...]:
        found = []
        for file, record in self._records():
            with contextlib.suppress(FileNotFoundError):  # another run has removed it in the meantime
                layers = {record.digest: file.stat().st_size}
                found.append(Kept(reference=str(file), name=record.references[0], made=False, layers=layers))
        return tuple(found)

    def remove(self, kept: Kept, say: Say) -> bool:
        return self._remove(Path(kept.reference), say)

    def remove_images(self, say: Say) -> tuple[str, ...]:
        removed = super().remove_images(say)
        for part in self._folder.glob(f".*{self._suffix}"):
            self._remove(part.with_name(f"{part.name[1:].partition('.')[0]}{part.suffix}"), say)
        return removed

    def _remove(self, file: Path, say: Say) -> bool:
        """Remove an image file and what dead imports left, unless it is in use; return whether it is gone."""
        with removable(file, say=say) as is_free:
            if is_free:
                for path in (*_parts(file), file, _record_of(file)):
                    path.unlink(missing_ok=True)
        return is_free


def check_folder(request: NodeRequest, *, place: str) -> None:
    """Raise EngineUnreachable if the matrix's folder is missing: it may be on a file system that is not mounted."""
    if request.images is not None and not request.images.is_dir():
        raise EngineUnreachable(
            f"{place}.images: {request.images}: no such folder on this machine; make it, or mount its file system"
        )


def _parts(file: Path) -> list[Path]:
    return list(file.parent.glob(f".{file.stem}.*{file.suffix}"))


def _record_of(file: Path) -> Path:
    return file.with_name(f"{file.name}.json")


def _read(file: Path) -> Record | None:
    """Return the record of an image file; None if it is missing or cannot be read."""
    try:
        with _record_of(file).open("rb") as record:
            return RECORD.validate_json(record.read(MOST_RECORD_BYTES))
    except (OSError, ValueError):
        return None


# ---------------------------------------------------------------- images in a node's engine


PULL_S = 4 * 3600.0


class NodeImages(ImageStore):
    """An ImageStore that uses `docker` on the node that is held. Images that the harness pulled stay on the
    node until they are removed; a second name marks them as the harness's.
    """

    def __init__(self, hold: Hold) -> None:
        self._hold = hold
        self.api = NodeApi(self._printed)

    def prepare(self, image: Image, say: Say) -> Prepared:
        reference = pull_reference(image, container="docker")
        self._hold.node(say)
        try:
            entry = self._inspected(reference, say)
            if entry is None:
                before = our_images.entries(self.api, inner=True)
                pull = ("docker", "pull", "--quiet", reference)
                self._printed(*pull, limit_s=PULL_S, beat=lambda: say(f"pulling {reference}"))
                entry = self._inspected(reference, say)
                if entry is not None:
                    our_images.note_pull(self.api, entry, before=before)
        except InfrastructureError as error:
            raise unavailable(f"{reference}: cannot be pulled: {error}", place=image.where, cause=str(error)) from error
        if entry is None:
            raise ImageUnavailable(f"{reference}: was pulled, but has been removed again", place=image.where)
        return prepared_of(image, reference, entry, own=architecture_of(self._hold.facts))

    def look(self, image: Image, say: Say) -> Prepared | None:
        if self._hold.allocation is None:  # a look is not worth requesting a node
            return None
        try:
            reference = pull_reference(image, container="docker")
            entry = self._inspected(reference, say)
        except ImageUnavailable:  # `prepare` reports it
            return None
        own = architecture_of(self._hold.facts)
        return None if entry is None else prepared_of(image, reference, entry, own=own)

    def holds(self, prepared: Prepared) -> bool:
        return self._inspected(prepared.reference, unheard) is not None

    def size_bytes(self, prepared: Prepared) -> int:
        entry = self._inspected(prepared.reference, unheard)
        if entry is None:
            raise InfrastructureError(f"{prepared.reference}: was removed from the node", place=prepared.image.where)
        return int(entry["Size"])

    def kept(self) -> tuple[Kept, ...]:
        """Return the harness's images with their whole sizes: the engine's command does not report shared layers."""
        return our_images.kept(self.api, None)

    def remove(self, kept: Kept, say: Say) -> bool:
        return our_images.remove(self.api, kept.reference, say=say)

    def room(self) -> Room | None:
        return None

    def _inspected(self, reference: str, say: Say) -> dict[str, Any] | None:
        """Return the engine's record of an image; None if it does not have it. Raises InfrastructureError."""
        script = 'docker image inspect "$0" 2>/dev/null || { docker version >/dev/null && echo "[]"; }'
        answer = self._printed("sh", "-c", script, reference, beat=lambda: say("looking for it"))
        try:
            entries, _ = json.JSONDecoder().raw_decode(answer.lstrip())  # a failed inspect prints an empty list too
            return dict(entries[0]) if entries else None
        except (ValueError, TypeError, IndexError) as error:
            raise InfrastructureError(f"docker answered {answer[-200:]!r}", place=self._hold.place) from error

    def _printed(self, *command: str, limit_s: float = ANSWER_S, beat: Beat = silent) -> str:
        return printed_on_node(self._hold.node(unheard), *command, limit_s=limit_s, beat=beat)


def pull_reference(image: Image, *, container: str) -> str:
    """Return the name of an image in its registry. Raises ImageUnavailable if the image is built or installed."""
    match image.source:
        case Pull(reference=reference):
            return reference
        case Install(base=reference, packages=()):
            return reference
    raise ImageUnavailable(
        f"on a Slurm host with container: {container}, images must come from a registry: build it elsewhere and push"
        " it, or use container: none for `install`",
        place=image.place,
    )


LIST = (
    "ids=$(docker image ls --quiet --no-trunc $0 | sort -u) || exit 1;"
    ' [ -z "$ids" ] && echo "[]" || docker image inspect $ids'
)


class NodeApi:
    """The part of the Docker SDK's low-level client that `our_images` needs. `run` runs a command on the node and
    returns its output. All methods raise InfrastructureError.
    """

    def __init__(self, run: Callable[..., str]) -> None:
        self._run = run

    def images(self, *, all: bool = False) -> list[EngineImage]:  # noqa: A002 - as the Docker SDK has it
        """Return the engine's images; if `all` is true, also the unnamed images that others are based on."""
        answer = self._run("sh", "-c", LIST, "--all" if all else "")
        try:
            records = json.loads(answer)
        except ValueError as error:
            raise InfrastructureError(f"docker answered {answer[-200:]!r}") from error
        return [
            {"Id": str(record["Id"]), "RepoTags": record.get("RepoTags") or [], "Size": int(record.get("Size") or 0),
             "RepoDigests": record.get("RepoDigests") or [], "Labels": (record.get("Config") or {}).get("Labels") or {}}
            for record in records
        ]  # fmt: skip

    def tag(self, image: str, repository: str, tag: str) -> None:
        """Give an image a name."""
        self._run("docker", "tag", image, f"{repository}:{tag}")

    def containers(self, *, all: bool, filters: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:  # noqa: A002
        """Return the names of the containers that match the filters, as the SDK returns them."""
        chosen = [word for name, value in filters.items() for word in ("--filter", f"{name}={value}")]
        some = ["--all"] if all else []
        listed = self._run("docker", "ps", *some, *chosen, "--format", "{{.Names}}")
        return [{"Names": [f"/{name}"]} for name in listed.split()]

    def remove_image(self, name: str) -> None:
        """Remove a name of an image; removing the last name removes the image."""
        self._run("docker", "rmi", name)
