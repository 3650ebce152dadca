// The environment variables that tests/nullgpu/run.py sets.
#include "nullgpu.h"
#include <pthread.h>

static Settings values;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static u64 size_from(const char *variable, const char *otherwise) {  // 24GiB, 512M, 1000
    const char *text = getenv(variable);
    if (!text || !*text) text = otherwise;
    char *unit;
    double number = strtod(text, &unit);
    switch (*unit & ~0x20) {
        case 'T': number *= 1024;  // fall through
        case 'G': number *= 1024;  // fall through
        case 'M': number *= 1024;  // fall through
        case 'K': number *= 1024;
    }
    return (u64)number;
}

static void choose_visible(const char *list) {  // as CUDA reads it: everything before the first bad entry
    while (list && *list && values.count < MAX_DEVICES) {
        char *end;
        long device = strtol(list, &end, 10);
        if (end == list || device < 0 || device >= values.physical) return;
        values.visible[values.count++] = (int)device;
        list = *end == ',' ? end + 1 : end;
    }
}

static void read_environment(void) {
    values.total = size_from("NULLGPU_TOTAL", "80G");
    values.context = size_from("NULLGPU_CONTEXT", "0");
    values.other = size_from("NULLGPU_OTHER", "0");
    values.cudnn_workspace = size_from("NULLGPU_CUDNN_WS", "0");
    values.pending = size_from("NULLGPU_PENDING", "0") != 0;
    u64 devices = size_from("NULLGPU_DEVICES", "1");
    values.physical = devices < MAX_DEVICES ? (int)devices : MAX_DEVICES;
    const char *capability = getenv("NULLGPU_CC");
    if (!capability || sscanf(capability, "%d.%d", &values.major, &values.minor) < 1) values.major = 9;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    choose_visible(visible ? visible : "0,1,2,3,4,5,6,7");
}

const Settings *settings(void) {
    pthread_once(&once, read_environment);
    return &values;
}
