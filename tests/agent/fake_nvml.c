/* A stand-in for libnvidia-ml.so.1 with the ABI of the real one, for machines without a GPU.

   It tells what the file named by FAKE_NVML says, one "name value" a line, read anew at every call, so that a test can
   change it while a trial runs. "gpuN.name value" is of device N. A number that is missing is NVML_ERROR_NOT_SUPPORTED.
   "fail.FUNCTION code" makes a function return that code. OLD leaves out what drivers before R450 do not have; DATA
   is a file in place of FAKE_NVML's. */

#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef DATA
#define DATA getenv("FAKE_NVML")
#endif

typedef int code;
typedef struct { int index, instance; } device; /* opaque to the caller */
typedef unsigned long long u64;
enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, TIMEOUT = 10, VERSION_MISMATCH = 25 };

static int tell(const char *name, char *value, size_t size) {
    const char *path = DATA;
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[8192];
    int found = 0;
    size_t length = strlen(name);
    while (file && !found && fgets(line, sizeof line, file))
        if (!strncmp(line, name, length) && line[length] == ' ') {
            line[strcspn(line, "\n")] = 0;
            snprintf(value, size, "%s", line + length + 1);
            found = 1;
        }
    if (file) fclose(file);
    return found;
}

static code number(const char *name, u64 *value) {
    char text[64];
    if (!tell(name, text, sizeof text)) return NOT_SUPPORTED;
    *value = strtoull(text, NULL, 0);
    return SUCCESS;
}

static code failing(const char *function) {
    char name[128];
    u64 value = 0;
    snprintf(name, sizeof name, "fail.%s", function);
    number(name, &value);
    return (code)value;
}
#define GATE do { code bad = failing(__func__); if (bad) return bad; } while (0)

static code of(const device *gpu, const char *what, u64 *value) {
    char name[128];
    if (gpu->instance >= 0) snprintf(name, sizeof name, "gpu%d.mig%d.%s", gpu->index, gpu->instance, what);
    else snprintf(name, sizeof name, "gpu%d.%s", gpu->index, what);
    return number(name, value);
}

static code text_of(const device *gpu, const char *what, char *buffer, unsigned size) {
    char name[128], value[256];
    if (gpu->instance >= 0) snprintf(name, sizeof name, "gpu%d.mig%d.%s", gpu->index, gpu->instance, what);
    else snprintf(name, sizeof name, "gpu%d.%s", gpu->index, what);
    if (!tell(name, value, sizeof value)) return NOT_SUPPORTED;
    if (strlen(value) >= size) return INSUFFICIENT_SIZE;
    strcpy(buffer, value);
    return SUCCESS;
}

static code narrow(const device *gpu, const char *what, unsigned *value) {
    u64 wide;
    code bad = of(gpu, what, &wide);
    if (!bad) *value = (unsigned)wide;
    return bad;
}

static device cards[64];
#ifndef OLD
static device instances[64][8];
#endif

code nvmlInit(void) { GATE; return SUCCESS; }
#ifndef OLD
code nvmlInit_v2(void) { GATE; return SUCCESS; }
#endif

code nvmlSystemGetDriverVersion(char *buffer, unsigned size) {
    GATE;
    return tell("driver", buffer, size) ? SUCCESS : NOT_SUPPORTED;
}

static code cuda(int *version) {
    u64 value;
    code bad = number("cuda", &value);
    if (!bad) *version = (int)value;
    return bad;
}
code nvmlSystemGetCudaDriverVersion(int *version) { GATE; return cuda(version); }
#ifndef OLD
code nvmlSystemGetCudaDriverVersion_v2(int *version) { GATE; return cuda(version); }
#endif

static code count(unsigned *value) {
    u64 wide;
    code bad = number("count", &wide);
    if (!bad) *value = (unsigned)wide;
    return bad;
}
static code handle(unsigned index, device **gpu) {
    u64 wide = 0;
    number("count", &wide);
    if (index >= wide || index >= 64) return INVALID;
    cards[index] = (device){(int)index, -1};
    *gpu = &cards[index];
    return SUCCESS;
}
#ifndef OLD
code nvmlDeviceGetCount_v2(unsigned *value) { GATE; return count(value); }
code nvmlDeviceGetHandleByIndex_v2(unsigned index, device **gpu) { GATE; return handle(index, gpu); }
#endif
code nvmlDeviceGetCount(unsigned *value) { GATE; return count(value); }
code nvmlDeviceGetHandleByIndex(unsigned index, device **gpu) { GATE; return handle(index, gpu); }

code nvmlDeviceGetUUID(device *gpu, char *buffer, unsigned size) { GATE; return text_of(gpu, "uuid", buffer, size); }
code nvmlDeviceGetName(device *gpu, char *buffer, unsigned size) { GATE; return text_of(gpu, "name", buffer, size); }

code nvmlDeviceGetCudaComputeCapability(device *gpu, int *major, int *minor) {
    u64 value;
    GATE;
    code bad = of(gpu, "capability", &value); /* 89 is 8.9, 120 is 12.0 */
    if (!bad) *major = (int)(value / 10), *minor = (int)(value % 10);
    return bad;
}

static code mode(const device *gpu, const char *what, unsigned *now, unsigned *pending) {
    code bad = narrow(gpu, what, now);
    *pending = 0;
    return bad;
}
code nvmlDeviceGetEccMode(device *gpu, unsigned *now, unsigned *pending) { GATE; return mode(gpu, "ecc", now, pending); }

#ifndef OLD
code nvmlDeviceGetMigMode(device *gpu, unsigned *now, unsigned *pending) { GATE; return mode(gpu, "mig", now, pending); }
code nvmlDeviceGetMaxMigDeviceCount(device *gpu, unsigned *value) { GATE; return narrow(gpu, "instances", value); }
code nvmlDeviceGetMigDeviceHandleByIndex(device *gpu, unsigned index, device **instance) {
    char name[64];
    GATE;
    if (index >= 8) return INVALID;
    instances[gpu->index][index] = (device){gpu->index, (int)index};
    if (text_of(&instances[gpu->index][index], "uuid", name, sizeof name)) return 6; /* NOT_FOUND */
    *instance = &instances[gpu->index][index];
    return SUCCESS;
}
#endif

typedef struct { u64 total, free, used; } memory;
code nvmlDeviceGetMemoryInfo(device *gpu, memory *told) {
    u64 reserved = 0;
    GATE;
    memset(told, 0, sizeof *told);
    code bad = of(gpu, "total", &told->total) ?: of(gpu, "used", &told->used);
    of(gpu, "reserved", &reserved);
    told->used += reserved;
    told->free = told->total - told->used;
    return bad;
}
#ifndef OLD
typedef struct { unsigned version; u64 total, reserved, free, used; } memory_v2;
code nvmlDeviceGetMemoryInfo_v2(device *gpu, memory_v2 *told) {
    GATE;
    if (told->version != (sizeof *told | 2 << 24)) return VERSION_MISMATCH;
    code bad = of(gpu, "total", &told->total) ?: of(gpu, "used", &told->used);
    if (of(gpu, "reserved", &told->reserved)) told->reserved = 0;
    told->free = told->total - told->used - told->reserved;
    return bad;
}
#endif

/* gpuN.processes "PID:BYTES,PID:BYTES"; bytes of -1 are not available */
typedef struct { unsigned pid; u64 used; } process_v1;
typedef struct { unsigned pid; u64 used; unsigned gpu_instance, compute_instance; } process_v2;

static code processes(const device *gpu, unsigned *room, void *rows, size_t size) {
    char text[8192], name[64];
    unsigned found = 0;
    snprintf(name, sizeof name, "gpu%d.processes", gpu->index);
    if (!tell(name, text, sizeof text)) return NOT_SUPPORTED;
    for (char *word = strtok(text, ","); word; word = strtok(NULL, ","), found++) {
        if (found >= *room) return INSUFFICIENT_SIZE;
        process_v1 *row = (process_v1 *)((char *)rows + found * size);
        row->pid = (unsigned)strtoul(word, &word, 10);
        row->used = (u64)strtoll(word + 1, NULL, 10);
    }
    *room = found;
    return SUCCESS;
}
code nvmlDeviceGetComputeRunningProcesses(device *gpu, unsigned *room, process_v1 *rows) {
    GATE;
    return processes(gpu, room, rows, sizeof *rows);
}
#ifndef OLD
code nvmlDeviceGetComputeRunningProcesses_v2(device *gpu, unsigned *room, process_v2 *rows) {
    GATE;
    return processes(gpu, room, rows, sizeof *rows);
}
typedef struct { process_v2 known; u64 protected; } process_v3; /* as drivers from 535.43 to 535.86 have it */
code nvmlDeviceGetComputeRunningProcesses_v3(device *gpu, unsigned *room, process_v3 *rows) {
    GATE;
    return processes(gpu, room, rows, sizeof *rows);
}
#endif

code nvmlDeviceGetEnforcedPowerLimit(device *gpu, unsigned *value) { GATE; return narrow(gpu, "power_limit", value); }
code nvmlDeviceGetPowerUsage(device *gpu, unsigned *value) { GATE; return narrow(gpu, "power", value); }
code nvmlDeviceGetTemperature(device *gpu, unsigned sensor, unsigned *value) {
    GATE;
    return sensor ? INVALID : narrow(gpu, "temperature", value);
}
code nvmlDeviceGetClockInfo(device *gpu, unsigned kind, unsigned *value) {
    GATE;
    return kind != 1 ? INVALID : narrow(gpu, "clock", value);
}
typedef struct { unsigned gpu, memory; } utilization;
code nvmlDeviceGetUtilizationRates(device *gpu, utilization *told) { GATE; return narrow(gpu, "busy", &told->gpu); }
code nvmlDeviceGetCurrentClocksThrottleReasons(device *gpu, u64 *value) { GATE; return of(gpu, "reasons", value); }
#ifdef NEW
code nvmlDeviceGetCurrentClocksEventReasons(device *gpu, u64 *value) { GATE; return of(gpu, "reasons", value); }
#endif

/* gpuN.level NUMBER and gpuN.peers NUMBER: to every other card; peers 0: by NVLink, 1: by PCIe, 2: not at all */
code nvmlDeviceGetTopologyCommonAncestor(device *gpu, device *other, unsigned *value) {
    GATE;
    return other ? narrow(gpu, "level", value) : INVALID;
}
code nvmlDeviceGetP2PStatus(device *gpu, device *other, unsigned capability, unsigned *value) {
    unsigned peers;
    GATE;
    code bad = other ? narrow(gpu, "peers", &peers) : INVALID;
    if (!bad) *value = peers == 2 || (peers == 1 && capability == 2) ? 3 : 0;
    return bad;
}

/* gpuN.xid NUMBER: told once */
typedef struct { device *gpu; u64 kind, data; unsigned gpu_instance, compute_instance; } event;
static u64 registered, told_xid;
code nvmlEventSetCreate(void **set) { GATE; *set = &registered; return SUCCESS; }
code nvmlDeviceRegisterEvents(device *gpu, u64 kinds, void *set) {
    GATE;
    if (set != &registered || kinds != 8) return INVALID;
    registered |= 1ull << gpu->index;
    return SUCCESS;
}
static code wait_for(void *set, event *told, unsigned timeout_ms) {
    if (set != &registered || timeout_ms) return INVALID;
    for (int index = 0; index < 64; index++) {
        device gpu = {index, -1};
        u64 value;
        if (!(registered >> index & 1) || of(&gpu, "xid", &value) || value == told_xid) continue;
        told_xid = value;
        *told = (event){&cards[index], 8, value, 0, 0};
        return SUCCESS;
    }
    return TIMEOUT;
}
code nvmlEventSetWait(void *set, event *told, unsigned timeout_ms) { GATE; return wait_for(set, told, timeout_ms); }
#ifndef OLD
code nvmlEventSetWait_v2(void *set, event *told, unsigned timeout_ms) { GATE; return wait_for(set, told, timeout_ms); }
#endif
