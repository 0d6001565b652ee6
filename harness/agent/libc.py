"""Calls the C library through ctypes. Some images have neither ctypes nor glibc; the calls then do nothing."""

import fcntl
import os
import resource
import signal

try:
    import ctypes

    LIBRARY = ctypes.CDLL(None, use_errno=True)
except (ImportError, OSError):
    ctypes = LIBRARY = None

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
STACKS_SIGNAL = signal.SIGUSR2  # requests the stacks of all threads of the scenario process
MEMFD_CREATE = {"x86_64": 319, "aarch64": 279}  # the numbers of the system call

HIGH_FD = 4000  # above 1024 and 2048, up to which daemon libraries close inherited descriptors
RESERVED_FDS = 32


def symbol(name):
    """Return the C function of that name, or None."""
    return getattr(LIBRARY, name, None)


def die_with_parent(parent):
    """Make the kernel kill this process when its parent ends, even after exec. Call it in the child, before exec."""
    if LIBRARY is not None:
        LIBRARY.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # the parent ended before the call
        os._exit(1)


def adopt_orphans():
    """Become the parent of grandchildren whose own parent ends, so that none can outlive the supervisor unnoticed."""
    if LIBRARY is not None:
        LIBRARY.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def memfd(name):
    """Return an unnamed file in memory, which needs no writable file system; None if the kernel has none."""
    try:
        return getattr(os, "memfd_create", _memfd_before_python38)(name)
    except OSError:
        return None


def _memfd_before_python38(name):
    """Call the C function, or make the system call by its number, because glibc before 2.27 has no function for it.

    Raises OSError.
    """
    create, number = symbol("memfd_create"), MEMFD_CREATE.get(os.uname().machine)
    if create is not None:
        fd = create(name.encode(), 0)
    elif LIBRARY is not None and number is not None:
        fd = LIBRARY.syscall(number, name.encode(), 0)
    else:
        raise OSError("memfd_create is not known here")
    if fd < 0:
        raise OSError(ctypes.get_errno(), "memfd_create")
    return fd


def raised(fd, limit=None):
    """Replace `fd` with a duplicate with a high number, which programs that close all low descriptors do not reach.

    The number is HIGH_FD or more, or just below `limit`, the soft RLIMIT_NOFILE. If no such number is available, `fd`
    itself is returned. The returned descriptor is not inherited.
    """
    if limit is None:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    least = HIGH_FD if limit == resource.RLIM_INFINITY else min(HIGH_FD, limit - RESERVED_FDS)
    try:
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, max(least, fd))
    except OSError:
        os.set_inheritable(fd, False)
        return fd
    os.close(fd)
    return high
