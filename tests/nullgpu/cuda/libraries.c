// cuBLAS, cuDNN and NCCL: every plan is accepted, no result is ever written.
#include "nullgpu.h"

int cublasGetMathMode(void *handle, int *mode) {
    *mode = 0;
    return 0;
}
ALSO(cublasGetPointerMode_v2, cublasGetMathMode)
ALSO(ncclCommGetAsyncError, cublasGetMathMode)

int cublasGetStream_v2(void *handle, void **stream) {
    *stream = NULL;
    return 0;
}
ALSO(cudnnGetStream, cublasGetStream_v2)

int cublasGetVersion_v2(void *handle, int *version) {
    *version = CUDA_VERSION * 10;
    return 0;
}

size_t cublasLtGetVersion(void) { return CUDA_VERSION * 10; }

int cublasLtMatmulAlgoGetHeuristic(void *handle, void *operation, void *a, void *b, void *c, void *d, void *preference,
                                   int asked, char *results, int *found) {
    memset(results, 0, 96);  // one algorithm, without a workspace
    *found = 1;
    return 0;
}

static const char NO_CUDNN[] = "not supported by the null GPU";

size_t cudnnGetVersion(void) { return CUDNN_VERSION; }
size_t cudnnGetCudartVersion(void) { return CUDA_VERSION; }
const char *cudnnGetErrorString(int error) { return NO_CUDNN; }
void cudnnGetLastErrorString(char *text, size_t room) { snprintf(text, room, "%s", NO_CUDNN); }

int cudnnGetProperty(int part, int *value) {
    static const int unit[] = {10000, 100, 1};
    *value = CUDNN_VERSION / unit[part] % 100;
    return 0;
}

int cudnnDropoutGetStatesSize(void *handle, size_t *nbytes) {
    *nbytes = 1 << 20;
    return 0;
}

int cudnnBackendCreateDescriptor(int type, void **descriptor) {
    *descriptor = fresh_handle();
    return 0;
}

int cudnnBackendGetAttribute(void *descriptor, int name, int type, int64_t room, int64_t *count, int64_t *values) {
    enum { ENGINE_RESULTS = 202, PLAN_WORKSPACE = 402, TYPE_ENUM = 1, TYPE_INT64 = 3 };
    if (count) *count = name == ENGINE_RESULTS && room > 1 ? room : 1;
    if (values && room > 0 && name != ENGINE_RESULTS && (type == TYPE_INT64 || type == TYPE_ENUM))
        *values = name == PLAN_WORKSPACE ? (int64_t)settings()->cudnn_workspace : 0;
    return 0;
}

int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void *h, int mode, int ops, void *x, void *z, void *y,
                                                             void *scale, void *activation, size_t *nbytes) {
    *nbytes = 0;
    return 0;
}

int cudnnGetBatchNormalizationBackwardExWorkspaceSize(void *h, int mode, int ops, void *x, void *y, void *dy, void *dz,
                                                      void *dx, void *scale, void *activation, size_t *nbytes) {
    *nbytes = 0;
    return 0;
}

int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void *h, int mode, int ops, void *activation, void *x,
                                                         size_t *nbytes) {
    *nbytes = 0;
    return 0;
}

typedef struct { int ranks, rank; } Communicator;

int ncclGetVersion(int *version) {
    *version = NCCL_VERSION;
    return 0;
}

int ncclGetUniqueId(char *id) {
    memset(id, 1, 128);
    return 0;
}

int ncclCommInitRank(Communicator **communicator, int ranks, struct { char bytes[128]; } id, int rank) {
    *communicator = malloc(sizeof **communicator);
    **communicator = (Communicator){ranks, rank};
    return 0;
}
ALSO(ncclCommInitRankConfig, ncclCommInitRank)

int ncclCommCount(Communicator *communicator, int *ranks) {
    *ranks = communicator->ranks;
    return 0;
}

int ncclCommUserRank(Communicator *communicator, int *rank) {
    *rank = communicator->rank;
    return 0;
}

const char *ncclGetErrorString(int error) { return "null"; }
const char *ncclGetLastError(void *communicator) { return ""; }
