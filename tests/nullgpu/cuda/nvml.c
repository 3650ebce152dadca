// NVML: the same books seen from outside, with this process and, when NULLGPU_OTHER is set, process 4242.
#include "nullgpu.h"
#include <unistd.h>

enum { NVML_NOT_SUPPORTED = 3, NVML_NOT_FOUND = 6, NVML_INSUFFICIENT_SIZE = 7, OTHER_PID = 4242 };
// A handle is the number of the physical device, plus one.

int nvmlInit(void) { return 0; }
ALSO(nvmlInit_v2, nvmlInit)
ALSO(nvmlInitWithFlags, nvmlInit)
ALSO(nvmlShutdown, nvmlInit)
ALSO(nvmlDeviceGetGpuFabricInfoV, nvmlInit)  // leaves the "not supported" that the caller put there

int nvmlDeviceGetNvLinkRemoteDeviceType(void) { return NVML_NOT_SUPPORTED; }
ALSO(nvmlDeviceGetNvLinkRemotePciInfo_v2, nvmlDeviceGetNvLinkRemoteDeviceType)

const char *nvmlErrorString(int error) { return "Not Supported"; }

int nvmlSystemGetDriverVersion(char *text, u32 room) {
    snprintf(text, room, "0.null");
    return 0;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    *version = CUDA_VERSION;
    return 0;
}

int nvmlDeviceGetCount_v2(u32 *count) {
    *count = settings()->physical;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(u32 index, u64 *handle) {
    *handle = index + 1;
    return index < (u32)settings()->physical ? 0 : NVML_NOT_FOUND;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *text, u64 *handle) {
    u32 domain, bus;
    if (sscanf(text, "%x:%x", &domain, &bus) != 2) return NVML_NOT_FOUND;
    return nvmlDeviceGetHandleByIndex_v2(bus - 1, handle);
}

int nvmlDeviceGetName(u64 handle, char *text, u32 room) {
    snprintf(text, room, "Null GPU");
    return 0;
}

int nvmlDeviceGetUUID(u64 handle, char *text, u32 room) {
    snprintf(text, room, "GPU-%02x000000-0000-0000-0000-000000000000", (int)handle);
    return 0;
}

static u64 used_by_us(u64 handle) {
    const Settings *s = settings();
    for (int device = 0; device < s->count; device++)
        if ((u64)s->visible[device] + 1 == handle) return device_used_by_us(device);
    return 0;
}

int nvmlDeviceGetMemoryInfo(u64 handle, u64 *memory) {
    enum { TOTAL, FREE, USED };
    memory[TOTAL] = settings()->total;
    memory[USED] = used_by_us(handle) + settings()->other;
    memory[FREE] = memory[TOTAL] - memory[USED];
    return 0;
}

int nvmlDeviceGetMemoryInfo_v2(u64 handle, u64 *memory) {
    enum { VERSION, TOTAL, RESERVED, FREE, USED };
    memory[TOTAL] = settings()->total;
    memory[RESERVED] = 0;
    memory[USED] = used_by_us(handle) + settings()->other;
    memory[FREE] = memory[TOTAL] - memory[USED];
    return 0;
}

static int list_processes(u64 handle, u32 *count, u64 *table, int columns) {  // pid, bytes[, instances]
    u64 rows[2][3] = {{getpid(), used_by_us(handle), ~0ULL}, {OTHER_PID, settings()->other, ~0ULL}};
    u32 room = *count, found = 0;
    for (int i = 0; i < 2; i++) {
        if (!rows[i][1]) continue;
        if (found < room && table) memcpy(table + found * columns, rows[i], columns * sizeof(u64));
        found++;
    }
    *count = found;
    return found > room ? NVML_INSUFFICIENT_SIZE : 0;
}

int nvmlDeviceGetComputeRunningProcesses(u64 handle, u32 *count, u64 *table) {
    return list_processes(handle, count, table, 2);
}

int nvmlDeviceGetComputeRunningProcesses_v3(u64 handle, u32 *count, u64 *table) {
    return list_processes(handle, count, table, 3);
}
ALSO(nvmlDeviceGetComputeRunningProcesses_v2, nvmlDeviceGetComputeRunningProcesses_v3)
