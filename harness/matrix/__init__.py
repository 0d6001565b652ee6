"""Reads matrix.yaml into a Matrix: what to run, where, and with which limits. Every error names file, line and key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from harness import masking, model
from harness.matrix.context import Context
from harness.matrix.read_hosts import names_of, read_hosts
from harness.matrix.read_scenarios import read_exclude, read_include, read_scenarios
from harness.matrix.read_series import SeriesReader
from harness.matrix.read_yaml import read_yaml
from harness.matrix.servers import check_ports
from harness.matrix.shape import MatrixFile, check_shape
from harness.model.forms import LETTERS
from harness.package_index import PackageIndex
from harness.registry.registry_client import Registry, Tags


def load_matrix(
    path: Path, *, environ: Mapping[str, str], index: PackageIndex | None = None, tags: Tags | None = None
) -> model.Matrix:
    """Read and check a matrix file, the scripts and folders it names, and its versions.

    `environ` fills in ${VARIABLES} and names the package index and Docker's logins, unless `index` and `tags` are
    given. Raises MatrixError with one line per problem, in order of line, and RegistryTrouble if a registry does not
    answer a query for tags.
    """
    file, context = _open(path, environ)
    reader = SeriesReader(
        context=context,
        index=index or PackageIndex.from_environ(environ),
        tags=tags or Registry.from_environ(environ).tags,
    )
    series, hosts = reader.read(file), read_hosts(file.hosts, context)
    scenarios, scripts = read_scenarios(file, context, hosts=names_of(file.hosts), environ=environ)
    check_ports(scenarios, hosts, context)
    matrix = model.Matrix(
        name=_name(file, context),
        path=Path(context.file),
        series=series,
        hosts=hosts,
        scenarios=scenarios,
        include=read_include(file, scenarios, scripts, context),
        exclude=read_exclude(file, series, hosts, scenarios, context),
        trials=file.trials,
        stop=file.stop,
    )
    _learn(matrix)
    context.raise_if_any()
    return matrix


def _learn(matrix: model.Matrix) -> None:
    """Note the credentials in a matrix file, so that no file and no output contains them."""
    for scenario in matrix.scenarios:
        for words in (scenario.args, scenario.launcher, scenario.command, scenario.serve, scenario.generator):
            masking.learn_words(words)
        masking.learn_variables(scenario.environment)
        masking.learn(value for _, value in scenario.secrets)
    for image in (image for series in matrix.series for image in series.images):
        masking.learn_variables(image.environment)
        if isinstance(image.source, model.Build):
            masking.learn_variables(image.source.args)
        elif isinstance(image.source, model.Install):
            masking.learn_words(image.source.packages)
    masking.learn_words(str(host.engine) for host in matrix.hosts)


def load_hosts(path: Path, *, environ: Mapping[str, str]) -> tuple[str, tuple[model.Host, ...]]:
    """Return a matrix's name and hosts only, without querying an index or a registry. Raises MatrixError."""
    file, context = _open(path, environ)
    hosts = read_hosts(file.hosts, context)
    context.raise_if_any()
    return _name(file, context), hosts


def _open(path: Path, environ: Mapping[str, str]) -> tuple[MatrixFile, Context]:
    context = read_yaml(path, environ=environ)
    return check_shape(context), context


def _name(file: MatrixFile, context: Context) -> str:
    """Return the matrix's name, changed so that it is valid for a folder on every system."""
    name = file.name or Path(context.file).stem
    return re.sub(rf"[^{LETTERS}._-]+", "-", name)[:64].strip(".-") or "matrix"
