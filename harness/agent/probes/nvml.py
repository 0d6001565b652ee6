"""Calls the driver's own library, libnvidia-ml, which the container toolkit puts into every container with a GPU.

These calls do not start CUDA. Functions and structures change with driver versions: where a function has several names,
the first that works is used. Anything that the driver does not report is None. Only `load_nvml` raises.
"""

from .. import libc

NAME = "libnvidia-ml.so.1"
SUCCESS = 0
GPU_IS_LOST = 15
ERRORS = {
    2: "an argument is not valid",
    4: "no permission",
    9: "the driver is not loaded",
    12: "the library of the driver was not found",
    15: "the GPU is lost",
    17: "the operating system blocks the GPU",
    18: "driver and library have different versions",
    999: "unknown error",
}
NOT_REPORTED = (1 << 64) - 1
MOST_DEVICES = 64
MOST_PROCESSES = 192
ALLOCATED_ROWS = 256  # more than MOST_PROCESSES: the _v3 of drivers 535.43 to 535.86 writes 32 bytes a row, not 24
XID = 8
LEVELS = {0: "same board", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
TEXT_BYTES = 96


class Unavailable(Exception):
    """Raised if the library exists, but does not start; the text says why."""


def load_nvml(name=NAME):
    """Return the library, initialised; None if it does not exist. Raises Unavailable."""
    if libc.ctypes is None:
        return None
    try:
        library = libc.ctypes.CDLL(name)
    except OSError:
        return None
    code = _call(library, ("nvmlInit_v2", "nvmlInit"))
    if code != SUCCESS:
        why = "it lacks the function" if code is None else ERRORS.get(code, "error %d" % code)
        raise Unavailable("NVML does not start: %s" % why)
    return Library(library)


def _call(library, names, *arguments):
    """Return the code of the first of `names` that succeeds, else of the last that exists; None if none does."""
    code = None
    for name in names:
        function = getattr(library, name, None)
        if function is not None:
            code = function(*arguments)
            if code == SUCCESS:
                break
    return code


class Handle(object):
    """Base of `Library`, `Device` and `EventReader`: calls that return one value, or None.

    `first`: the first arguments of every call. `lost`: whether a call reported that the GPU is lost.
    """

    def __init__(self, library, *first):
        self._library = library
        self._first = first
        self.lost = False

    def _done(self, names, *arguments):
        code = _call(self._library, names, *(self._first + arguments))
        self.lost = self.lost or code == GPU_IS_LOST
        return code == SUCCESS

    def _number(self, names, kind, *arguments):
        value = kind()
        return value.value if self._done(names, *arguments, libc.ctypes.byref(value)) else None

    def _unsigned(self, name, *arguments):
        return self._number((name,), libc.ctypes.c_uint, *arguments)

    def _pair(self, name):
        """Return two integers, or None: (major, minor) of a version, or (current, pending) of a setting."""
        first, second = libc.ctypes.c_int(), libc.ctypes.c_int()
        done = self._done((name,), libc.ctypes.byref(first), libc.ctypes.byref(second))
        return (first.value, second.value) if done else None

    def _text(self, *names):
        buffer = libc.ctypes.create_string_buffer(TEXT_BYTES)
        if not self._done(names, buffer, libc.ctypes.c_uint(TEXT_BYTES)):
            return None
        return buffer.value.decode("utf-8", "replace")

    def _device(self, names, index):
        handle = libc.ctypes.c_void_p()
        done = self._done(names, libc.ctypes.c_uint(index), libc.ctypes.byref(handle))
        return Device(self._library, handle) if done and handle.value else None


class Library(Handle):
    def driver(self):
        """Return the driver's version: `535.104.05`."""
        return self._text("nvmlSystemGetDriverVersion")

    def cuda(self):
        """Return the CUDA version of the driver's (or a compatibility package's) libcuda: `12.2`."""
        number = self._number(
            ("nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion"), libc.ctypes.c_int
        )
        return "%d.%d" % (number // 1000, number % 1000 // 10) if number and number > 0 else None

    def devices(self):
        """Return the visible devices, with their index, in the order of their PCI addresses."""
        count = self._number(("nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"), libc.ctypes.c_uint) or 0
        names = ("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex")
        devices = [(index, self._device(names, index)) for index in range(min(count, MOST_DEVICES))]
        return [(index, device) for index, device in devices if device is not None]

    def xids(self, devices):
        """Return a function that returns the next Xid error or None, without waiting; None if unsupported."""
        events = libc.ctypes.c_void_p()
        if not self._done(("nvmlEventSetCreate",), libc.ctypes.byref(events)):
            return None
        supported = [device.register(XID, events) for device in devices]
        return EventReader(self._library, events).next_xid if any(supported) else None


class EventReader(Handle):
    """Reads the events of devices in order."""

    def __init__(self, library, events):
        Handle.__init__(self, library, events)
        self._event = _event()

    def next_xid(self):
        """Return the number of the next Xid error; None if there is none now."""
        wait = ("nvmlEventSetWait_v2", "nvmlEventSetWait")
        done = self._done(wait, libc.ctypes.byref(self._event), libc.ctypes.c_uint(0))
        return int(self._event.data) if done and self._event.kind == XID else None


class Device(Handle):
    """One GPU, or one MIG instance of it."""

    def __init__(self, library, handle):
        Handle.__init__(self, library, handle)
        self._memory = ((("nvmlDeviceGetMemoryInfo_v2",), _memory(2)), (("nvmlDeviceGetMemoryInfo",), _memory(1)))
        self._processes = (
            (("nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses_v3"), _processes(2)),
            (("nvmlDeviceGetComputeRunningProcesses",), _processes(1)),
        )
        self._busy = _structure("Utilization", ("gpu", libc.ctypes.c_uint), ("memory", libc.ctypes.c_uint))()

    def uuid(self):
        """Return the UUID, such as `GPU-…` or `MIG-…`."""
        return self._text("nvmlDeviceGetUUID")

    def name(self):
        return self._text("nvmlDeviceGetName")

    def compute_capability(self):
        """Return the compute capability: `8.9`."""
        pair = self._pair("nvmlDeviceGetCudaComputeCapability")
        return pair and "%d.%d" % pair

    def ecc(self):
        pair = self._pair("nvmlDeviceGetEccMode")
        return pair and bool(pair[0])

    def mig(self):
        """Return whether the card is in MIG mode; None if it has no such mode."""
        pair = self._pair("nvmlDeviceGetMigMode")
        return pair and bool(pair[0])

    def instances(self):
        count = self._unsigned("nvmlDeviceGetMaxMigDeviceCount") or 0
        names = ("nvmlDeviceGetMigDeviceHandleByIndex",)
        devices = [self._device(names, index) for index in range(min(count, MOST_DEVICES))]
        return [device for device in devices if device is not None]

    def power_limit_w(self):
        """Return the power limit that applies, in watts."""
        for name in ("nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit"):
            milliwatts = self._unsigned(name)
            if milliwatts:
                return milliwatts / 1000.0
        return None

    def power_w(self):
        """Return the power drawn now, in watts."""
        milliwatts = self._unsigned("nvmlDeviceGetPowerUsage")
        return None if milliwatts is None else milliwatts / 1000.0

    def temperature_c(self):
        """Return the temperature of the chip, in degrees Celsius."""
        return self._unsigned("nvmlDeviceGetTemperature", libc.ctypes.c_uint(0))

    def clock_mhz(self):
        """Return the current clock of the streaming multiprocessors."""
        return self._unsigned("nvmlDeviceGetClockInfo", libc.ctypes.c_uint(1))

    def busy_percent(self):
        """Return the percentage of the driver's last sampling period in which a kernel ran."""
        done = self._done(("nvmlDeviceGetUtilizationRates",), libc.ctypes.byref(self._busy))
        return self._busy.gpu if done else None

    def reasons(self):
        """Return the reasons why the clock is not higher, as bits."""
        names = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
        return self._number(names, libc.ctypes.c_ulonglong)

    def memory_bytes(self):
        """Return (used, total), or None. Memory that the driver reserves does not count as used if it is reported
        separately."""
        for names, memory in self._memory:
            if self._done(names, libc.ctypes.byref(memory)) and 0 < memory.total < NOT_REPORTED:
                return min(memory.used, memory.total), memory.total
        return None

    def processes(self):
        """Return pid -> bytes of the computing processes (None where the driver does not report them); None if
        unsupported. The pids are the machine's, which differ from those inside a container."""
        for names, rows in self._processes:
            count = libc.ctypes.c_uint(MOST_PROCESSES)
            if self._done(names, libc.ctypes.byref(count), rows):
                filled = rows[: min(count.value, MOST_PROCESSES)]
                return {row.pid: None if row.used == NOT_REPORTED else row.used for row in filled}
        return None

    def link(self, other):
        """Return how this card is connected to another one, as `nvidia-smi topo -m` does: `NVLink, peer access`, `PHB,
        no peer access`; None if the driver does not report it."""
        level = self._unsigned("nvmlDeviceGetTopologyCommonAncestor", other._first[0])
        reads, joins = (
            self._unsigned("nvmlDeviceGetP2PStatus", other._first[0], libc.ctypes.c_uint(capability))
            for capability in (0, 2)
        )
        words = ["NVLink" if joins == SUCCESS else LEVELS.get(level)]
        words += [] if reads is None else ["peer access" if reads == SUCCESS else "no peer access"]
        return ", ".join(word for word in words if word) or None

    def register(self, kind, events):
        """Add events of a kind to the set `events`. Return False if the device does not support them."""
        return self._done(("nvmlDeviceRegisterEvents",), libc.ctypes.c_ulonglong(kind), events)


# ---------------------------------------------------------------- structures of nvml.h


def _structure(name, *fields):
    return type(name, (libc.ctypes.Structure,), {"_fields_": list(fields)})


def _memory(version):
    number = libc.ctypes.c_ulonglong
    if version == 1:
        return _structure("Memory", ("total", number), ("free", number), ("used", number))()
    fields = [(field, number) for field in ("total", "reserved", "free", "used")]
    memory = _structure("MemoryV2", ("version", libc.ctypes.c_uint), *fields)()
    memory.version = libc.ctypes.sizeof(memory) | 2 << 24
    return memory


def _processes(version):
    fields = [("pid", libc.ctypes.c_uint), ("used", libc.ctypes.c_ulonglong)]
    if version == 2:
        fields += [("gpu_instance", libc.ctypes.c_uint), ("compute_instance", libc.ctypes.c_uint)]
    return (_structure("Process", *fields) * ALLOCATED_ROWS)()


def _event():
    number = libc.ctypes.c_uint
    return _structure(
        "Event",
        ("device", libc.ctypes.c_void_p),
        ("kind", libc.ctypes.c_ulonglong),
        ("data", libc.ctypes.c_ulonglong),
        ("gpu_instance", number),
        ("compute_instance", number),
    )()
