// Memory is counted, not stored. Each device owns 8 TiB of addresses, handed out upwards in pages of 2 MiB and used
// again only after a full lap; copies from a device give zeros.
#include "nullgpu.h"
#include <pthread.h>

enum { PAGE_BITS = 21, PAGE = 1 << PAGE_BITS, PAGES = 1 << 22 };
static const u64 FIRST_ADDRESS = 0x100000000000ULL, SPAN = (u64)PAGES << PAGE_BITS;

typedef struct {
    u32 pages_at[PAGES];  // length of the live range that begins at this page, else 0
    u32 next;
    u64 charged;          // bytes of physical memory
} Books;

static Books books[MAX_DEVICES];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void lock(void) { pthread_mutex_lock(&mutex); }
static int unlock(int result) {
    pthread_mutex_unlock(&mutex);
    return result;
}

static u32 pages_for(u64 nbytes) { return (u32)((nbytes + PAGE - 1) >> PAGE_BITS); }

static int device_of(const void *address) {  // -1: host memory
    u64 a = (u64)address;
    return a >= FIRST_ADDRESS && a < FIRST_ADDRESS + MAX_DEVICES * SPAN ? (int)((a - FIRST_ADDRESS) / SPAN) : -1;
}

static u64 address_of(int device, u32 page) { return FIRST_ADDRESS + device * SPAN + ((u64)page << PAGE_BITS); }

static void *take_range(int device, u32 pages) {
    Books *b = &books[device];
    u32 start = b->next;
    for (int wraps = 0; wraps < 2;) {
        if ((u64)start + pages > PAGES) {
            start = 0;
            wraps++;
            continue;
        }
        u32 page = start;
        while (page < start + pages && !b->pages_at[page]) page++;
        if (page == start + pages) {
            b->pages_at[start] = pages;
            b->next = start + pages;
            return (void *)address_of(device, start);
        }
        start = page + b->pages_at[page];
    }
    return NULL;
}

static u64 give_range(int device, const void *address) {
    u32 *pages = &books[device].pages_at[((u64)address - address_of(device, 0)) >> PAGE_BITS];
    u64 nbytes = (u64)*pages << PAGE_BITS;
    *pages = 0;
    return nbytes;
}

u64 device_used_by_us(int device) {
    return books[device].charged + (device_is_awake(device) ? settings()->context : 0);
}

static int charge(int device, u64 nbytes) {
    wake_device(device);
    if (device_used_by_us(device) + settings()->other + nbytes > settings()->total) return OUT_OF_MEMORY;
    books[device].charged += nbytes;
    return 0;
}

int cudaMalloc(void **address, size_t nbytes) {
    NEEDS_CUDA
    *address = NULL;
    if (!settings()->count) return fail(NO_DEVICE);
    if (!nbytes) return 0;
    int device = current_device();
    u32 pages = pages_for(nbytes);
    lock();
    int error = charge(device, (u64)pages << PAGE_BITS);
    if (!error) *address = take_range(device, pages);
    unlock(0);
    return error ? fail(error) : 0;
}
ALSO(cudaMallocAsync, cudaMalloc)

int cudaFree(void *address) {
    NEEDS_CUDA
    int device = device_of(address);
    if (device < 0) return 0;
    lock();
    books[device].charged -= give_range(device, address);
    return unlock(0);
}
ALSO(cudaFreeAsync, cudaFree)

int cudaMemPoolGetAttribute(void *pool, int attribute, u64 *value) {
    NEEDS_CUDA
    *value = books[current_device()].charged;
    return 0;
}

int cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    NEEDS_CUDA
    int device = current_device();
    wake_device(device);
    *total_bytes = settings()->total;
    *free_bytes = settings()->total - device_used_by_us(device) - settings()->other;
    return 0;
}

// Virtual memory management, for expandable segments: ranges cost nothing, handles cost their bytes.
// A handle carries both its device and its size.
enum { HANDLE_DEVICE_SHIFT = 48, FABRIC_HANDLE = 8 };

int cuMemAddressReserve(void **address, size_t nbytes) {
    NEEDS_CUDA
    lock();
    *address = take_range(current_device(), pages_for(nbytes));
    return unlock(*address ? 0 : OUT_OF_MEMORY);
}

int cuMemAddressFree(void *address) {
    NEEDS_CUDA
    lock();
    give_range(device_of(address), address);
    return unlock(0);
}

int cuMemCreate(u64 *handle, size_t nbytes, const int *properties) {  // type, handle type, location type, location
    NEEDS_CUDA
    if (properties[1] == FABRIC_HANDLE) return NOT_SUPPORTED;
    int device = properties[3];
    *handle = (u64)(device + 1) << HANDLE_DEVICE_SHIFT | nbytes;
    lock();
    return unlock(charge(device, nbytes));
}

int cuMemRelease(u64 handle) {
    NEEDS_CUDA
    lock();
    books[(handle >> HANDLE_DEVICE_SHIFT) - 1].charged -= handle & ((1ULL << HANDLE_DEVICE_SHIFT) - 1);
    return unlock(0);
}

int cuMemGetAllocationGranularity(size_t *nbytes) {
    NEEDS_CUDA
    *nbytes = PAGE;
    return 0;
}

// Host memory is real. Pinned ranges are remembered, so that is_pinned() tells the truth.
static struct { char *start; size_t nbytes; } *pinned;
static int num_pinned;

int cudaHostRegister(void *start, size_t nbytes) {
    NEEDS_CUDA
    lock();
    int i = 0;
    while (i < num_pinned && pinned[i].start) i++;
    if (i == num_pinned) pinned = realloc(pinned, ++num_pinned * sizeof *pinned);
    pinned[i].start = start;
    pinned[i].nbytes = nbytes;
    return unlock(0);
}

int cudaHostUnregister(void *start) {
    NEEDS_CUDA
    lock();
    for (int i = 0; i < num_pinned; i++)
        if (pinned[i].start == start) pinned[i].start = NULL;
    return unlock(0);
}

int cudaHostAlloc(void **start, size_t nbytes) {
    NEEDS_CUDA
    return posix_memalign(start, 4096, nbytes) ? fail(OUT_OF_MEMORY) : cudaHostRegister(*start, nbytes);
}
ALSO(cudaMallocHost, cudaHostAlloc)

// A process that shares memory goes through all of it; another one cannot open what it was sent.
int cudaIpcGetMemHandle(void *handle, void *start) {
    NEEDS_CUDA
    memset(handle, 0, 64);
    memcpy(handle, &start, sizeof start);
    return 0;
}
ALSO(cudaIpcGetEventHandle, cudaIpcGetMemHandle)

int cudaFreeHost(void *start) {
    NEEDS_CUDA
    cudaHostUnregister(start);
    free(start);
    return 0;
}

typedef struct { int type, device; const void *device_pointer, *host_pointer; u64 reserved[8]; } PointerAttributes;

int cudaPointerGetAttributes(PointerAttributes *attributes, const char *address) {
    NEEDS_CUDA
    enum { HOST_PINNED = 1, DEVICE = 2 };
    memset(attributes, 0, sizeof *attributes);
    attributes->device_pointer = address;
    attributes->device = device_of(address);
    if (attributes->device >= 0) {
        attributes->type = DEVICE;
        return 0;
    }
    lock();
    for (int i = 0; i < num_pinned; i++)
        if (pinned[i].start && address >= pinned[i].start && address < pinned[i].start + pinned[i].nbytes)
            attributes->type = HOST_PINNED;
    return unlock(0);
}

int cudaMemcpy(void *to, const void *from, size_t nbytes) {
    NEEDS_CUDA
    if (device_of(to) >= 0) return 0;
    if (device_of(from) >= 0) memset(to, 0, nbytes);
    else memmove(to, from, nbytes);
    return 0;
}
ALSO(cudaMemcpyAsync, cudaMemcpy)

int cudaMemcpy2DAsync(char *to, size_t to_pitch, const char *from, size_t from_pitch, size_t width, size_t rows) {
    for (size_t row = 0; row < rows; row++) cudaMemcpy(to + row * to_pitch, from + row * from_pitch, width);
    return 0;
}
