"""Reads how long the system ran other processes instead of this one."""


def kept_waiting_s():
    """Return the seconds for which this process was ready to run but others ran; 0 if the kernel does not report it."""
    try:
        with open("/proc/self/schedstat", "rb") as file:
            return int(file.read().split()[1]) * 1e-9
    except (OSError, IndexError, ValueError):
        return 0.0
