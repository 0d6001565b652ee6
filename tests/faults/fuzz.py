"""Random damaged and hostile input: is every error one line, within two seconds of processor time and 200 MB?

    matrix    the example matrix files, for `harness sweep --dry-run`
    run       plan.json, result.json and the trial files of a run, for `harness issue`, `repro` and `diff`
    runs      a folder of two runs and its index, for `harness runs`, `history`, `report`, `diff`, `compare`, `issue`
              and `repro`; also with a link, a pipe, a folder, or a file beyond each limit in place of a file
    messages  the messages of an agent
    traces    CSV files with odd numbers or damage, for `harness judge`
    index     the package index's pages
    registry  an image registry's lists of tags, manifests, configurations and tokens, and their headers

A structure-aware change replaces, removes or doubles a value of the parsed file; a raw change flips, cuts or inserts
bytes. Each failure is printed with the seed that reproduces it. An index on this machine answers for the real one. One
in ten bug reports draws its charts, which takes most of the time of an input.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import os
import random
import re
import resource
import shutil
import sqlite3
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import yaml
from click.testing import CliRunner
from packaging.specifiers import SpecifierSet

from harness.cli import cli
from harness.errors import HarnessError
from harness.exit_codes import OUR_BUG
from harness.package_index import PackageIndex, in_range
from harness.registry.authorization import Access
from harness.registry.bounded_http import Exchange
from harness.registry.registry_client import INDEX_TYPES, MANIFEST_TYPES, Registry
from harness.report.issue import bug_report
from tests.players import stored_run
from tests.players.conversation import DONE, HELLO, Player, counts, held, lines, samples
from tests.players.servers import Reply, Request, Server, answering, started, told

EXAMPLES = Path(__file__).parents[2] / "examples"
MOST_S = 2.0
"""Most processor seconds for one input; other work on the machine does not count."""
MOST_WAIT_S = 60.0
"""Most wall seconds for one input, without the time in which all processors were busy with other work."""
DRAWN = 0.1
"""Share of the bug reports that draw their charts."""
JSON_PAGE = "application/vnd.pypi.simple.v1+json"
NASTY: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2**31, 2**63, 10**400, 1e308, -0.5, float("inf"), float("nan")),
    *("", " ", "0", "-", "~", "x" * 5000, "\x1b[31m", "{version}", "${HARNESS_BASE}", "../../etc/passwd", "/dev/zero"),
    *("\N{FULLWIDTH EQUALS SIGN}1", "\ud800", "\N{LATIN SMALL LETTER E WITH ACUTE}"),
    *([], {}, [[]], [None], {"": None}, {"a": {"a": {"a": {}}}}, [1] * 3000),
)
Case = Callable[[random.Random], None]
"""Makes one damaged input and passes it to the harness. What it raises is a failure."""


class Wrong(Exception):
    """A command failed in a way that a user cannot understand."""


# ---------------------------------------------------------------- damage


def damaged(value: Any, rng: random.Random) -> Any:
    """Return a copy of JSON-like data with one to three values replaced, removed or doubled."""
    made = copy.deepcopy(value)
    for _ in range(rng.randint(1, 3)):
        places = list(_places(made))
        if not places:
            return copy.deepcopy(rng.choice(NASTY))
        holder, key = rng.choice(places)
        act = rng.random()
        if act < 0.6:
            holder[key] = copy.deepcopy(rng.choice(NASTY))
        elif act < 0.8:
            del holder[key]
        elif isinstance(holder, list):
            holder.insert(rng.randint(0, len(holder)), copy.deepcopy(holder[key]))
        else:
            holder[rng.choice(("unknown", str(key).upper(), f"{key} "))] = copy.deepcopy(holder[key])
    return made


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (container, key) of every nested value."""
    held = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in held:
        yield value, key
        yield from _places(inner)


def raw(data: bytes, rng: random.Random) -> bytes:
    """Return bytes with some flipped, cut out, doubled or inserted."""
    made = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(made) + 1)
        act = rng.random()
        if act < 0.4 and at < len(made):
            made[at] = rng.randrange(256)
        elif act < 0.6:
            del made[at : at + rng.randint(1, 200)]
        elif act < 0.8:
            made[at:at] = made[at : at + rng.randint(1, 400)]
        else:
            made[at:at] = rng.choice(
                (b"\0", b"\xff\xfe", b"\n\n", b"{", b"[" * 500, b"9" * 400, b"1e999", b"\r", b"&a *a")
            )
    return bytes(made)


def encoded(value: Any, rng: random.Random) -> bytes:
    text = json.dumps(value).encode("utf-8", "surrogatepass")
    return raw(text, rng) if rng.random() < 0.2 else text


ODD = ("0", "-1", "7", "1e308", "-1e308", "1e99", "-1e99", "5e-324", "inf", "nan", "", "1e400", "x")
NAMES = ("step", "rss_kib", "step_s", "heap_kib", "blocks", "own", "", "\x1b[2J", "gpu_kib", "GPU [MiB]")


def odd_numbers(rng: random.Random) -> bytes:
    """Return a trace with any columns and any numbers."""
    names, odd = rng.sample(NAMES, rng.randint(1, 4)), rng.choices(ODD, k=rng.randint(1, 8))
    rows = [
        ",".join(str(row) if name == "step" else odd[(row * 7 + place) % len(odd)] for place, name in enumerate(names))
        for row in range(rng.choice((1, 63, 64, 200)))
    ]
    return "\n".join([",".join(names), *rows]).encode()


def called(*arguments: str) -> None:
    """Call a command. Raises Wrong, or the command's own exception, if the command ends with a traceback or acts on the
    terminal.
    """
    done = CliRunner().invoke(cli, arguments)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    if done.exit_code == OUR_BUG or "Traceback" in done.output:
        raise Wrong(done.output.strip().splitlines()[-1])
    if not all(line.isprintable() for line in done.stderr.splitlines()):
        raise Wrong(ascii(done.stderr))


# ---------------------------------------------------------------- what is damaged


@contextlib.contextmanager
def matrix() -> Iterator[Case]:
    texts = [path.read_bytes() for path in sorted(EXAMPLES.glob("*.yaml"))]
    parsed = {text: yaml.safe_load(text) for text in texts}
    versions = {version for text in texts for version in re.findall(r'"(\d+\.[\d.]+\d)"', text.decode())}

    def answer(request: Request) -> Reply:
        """Return the page of a package: for any name, it has all versions that the examples name."""
        package = request.path.split("/")[-2]
        files = [{"filename": f"{package}-{version}.tar.gz"} for version in sorted(versions)]
        return told({"files": files}, kind=JSON_PAGE)

    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fuzz-")))
        address = stack.enter_context(answering(answer))
        index = {"UV_DEFAULT_INDEX": f"http://{address}/simple", "PIP_FIND_LINKS": ""}
        stack.enter_context(mock.patch.dict("os.environ", index))
        shutil.copytree(EXAMPLES / "scenarios", folder / "scenarios")
        scripts = {path: path.read_bytes() for path in (folder / "scenarios").glob("*.py")}

        def case(rng: random.Random) -> None:
            text, script = rng.choice(texts), rng.choice(sorted(scripts))
            script.write_bytes(raw(scripts[script], rng) if rng.random() < 0.1 else scripts[script])
            if rng.random() < 0.7:
                text = yaml.safe_dump(damaged(parsed[text], rng), allow_unicode=True).encode("utf-8", "replace")
            else:
                text = raw(text, rng)
            (folder / "matrix.yaml").write_bytes(text)
            called("sweep", "--dry-run", str(folder / "matrix.yaml"))

        yield case


@contextlib.contextmanager
def run() -> Iterator[Case]:
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        folder = Path(name)
        path = stored_run.write(folder)
        files = [file for file in path.rglob("*.json") if "inputs" not in file.parts and file.name != "summary.json"]
        not_drawn = mock.patch.multiple(bug_report, png=lambda _: b"", svg=lambda _: "")

        def case(rng: random.Random) -> None:
            file = rng.choice(files)
            good = file.read_bytes()
            try:
                file.write_bytes(raw(good, rng) if rng.random() < 0.3 else encoded(damaged(json.loads(good), rng), rng))
                arguments = rng.choice((("issue", str(path), "1"), ("repro", str(path), "1"), ("judge", str(file))))
                drawn = arguments[0] != "issue" or rng.random() < DRAWN
                with contextlib.nullcontext() if drawn else not_drawn:
                    called(*arguments)
            finally:
                file.write_bytes(good)
                shutil.rmtree(path / "issue-1", ignore_errors=True)

        yield case


BEYOND_BYTES = 200 << 20
"""More than is read of any file of a run."""


def odd_place(path: Path, rng: random.Random) -> None:
    """Put something in place of a file that is none, is endless, or is larger than what may be read."""
    path.unlink()
    act = rng.randrange(5)
    if act == 0:
        path.symlink_to("/dev/zero")
    elif act == 1:
        os.mkfifo(path)
    elif act == 2:
        path.mkdir()
    elif act == 3:
        path.symlink_to(path.name)
    else:
        with path.open("wb") as file:
            file.truncate(BEYOND_BYTES)  # takes no space


def damaged_index(path: Path, rng: random.Random) -> None:
    """Set, remove or double values of the index, or damage its bytes."""
    if rng.random() < 0.4:
        path.write_bytes(raw(path.read_bytes(), rng))
        return
    with contextlib.closing(sqlite3.connect(path)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        table = rng.choice(tables)
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info('{table}')")]
        nasty = rng.choice([one for one in NASTY if isinstance(one, (str, bytes, float, type(None)))])
        act = rng.choice(
            (f'UPDATE OR IGNORE "{table}" SET "{rng.choice(columns)}" = ?', f'DELETE FROM "{table}"',
             f'DROP TABLE "{table}"', f"PRAGMA user_version = {rng.choice((0, -1, 99))}")
        )  # fmt: skip
        told = nasty.encode("utf-8", "replace").decode() if isinstance(nasty, str) else nasty
        with contextlib.suppress(sqlite3.Error):  # a constraint
            connection.execute(act, (told,) if "?" in act else ())
        connection.commit()


@contextlib.contextmanager
def runs() -> Iterator[Case]:
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        folder, work = Path(name), Path(name) / "work"
        run = stored_run.write(folder)
        reports = run.parents[1]
        shutil.copytree(run, run.with_name("20250302T120000Z-1a2c"))
        called("runs", "--in", str(reports))
        kept = {path.relative_to(reports) for path in reports.rglob("*") if path.suffix in (".json", ".sqlite")}
        files = sorted(path for path in kept if path.name != "summary.json" and "inputs" not in path.parts)
        index = next(path for path in files if path.suffix == ".sqlite")
        one, other = (str(work / "quickstart" / path.name) for path in sorted(run.parent.glob("2*")))
        of_runs = (
            ("runs",), ("runs", "--json"), ("runs", "--csv"), ("runs", "--rebuild"), ("history",),
            ("history", "--days"),
            ("history", "--json"), ("history", "--rebuild"), ("runs", "--verdict", "regression"),
        )  # fmt: skip
        of_one = (
            *(("report", one, "--format", kind) for kind in ("terminal", "md", "json", "junit", "csv")),
            ("diff", one, "1"), ("diff", one, "1", "--json"), ("issue", one, "1", "--folder", str(folder / "issue")),
            ("repro", one, "1"), ("compare", one, other), ("report", one, "--wide"),
        )  # fmt: skip

        def case(rng: random.Random) -> None:
            shutil.rmtree(work, ignore_errors=True)
            shutil.rmtree(folder / "issue", ignore_errors=True)
            shutil.copytree(reports, work, symlinks=True)
            act, file = rng.random(), work / rng.choice(files)
            if act < 0.3:
                file = work / index
                damaged_index(file, rng)
            elif act < 0.45:
                odd_place(file, rng)
            elif file.suffix == ".json":
                good = file.read_bytes()
                file.write_bytes(raw(good, rng) if rng.random() < 0.3 else encoded(damaged(json.loads(good), rng), rng))
            asked = rng.choice(of_runs if file == work / index or rng.random() < 0.4 else of_one)
            with mock.patch.multiple(bug_report, png=lambda _: b"", svg=lambda _: ""):
                called(*asked, *(("--in", str(work)) if asked in of_runs else ()))

        yield case


@contextlib.contextmanager
def messages() -> Iterator[Case]:
    steps = [float(step) for step in range(1, 41)]
    said = [
        HELLO,
        samples(*steps, rss_kib=[1000.0 + step for step in steps], step_s=[0.01] * 40),
        counts(10, 20, 40, open_files=[3.0, 3.0, 4.0]),
        {"type": "look", "step": 10, "rss_kib": 5.0},
        DONE,
    ]

    def case(rng: random.Random) -> None:
        damage = [damaged(one, rng) if rng.random() < 0.4 else one for one in said]
        data = lines(*(one for one in damage if isinstance(one, dict)))
        held(Player([raw(data, rng) if rng.random() < 0.3 else data]))

    yield case


@contextlib.contextmanager
def traces() -> Iterator[Case]:
    rows = "".join(f"{step},{1000 + step},{0.01}\n" for step in range(1, 400))
    history = "".join(f"1.{version},{turn},{version + 9}\n" for version in range(6) for turn in (1, 2, 3))
    good = {
        "trace.csv": f"step,rss_kib,step_s\n{rows}".encode(),
        "history.csv": f"version,round,value\n{history}".encode(),
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:

        def case(rng: random.Random) -> None:
            kind = rng.choice(list(good))
            path = Path(name) / kind
            is_odd = kind == "trace.csv" and rng.random() < 0.5
            path.write_bytes(odd_numbers(rng) if is_odd else raw(good[kind], rng))
            called("judge", *(["--history"] if kind == "history.csv" else []), str(path))

        yield case


@contextlib.contextmanager
def index() -> Iterator[Case]:
    files = [
        {"filename": f"pkg-1.{number}-py3-none-any.whl", "requires-python": ">=3.8", "yanked": False, "hashes": {}}
        for number in range(5)
    ]
    page = {"meta": {"api-version": "1.1"}, "name": "pkg", "files": files, "versions": ["1.0", "1.1"]}
    html = b"".join(
        b'<a href="pkg-1.%d.tar.gz" data-requires-python="&gt;=3">pkg</a>\n' % number for number in range(5)
    )

    said: list[Reply] = []

    def case(rng: random.Random) -> None:
        is_json = rng.random() < 0.7
        body = encoded(damaged(page, rng), rng) if is_json else raw(html, rng)
        said.append(told(body, kind=JSON_PAGE if is_json else "text/html"))
        in_range(PackageIndex([f"http://{address}/simple"]).releases("pkg"), SpecifierSet(">=1.0"), python="3.11")

    with answering(lambda _: said[-1]) as address:
        yield case


@contextlib.contextmanager
def registry() -> Iterator[Case]:
    config = {"architecture": "amd64", "config": {"Env": ["PATH=/bin", "A=1"], "Labels": {"version": "1.0"}}}
    challenge = 'Bearer realm="http://{host}/token",service="{host}",scope="repository:team/app:pull"'
    link = '</v2/team/app/tags/list?n=1000&last=1.1>; rel="next"'

    def replies(rng: random.Random) -> Mapping[str, Reply]:
        """Return the replies by the part of the path that selects them; digests in them match the damaged replies."""

        def document(value: Any, kind: str = "application/json", **headers: str) -> Reply:
            data = encoded(damaged(value, rng), rng) if rng.random() < 0.4 else json.dumps(value).encode()
            told = {"Content-Type": kind, **headers}
            return Reply(headers={name: header(text) for name, text in told.items()}, body=data)

        def header(text: str) -> str:
            data = raw(text.encode(), rng) if rng.random() < 0.2 else text.encode()
            return data.decode("latin-1").replace("\r", "").replace("\n", "")

        settings = document(config)
        layers = [{"digest": digest(b"%d" % number), "size": number} for number in range(3)]
        held = {"config": {"digest": digest(settings.body), "size": len(settings.body)}, "layers": layers}
        manifest = document(held, rng.choice(MANIFEST_TYPES))
        sent = digest(manifest.body)
        entry = {"digest": sent, "platform": {"os": "linux", "architecture": "amd64"}}
        images = document({"manifests": [entry]}, rng.choice(INDEX_TYPES), **{"Docker-Content-Digest": sent})
        refused = Reply(status=401, headers={"WWW-Authenticate": header(challenge.format(host=server.host))})
        return {
            "/token": document({"token": "t", "expires_in": 60}),
            "last=": document({"tags": ["1.2"]}),
            "/tags/list": document({"name": "team/app", "tags": ["1.0", "1.1"]}, Link=link),
            "/manifests/one": images,
            "/manifests/": manifest,
            "/blobs/": settings,
            "/v2/": refused if rng.random() < 0.3 else Reply(),
        }

    def case(rng: random.Random) -> None:
        by_part = replies(rng)

        def answer(request: Request) -> Reply:
            wants_login = by_part["/v2/"].status == 401 and "Authorization" not in request.headers
            if wants_login and not request.path.startswith("/token"):
                return by_part["/v2/"]
            return next((reply for part, reply in by_part.items() if part in request.path), Reply(status=404))

        server.answer = answer
        server.asked.clear()
        exchange = Exchange(pause=lambda _: None, socket_s=5.0, answer_s=10.0, attempts=1)
        with tempfile.TemporaryDirectory(prefix="fuzz-") as home:
            access = Access(exchange=exchange, environ={"HOME": home}, certificates=Path(home))
            asked = Registry(exchange=exchange, access=access)
            for question in (asked.tags, asked.digest, asked.facts):
                with contextlib.suppress(HarnessError):
                    question(f"{server.host}/team/app:one")

    with contextlib.contextmanager(started)(Server()) as server:
        yield case


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


CASES: Mapping[str, Callable[[], contextlib.AbstractContextManager[Case]]] = {
    "matrix": matrix,
    "run": run,
    "runs": runs,
    "messages": messages,
    "traces": traces,
    "index": index,
    "registry": registry,
}


# ---------------------------------------------------------------- the campaign


def campaign(name: str, case: Case, *, times: int, seed: int = 1) -> int:
    """Run the cases of one kind, print the failures, and return their number."""
    wrong, slowest_s = 0, 0.0
    before_kib = peak_kib()
    for number in range(seed, seed + times):
        began_s, before_s = time.perf_counter() - queued_s(), time.process_time()
        try:
            case(random.Random(number))
        except HarnessError as error:
            if not all(line.isprintable() for line in str(error).splitlines()):
                wrong += 1
                print(f"{name} --seed {number}: acts on the terminal: {str(error)!a}", flush=True)
        except Exception:  # noqa: BLE001 - any exception is what we look for
            wrong += 1
            where = traceback.format_exc().strip().splitlines()
            print(f"{name} --seed {number}: {where[-1]} | {where[-3].strip() if len(where) > 2 else ''}", flush=True)
        took_s, worked_s = time.perf_counter() - queued_s() - began_s, time.process_time() - before_s
        slowest_s = max(slowest_s, worked_s)
        if worked_s > MOST_S or took_s > MOST_WAIT_S:
            wrong += 1
            print(f"{name} --seed {number}: took {took_s:.1f} s, {worked_s:.1f} s of it working", flush=True)
    grown_kib = peak_kib() - before_kib
    print(
        f"{name:9}{times:7} inputs: {wrong} failures, slowest {slowest_s:.2f} s of processor time, "
        f"peak + {grown_kib >> 10} MB",
        flush=True,
    )
    return wrong


def queued_s() -> float:
    """Return the seconds that our threads have waited for a processor."""
    waited_ns = 0
    for path in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # the thread has ended
            waited_ns += int(path.read_text().split()[1])
    return waited_ns / 1e9


def peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
