"""Ranks: where a process waits for the others, the exception that ends a process which multiprocessing started, and
what sets the pace of a rank: threads, processors and the library of the collectives.
"""

import functools
import os
import sys

from .. import children

COLLECTIVES = (
    "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all", "all_to_all_single",
    "barrier", "broadcast", "broadcast_object_list", "gather", "gather_object", "monitored_barrier", "recv", "reduce",
    "reduce_scatter", "reduce_scatter_tensor", "scatter", "scatter_object_list",
)  # fmt: skip


def _waits(owner, names, hook, **how):
    """Let the time of these functions count as waits. Those that this version lacks are left out."""
    for name in names:
        original = getattr(owner, name, None)
        if original is not None:
            setattr(owner, name, _waiting(original, hook, how))


def _waiting(original, hook, how):
    @functools.wraps(original)
    def wrapped(*args, **kwargs):
        return hook.waiting(functools.partial(original, *args, **kwargs), **how)

    return wrapped


def _reporting(original, hook):
    """Return a function that reports how it ends: by an exception, or well."""

    @functools.wraps(original)
    def wrapped(*args, **kwargs):
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            hook.failed(error)
            raise
        hook.failed(None)
        return result

    wrapped.tells = True
    return wrapped


def _processes(module, hook):
    module.BaseProcess.run = _reporting(module.BaseProcess.run, hook)


def _ddp(module, hook):
    """Note the waits of ranks for each other, which DistributedDataParallel has inside `backward`."""
    original, found = module.DistributedDataParallel.__init__, []

    @functools.wraps(original)
    def initialised(self, *args, **kwargs):
        original(self, *args, **kwargs)
        if not found:
            found.append(True)
            _waits(sys.modules["torch"].Tensor, ("backward",), hook, computes=True)

    module.DistributedDataParallel.__init__ = initialised


def _torch_spawn(module, hook):
    """Report the exception of a process, which torch catches, and prints in the parent."""
    original = module._wrap

    @functools.wraps(original)
    def wrap(function, *args, **kwargs):
        return original(_reporting(function, hook), *args, **kwargs)

    module._wrap = wrap


def _cpus(modules):
    """Return the processors that the process may use: `0-3, 8`."""
    cpus = sorted(os.sched_getaffinity(0))
    begins = [cpu for cpu in cpus if cpu - 1 not in cpus]
    ends = [cpu for cpu in cpus if cpu + 1 not in cpus]
    return ", ".join(map(lambda first, last: str(first) if first == last else "%d-%d" % (first, last), begins, ends))


def _backend(modules):
    distributed = modules["torch.distributed"]
    return distributed.get_backend() if distributed.is_initialized() else None


def _nccl(modules):
    return _backend(modules) == "nccl" and ".".join(map(str, modules["torch"].cuda.nccl.version()))


ABOUT = {
    "OMP_NUM_THREADS": lambda modules: os.environ.get("OMP_NUM_THREADS"),
    "processors": _cpus,
    "threads of torch": lambda modules: modules["torch"].get_num_threads(),
    "backend of torch": _backend,
    "NCCL": _nccl,
    "MPI": lambda modules: modules["mpi4py.MPI"].Get_library_version().split(",")[0],
    "collectives of JAX": lambda modules: modules["jax"].config.jax_cpu_collectives_implementation,
}


def about():
    """Return what is known of this process as a rank, by name, as texts. Nothing is imported for it."""
    known = {}
    for name, read in ABOUT.items():
        try:
            value = read(sys.modules)
        except Exception:  # a module that is missing, or another version of it
            continue
        if value:
            known[name] = str(value)[:200]
    return known


ALWAYS = {
    "multiprocessing.popen_forkserver": lambda module, hook: children.watch_forkserver(module),
    "multiprocessing.process": _processes,
    "multiprocessing.synchronize": lambda module, hook: _waits(module.Barrier, ("wait",), hook),
    "torch.distributed.distributed_c10d": lambda module, hook: _waits(module, COLLECTIVES, hook),
    "torch.nn.parallel.distributed": _ddp,
    "torch.multiprocessing.spawn": _torch_spawn,
}
