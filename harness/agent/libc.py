"""Calls of the C library by ctypes. Some images have neither ctypes nor glibc; the calls then do nothing."""

import fcntl
import os
import platform
import resource
import signal

try:
    import ctypes

    LIBRARY = ctypes.CDLL(None, use_errno=True)
except (ImportError, OSError):
    ctypes = LIBRARY = None

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
MEMFD_CREATE = {"x86_64": 319, "aarch64": 279}


HIGH_FD = 4000  # above 1024 and 2048, up to which daemon libraries close inherited descriptors
RESERVED_FDS = 32


def symbol(name):
    """Return the C function of that name, or None."""
    return getattr(LIBRARY, name, None)


def die_with_parent(parent):
    """Make the kernel kill this process when its parent ends, also after exec. Call it in the child, before exec."""
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
    if hasattr(os, "memfd_create"):
        create = os.memfd_create
    elif symbol("memfd_create") is not None:
        create = _memfd_by_libc
    else:
        create = _memfd_by_number
    try:
        return create(name)
    except OSError:
        return None


def _memfd_by_libc(name):
    return _checked(LIBRARY.memfd_create(name.encode(), 0))


def _memfd_by_number(name):
    """Make the system call directly, for glibc before 2.27, which has no function for it."""
    number = MEMFD_CREATE.get(platform.machine())
    if LIBRARY is None or number is None:
        raise OSError("memfd_create is not known here")
    return _checked(LIBRARY.syscall(number, name.encode(), 0))


def _checked(fd):
    if fd < 0:
        raise OSError(ctypes.get_errno(), "memfd_create")
    return fd


def raised(fd, limit=None):
    """Return a duplicate of `fd` with a high number, where programs that close all low descriptors do not reach it.

    The number is HIGH_FD, or just below the limit; `fd` itself is returned if no other number is available. It is not
    inherited. `limit`: the soft RLIMIT_NOFILE.
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
