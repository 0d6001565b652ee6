"""Tells how long the system let other processes run instead of this one."""


def kept_waiting_s():
    """Return the seconds for which this process was ready to run and others ran; 0 where the kernel does not tell."""
    try:
        with open("/proc/self/schedstat", "rb") as file:
            return int(file.read().split()[1]) * 1e-9
    except (OSError, IndexError, ValueError):
        return 0.0
