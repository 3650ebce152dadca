// Errors, devices and their properties (layout of cudaDeviceProp: CUDA 13).
#include "nullgpu.h"
#include <pthread.h>

static __thread int last_error, current;
static int awake[MAX_DEVICES];

static int in_use, lost;

static void after_fork(void) { lost = in_use; }
__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, after_fork); }

int is_lost(void) {
    in_use = 1;  // even the number of devices is asked of the driver, which does not survive a fork
    return lost;
}

int fail(int error) { return last_error = error; }

void *fresh_handle(void) {
    static u64 next = 0x1000;
    return (void *)__sync_add_and_fetch(&next, 64);
}

int current_device(void) { return current; }
void wake_device(int device) { awake[device] = 1; }
int device_is_awake(int device) { return awake[device]; }

int cudaPeekAtLastError(void) { return last_error; }

int cudaGetLastError(void) {
    int error = last_error;
    last_error = 0;
    return error;
}

const char *cudaGetErrorString(int error) {
    switch (error) {
        case 0: return "no error";
        case OUT_OF_MEMORY: return "out of memory";
        case INITIALIZATION_ERROR: return "initialization error";
        case NO_DEVICE: return "no CUDA-capable device is detected";
        case INVALID_DEVICE: return "invalid device ordinal";
        case NOT_READY: return "device not ready";
        default: return "operation not supported";
    }
}

const char *cudaGetErrorName(int error) {
    return error == OUT_OF_MEMORY ? "cudaErrorMemoryAllocation" : "cudaErrorNotSupported";
}

int cuGetErrorString(int error, const char **text) {
    *text = cudaGetErrorString(error);
    return 0;
}

int cudaGetDeviceCount(int *count) {
    NEEDS_CUDA
    *count = settings()->count;
    return *count ? 0 : fail(NO_DEVICE);
}

int cudaGetDevice(int *device) {
    NEEDS_CUDA
    *device = current;
    return settings()->count ? 0 : fail(NO_DEVICE);
}

int cudaSetDevice(int device) {
    NEEDS_CUDA
    int count = settings()->count;
    if (device < 0 || device >= count) return fail(count ? INVALID_DEVICE : NO_DEVICE);
    wake_device(current = device);
    return 0;
}

int cuDeviceGet(int *device, int ordinal) {
    NEEDS_CUDA
    *device = ordinal;
    return 0;
}

int cuDevicePrimaryCtxGetState(int device, u32 *flags, int *active) {
    NEEDS_CUDA
    *flags = 0;
    *active = awake[device];
    return 0;
}

int cudaDriverGetVersion(int *version) {
    *version = CUDA_VERSION;
    return 0;
}
ALSO(cudaRuntimeGetVersion, cudaDriverGetVersion)

int cudaDeviceGetPCIBusId(char *text, int room, int device) {
    NEEDS_CUDA
    snprintf(text, room, "0000:%02x:00.0", settings()->visible[device] + 1);
    return 0;
}

int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    NEEDS_CUDA
    *least = 0;
    *greatest = -5;
    return 0;
}

int cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    NEEDS_CUDA
    *can = device != peer;
    return 0;
}

// What an H100 answers; each row serves the attribute call and the property structure.
static const struct { int attribute, offset, size; u64 value; } PROPERTIES[] = {
    {1, 320, 4, 1024},         // threads per block
    {2, 324, 4, 1024},         // block dimensions
    {3, 328, 4, 1024},
    {4, 332, 4, 64},
    {5, 336, 4, 2147483647},   // grid dimensions
    {6, 340, 4, 65535},
    {7, 344, 4, 65535},
    {8, 296, 8, 49152},        // shared memory per block
    {9, 352, 8, 65536},        // constant memory
    {10, 308, 4, 32},          // warp
    {11, 312, 8, 2147483647},  // pitch
    {12, 304, 4, 65536},       // registers per block
    {14, 368, 8, 512},         // texture alignment
    {16, 384, 4, 132},         // multiprocessors
    {31, 560, 4, 1},           // concurrent kernels
    {37, 592, 4, 5120},        // bus width
    {38, 596, 4, 50 << 20},    // L2 cache
    {39, 604, 4, 2048},        // threads per multiprocessor
    {41, 588, 4, 1},           // unified addressing
    {81, 624, 8, 233472},      // shared memory per multiprocessor
    {82, 632, 4, 65536},       // registers per multiprocessor
    {95, 668, 4, 1},           // cooperative launch
    {97, 672, 8, 232448},      // shared memory per block, opt-in
    {106, 688, 4, 32},         // blocks per multiprocessor
};
enum { NUM_PROPERTIES = sizeof PROPERTIES / sizeof *PROPERTIES };

int cudaGetDeviceProperties(char *properties, int device) {
    NEEDS_CUDA
    const Settings *s = settings();
    memset(properties, 0, 1008);
    strcpy(properties, "Null GPU");
    properties[256] = properties[568] = (char)(s->visible[device] + 1);  // UUID, PCI bus
    memcpy(properties + 288, &s->total, sizeof s->total);
    memcpy(properties + 360, &s->major, sizeof s->major);
    memcpy(properties + 364, &s->minor, sizeof s->minor);
    for (int i = 0; i < NUM_PROPERTIES; i++)
        memcpy(properties + PROPERTIES[i].offset, &PROPERTIES[i].value, PROPERTIES[i].size);
    return 0;
}

int cudaDeviceGetAttribute(int *value, int attribute) {
    NEEDS_CUDA
    enum { MAJOR = 75, MINOR = 76 };
    *value = attribute == MAJOR ? settings()->major : attribute == MINOR ? settings()->minor : 0;
    for (int i = 0; i < NUM_PROPERTIES; i++)
        if (PROPERTIES[i].attribute == attribute) *value = (int)PROPERTIES[i].value;
    return 0;
}
ALSO(cuDeviceGetAttribute, cudaDeviceGetAttribute)
