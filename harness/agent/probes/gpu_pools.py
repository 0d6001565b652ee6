"""Reads the GPU memory of a framework's own allocator: in use, kept (reserved) for later, and the peak in use.

A framework is queried only if the scenario has imported it and a GPU is already in use. Importing a framework, or
querying it too early, could start CUDA in a scenario that does not use it, or take most of the GPU's memory. If a
framework raises any exception, the numbers are None: a probe never fails the run.
"""

import os
import re

from .processes import listed, target

DEVICE_FILE = re.compile(r"^/dev/nvidia\d+$")
NAN = float("nan")
NOTHING = (None, None, None)
FIELDS = ("gpu_pool_kib", "gpu_reserved_kib", "gpu_pool_peak_kib")


def cuda_in_use(folder="/proc/self/fd"):
    """Return whether this process has opened a GPU, as CUDA does when it starts."""
    return any(DEVICE_FILE.match(target(os.path.join(folder, name))) for name in listed(folder))


class Pools(object):
    """The allocators of the frameworks in `modules`; `in_use` returns whether the process uses a GPU at all."""

    def __init__(self, modules, in_use):
        self._modules = modules
        self._in_use = in_use
        self._cheap = (_torch, _tensorflow2, _jax)
        self._readers = (*self._cheap, Tensorflow1())

    def look(self):
        """Return the fields of a look, summed over frameworks and devices; unknown ones are missing."""
        rows = [self._ask(reader) for reader in self._readers] if self._in_use() else []
        sums = {name: _sum_known([row[place] for row in rows]) for place, name in enumerate(FIELDS)}
        return {name: size / 1024.0 for name, size in sums.items() if size is not None}

    def step_reader(self):
        """Return a function that returns the KiB in use, NaN if unknown, and is fast enough to be called between steps;
        None if no framework with such a query uses a GPU."""
        if self._in_use():
            for reader in self._cheap:
                if self._ask(reader)[0] is not None:
                    return lambda: self._used_kib(reader)
        return None

    def _used_kib(self, reader):
        used = self._ask(reader)[0]
        return NAN if used is None else used / 1024.0

    def _ask(self, reader):
        try:
            return reader(self._modules)
        except Exception:  # another version of the API, or a CUDA error, which the next step will raise again
            return NOTHING


def _sum_known(numbers):
    """Return the sum without the numbers that are None; None if all are."""
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


# ---------------------------------------------------------------- frameworks: bytes in use, reserved, at the peak


def _torch(modules):
    cuda = modules["torch"].cuda if "torch" in modules else None
    if cuda is None or not cuda.is_initialized():
        return NOTHING
    reserved = getattr(cuda, "memory_reserved", None) or cuda.memory_cached  # its name before 1.4
    devices = range(cuda.device_count())
    queries = (cuda.memory_allocated, reserved, cuda.max_memory_allocated)
    return tuple(sum(query(device) for device in devices) for query in queries)


def _tensorflow2(modules):
    """Query the runtime only if it has started, because the query would start it; sessions of compat.v1 do not."""
    context = getattr(modules.get("tensorflow.python.eager.context"), "_context", None)
    if not getattr(context, "_initialized", False):
        return NOTHING
    config = modules["tensorflow"].config
    devices = range(len(config.list_logical_devices("GPU")))
    infos = [config.experimental.get_memory_info("GPU:%d" % device) for device in devices]
    return (sum(info["current"] for info in infos), None, sum(info["peak"] for info in infos)) if infos else NOTHING


def _jax(modules):
    """Query only the backends that have started; `jax.devices()` would start them all."""
    bridge = modules.get("jax._src.xla_bridge") or modules.get("jax.lib.xla_bridge")
    backends = getattr(bridge, "_backends", None) or {}
    devices = [device for backend in list(backends.values()) for device in backend.local_devices()]
    stats = [device.memory_stats() for device in devices if device.platform in ("gpu", "cuda")]
    names = ("bytes_in_use", "pool_bytes", "peak_bytes_in_use")
    return tuple(_sum_known([numbers.get(name) for numbers in stats]) for name in names)


class Tensorflow1(object):
    """Reads the allocator of the first GPU, which all sessions of a process share, by an operation of tf.contrib.

    The operation is in a separate graph, so that it does not affect the scenario's. It is used only if the scenario has
    imported tf.contrib.memory_stats, because importing tf.contrib takes seconds and much memory.
    """

    MODULE = "tensorflow.contrib.memory_stats.python.ops.memory_stats_ops"

    def __init__(self):
        self._run = None
        self._tried = False

    def __call__(self, modules):
        if self.MODULE in modules and not self._tried:
            self._tried = True
            self._run = self._open(modules["tensorflow"], modules[self.MODULE])
        return NOTHING if self._run is None else (int(self._run()), None, None)

    def _open(self, tensorflow, operations):
        graph = tensorflow.Graph()
        with graph.as_default(), graph.device("/gpu:0"):
            in_use = operations.BytesInUse()
        config = tensorflow.ConfigProto()
        config.gpu_options.allow_growth = True
        session = tensorflow.Session(graph=graph, config=config)
        return lambda: session.run(in_use)
