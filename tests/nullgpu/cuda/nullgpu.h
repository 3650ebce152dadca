// What the stand-ins share: the settings of a run, the error codes, the books of every device.
#pragma once
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t u64;
typedef uint32_t u32;

enum { MAX_DEVICES = 8 };
enum {  // cudaError_t
    OUT_OF_MEMORY = 2,
    INITIALIZATION_ERROR = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    NOT_READY = 600,
    NOT_SUPPORTED = 801,
};

typedef struct {
    u64 total, context, other, cudnn_workspace;
    int major, minor;            // compute capability
    int physical;                // devices in the machine
    int count;                   // devices this process may see ...
    int visible[MAX_DEVICES];    // ... and which they are
    int pending;                 // events wait for a synchronisation
} Settings;

#pragma GCC visibility push(hidden)  // torch must not find these
const Settings *settings(void);        // from the environment, read once
int is_lost(void);                     // a fork of a process that had used CUDA, which cannot use it
int fail(int error);                   // remembers the error for cudaGetLastError
void *fresh_handle(void);              // never NULL, never the same twice
int current_device(void);
void wake_device(int device);          // its context exists from now on
int device_is_awake(int device);
u64 device_used_by_us(int device);     // context included
#pragma GCC visibility pop

// What stands at the beginning of a function that needs the driver.
#define NEEDS_CUDA if (is_lost()) return fail(INITIALIZATION_ERROR);

// A second name for a function whose answer is the same.
#define ALSO(name, function) int name() __attribute__((alias(#function)));
