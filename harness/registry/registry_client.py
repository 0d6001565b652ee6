"""Asks registries for tags, digests and image configurations, and returns them as records."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, TypeVar
from urllib.parse import urljoin, urlsplit

import requests
from pydantic import AliasPath, BaseModel, Field, ValidationError

from harness.registry.authorization import Access
from harness.registry.bounded_http import Exchange, Pause, RegistryDenied, RegistryTrouble, Response, host_of
from harness.registry.image_references import DIGEST, TAG, RegistryName, parse

PAGE_TAGS = 1000
MOST_TAGS = 100_000
MOST_PAGES = 1000
"""Most pages of a list of tags. Some registries send 100 tags a page; a list with one a page would not end."""
INDEX_TYPES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
MANIFEST_TYPES = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
ACCEPT = ", ".join((*INDEX_TYPES, *MANIFEST_TYPES))

Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]


class TagPage(BaseModel):
    """One page of `/tags/list`; some registries write null for "none"."""

    tags: list[str] | None


class Descriptor(BaseModel):
    digest: Digest
    size: Annotated[int, Field(ge=0, lt=1 << 53)]


class Manifest(BaseModel):
    config: Descriptor
    layers: list[Descriptor]


class IndexEntry(BaseModel):
    digest: Digest
    os: str = Field(default="", validation_alias=AliasPath("platform", "os"))
    architecture: str = Field(default="", validation_alias=AliasPath("platform", "architecture"))


class ImageIndex(BaseModel):
    manifests: list[IndexEntry]


class Config(BaseModel):
    environment: list[str] | None = Field(default=None, validation_alias=AliasPath("config", "Env"))
    labels: dict[str, str] | None = Field(default=None, validation_alias=AliasPath("config", "Labels"))


T = TypeVar("T", bound=BaseModel)


Tags = Callable[[str], tuple[str, ...]]
"""Returns all tags of a repository, in the registry's order. Raises RegistryTrouble if the list is incomplete."""


@dataclass(frozen=True, kw_only=True)
class PublishedImage:
    """The labels, the environment and the layers of an image, with its configuration: compressed bytes by digest."""

    labels: Mapping[str, str]
    environment: Mapping[str, str]
    layers: Mapping[str, int]


class Registry:
    """Client of any number of registries; each call names an image by its reference. Keeps tokens in memory."""

    def __init__(self, *, exchange: Exchange, access: Access) -> None:
        self._exchange = exchange
        self._access = access

    @classmethod
    def from_environ(cls, environ: Mapping[str, str], *, pause: Pause = time.sleep) -> Registry:
        """Return a client that uses Docker's own logins. `pause` waits, and may raise Interrupted."""
        exchange = Exchange(pause=pause)
        return cls(exchange=exchange, access=Access(exchange=exchange, environ=environ))

    @property
    def requests(self) -> int:
        """Return the number of requests so far."""
        return self._exchange.requests

    def tags(self, repository: str) -> tuple[str, ...]:
        """Return all tags, as `Tags` describes, except malformed ones, which could not be pulled."""
        name = parse(repository)
        url = self._access.url(name, f"tags/list?n={PAGE_TAGS}")
        found: dict[str, None] = {}
        for _ in range(MOST_PAGES):
            answer = self._ask(name, url, what="repository")
            before = len(found)
            found.update((tag, None) for tag in _read(TagPage, answer, name, what="a list of tags").tags or ())
            following = _next_page(answer, url)
            if following is None:
                return tuple(tag for tag in found if TAG.fullmatch(tag))
            if len(found) == before or len(found) > MOST_TAGS:
                break
            url = following
        raise RegistryTrouble(f"{name.host}: the list of tags of {name.repository} does not end; none of it is used")

    def digest(self, reference: str) -> str | None:
        """Return a tag's digest, as `docker pull` resolves it; None if there is no such tag. Raises RegistryTrouble."""
        name = parse(reference)
        url = self._access.url(name, f"manifests/{name.reference}")
        answer = self._access.ask(name, url, method="HEAD", accept=ACCEPT)
        if answer.status == 404:
            return None
        _check(answer, name, what=f"tag {name.reference}")
        said = answer.headers.get("Docker-Content-Digest", "")
        return said if DIGEST.fullmatch(said) else _hash(self._ask(name, url, what=f"tag {name.reference}").body)

    def facts(self, reference: str, *, architecture: str = "amd64") -> PublishedImage:
        """Return the facts of an image; of an index, those of its Linux image for `architecture`. Raises
        RegistryTrouble."""
        name = parse(reference)
        answer = self._manifest(name)
        if answer.headers.get("Content-Type", "").partition(";")[0].strip() in INDEX_TYPES:
            index = _read(ImageIndex, answer, name, what="an index of images")
            wanted = ("linux", architecture)
            digests = [entry.digest for entry in index.manifests if (entry.os, entry.architecture) == wanted]
            if not digests:
                raise RegistryDenied(
                    f"{name.host}: {name.repository} {name.reference} has no image for linux/{architecture}"
                )
            answer = self._manifest(replace(name, reference=digests[0]))
        manifest = _read(Manifest, answer, name, what="a manifest in a current format")
        digest = manifest.config.digest
        answer = self._ask(name, self._access.url(name, f"blobs/{digest}"), what="configuration")
        config = _read(Config, answer, name, what="an image's configuration", digest=digest)
        return PublishedImage(
            labels=config.labels or {},
            environment=dict(item.partition("=")[::2] for item in config.environment or ()),
            layers={layer.digest: layer.size for layer in (manifest.config, *manifest.layers)},
        )

    def _manifest(self, name: RegistryName) -> Response:
        answer = self._ask(name, self._access.url(name, f"manifests/{name.reference}"), what=f"image {name.reference}")
        if DIGEST.fullmatch(name.reference) and _hash(answer.body) != name.reference:
            raise _other_content(name)
        return answer

    def _ask(self, name: RegistryName, url: str, *, what: str) -> Response:
        answer = self._access.ask(name, url, accept=ACCEPT)
        _check(answer, name, what=what)
        return answer


def _check(answer: Response, name: RegistryName, *, what: str) -> None:
    """Raise RegistryTrouble unless the status is 200 (RegistryDenied for 404)."""
    if answer.status == 404:
        raise RegistryDenied(f"{name.host}: has no {what} of {name.repository}; check the name")
    if answer.status != 200:
        raise RegistryTrouble(
            f"{name.host}: answers with HTTP {answer.status} for {name.repository}; is it a registry?"
        )


def _read(model: type[T], answer: Response, name: RegistryName, *, what: str, digest: str | None = None) -> T:
    if digest is not None and _hash(answer.body) != digest:
        raise _other_content(name)
    try:
        return model.model_validate_json(answer.body)
    except ValidationError:
        raise RegistryTrouble(
            f"{name.host}: does not send {what} for {name.repository}; is it a registry, or did a proxy answer?"
        ) from None


def _other_content(name: RegistryName) -> RegistryTrouble:
    return RegistryTrouble(f"{name.host}: sends content that does not match its digest for {name.repository}; not used")


def _hash(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def _next_page(answer: Response, url: str) -> str | None:
    """Return the next page's URL from the `Link` header, None on the last page. Only the path and the query of `Link`
    are used, so that our token goes to no other host.
    """
    links = requests.utils.parse_header_links(answer.headers.get("Link", ""))
    following = next((link["url"] for link in links if link.get("rel") == "next"), None)
    if following is None:
        return None
    try:
        target = urlsplit(urljoin(url, following))
    except ValueError:
        raise RegistryTrouble(
            f"{host_of(url)}: the next page of its list has no valid address; none of it is used"
        ) from None
    return urlsplit(url)._replace(path=target.path, query=target.query).geturl()
