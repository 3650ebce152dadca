// Streams, events, graph capture, kernels: everything is over as soon as it is asked for.
#include "nullgpu.h"
#include <dlfcn.h>
#include <time.h>

// An event is the host time of its record. With `pending` it is complete only after a later synchronisation.
static double last_sync;

static double milliseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

int cudaEventCreate(double **event) {
    NEEDS_CUDA
    *event = calloc(1, sizeof **event);
    return 0;
}
ALSO(cudaEventCreateWithFlags, cudaEventCreate)

int cudaEventDestroy(double *event) {
    NEEDS_CUDA
    free(event);
    return 0;
}

int cudaEventRecord(double *event) {
    NEEDS_CUDA
    *event = milliseconds();
    return 0;
}
ALSO(cudaEventRecordWithFlags, cudaEventRecord)

int cudaEventQuery(double *event) { NEEDS_CUDA return settings()->pending && *event > last_sync ? fail(NOT_READY) : 0; }

int cudaEventSynchronize(double *event) {
    NEEDS_CUDA
    if (*event > last_sync) last_sync = *event;
    return 0;
}

int cudaEventElapsedTime(float *elapsed, double *start, double *end) {
    NEEDS_CUDA
    *elapsed = (float)(*end - *start);
    return 0;
}

int cudaDeviceSynchronize(void) {
    NEEDS_CUDA
    last_sync = milliseconds();
    return 0;
}
ALSO(cudaStreamSynchronize, cudaDeviceSynchronize)

int cudaStreamGetPriority(void *stream, int *priority) {
    NEEDS_CUDA
    *priority = 0;
    return 0;
}

// Graph capture: one stream at a time; a graph has one node, itself.
static void *capturing;
static u64 num_captures;

int cudaStreamBeginCapture(void *stream) {
    NEEDS_CUDA
    capturing = stream;
    num_captures++;
    return 0;
}

int cudaStreamEndCapture(void *stream, void **graph) {
    NEEDS_CUDA
    capturing = NULL;
    *graph = fresh_handle();
    return 0;
}

int cudaStreamIsCapturing(void *stream, int *status) {
    NEEDS_CUDA
    *status = stream && stream == capturing;
    return 0;
}

int cudaStreamGetCaptureInfo(void *stream, int *status, u64 *id, void **graph, void **nodes, void **edges, size_t *n) {
    NEEDS_CUDA
    if (id) *id = num_captures;
    if (graph) *graph = stream;
    if (nodes) *nodes = NULL;
    if (edges) *edges = NULL;
    if (n) *n = 0;
    return cudaStreamIsCapturing(stream, status);
}

int cudaGraphGetNodes(void *graph, void **nodes, size_t *n) {
    NEEDS_CUDA
    *n = 1;
    if (nodes) *nodes = graph;
    return 0;
}

int cudaLaunchHostFunc(void *stream, void (*function)(void *), void *argument) {
    NEEDS_CUDA
    function(argument);
    return 0;
}

int cudaStreamAddCallback(void *stream, void (*function)(void *, int, void *), void *argument) {
    NEEDS_CUDA
    function(stream, 0, argument);
    return 0;
}

int cudaFuncGetAttributes(int *attributes) {
    NEEDS_CUDA
    enum { MAX_THREADS = 6, REGISTERS, PTX_VERSION, BINARY_VERSION };
    memset(attributes, 0, 144);
    attributes[MAX_THREADS] = 1024;
    attributes[REGISTERS] = 32;
    attributes[PTX_VERSION] = attributes[BINARY_VERSION] = 10 * settings()->major + settings()->minor;
    return 0;
}

int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks) {
    NEEDS_CUDA
    *blocks = 2;
    return 0;
}
ALSO(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, cudaOccupancyMaxActiveBlocksPerMultiprocessor)
ALSO(cuOccupancyMaxActiveBlocksPerMultiprocessor, cudaOccupancyMaxActiveBlocksPerMultiprocessor)

void **__cudaRegisterFatBinary(void *binary) { return binary; }

int nvrtcGetPTXSize(void *program, size_t *nbytes) {
    *nbytes = 1;
    return 0;
}
ALSO(nvrtcGetCUBINSize, nvrtcGetPTXSize)
ALSO(nvrtcGetProgramLogSize, nvrtcGetPTXSize)

int nvrtcGetLoweredName(void *program, const char *expression, const char **name) {
    *name = "null";
    return 0;
}

int nvrtcVersion(int *major, int *minor) {
    *major = CUDA_VERSION / 1000;
    *minor = CUDA_VERSION / 10 % 100;
    return 0;
}

// PyTorch asks for the driver's functions by name; what this library does not define succeeds and does nothing.
static int nothing() { return 0; }

int cudaGetDriverEntryPointByVersion(const char *name, void **function, u32 version, u64 flags, int *status) {
    NEEDS_CUDA
    Dl_info self;
    dladdr((void *)nothing, &self);
    void *library = dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    *function = library ? dlsym(library, name) : NULL;
    if (!*function) *function = (void *)nothing;
    if (status) *status = 0;
    return 0;
}
