"""Ranks: where a process waits for the others, and the exception that ends a process which multiprocessing started."""

import functools
import sys

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


def _fails(owner, name, hook):
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*args, **kwargs):
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            hook.failed(error)
            raise

    setattr(owner, name, wrapped)


def _ddp(module, hook):
    """In a program with DistributedDataParallel, ranks wait for each other inside `backward`."""
    original, found = module.DistributedDataParallel.__init__, []

    @functools.wraps(original)
    def initialised(self, *args, **kwargs):
        original(self, *args, **kwargs)
        if not found:
            found.append(True)
            _waits(sys.modules["torch"].Tensor, ("backward",), hook, computes=True)

    module.DistributedDataParallel.__init__ = initialised


def _torch_spawn(module, hook):
    """torch catches the exception of a process, and prints it in the parent."""
    original = module._wrap

    @functools.wraps(original)
    def wrap(function, *args, **kwargs):
        @functools.wraps(function)
        def reporting(*own):
            try:
                return function(*own)
            except BaseException as error:
                hook.failed(error)
                raise

        return original(reporting, *args, **kwargs)

    module._wrap = wrap


MODULES = {
    "multiprocessing.process": lambda module, hook: _fails(module.BaseProcess, "run", hook),
    "multiprocessing.synchronize": lambda module, hook: _waits(module.Barrier, ("wait",), hook),
    "torch.distributed.distributed_c10d": lambda module, hook: _waits(module, COLLECTIVES, hook),
    "torch.nn.parallel.distributed": _ddp,
    "torch.multiprocessing.spawn": _torch_spawn,
}
