"""What libraries write where memory ran out, and what only looks like it; retold from public reports and sources.

The lists ``..._ASIDE`` were written after the patterns and are kept unmended: how many of them are known says how well
the patterns carry to texts that they were not written for.
"""

# ruff: noqa: E501

from __future__ import annotations

GiB, MiB = 1 << 30, 1 << 20

DEVICE: list[tuple[str, int | None]] = [
    ("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 24.00 GiB", 2 * GiB),
    ("CUDA out of memory", None),
    ("CUDA out of memory. Tried to allocate more than 1EB memory.", None),
    ("CUDA out of memory. Allocation was preemptively rejected because it would exceed per_process_memory_fraction "
     "limit. Requested size: 1.50 GiB", 3 * GiB // 2),
    ("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call", None),
    ("CUDA error: out of memory\nCUDA ran out of memory outside PyTorch's allocator. If this workload uses many "
     "dynamic shapes, cuDNN may need additional device memory", None),
    ("CUDA driver error: out of memory", None),
    ("cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/THCStorage.cu:58", None),
    ("CUDA error (/src/flash_attn/flash_fwd_launch_template.h:123): out of memory", None),
    ("CUDA failure 2: out of memory ; GPU=0 ; hostname=box ; expr=cudaMalloc((void**)&p, size);", None),
    ("Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 15.16 GiB\n"
     "Requested               : 512.00 KiB\nDevice limit            : 15.99 GiB", 512 << 10),
    ("Allocation on device  would exceed allowed memory. (out of memory)\nRequested : 2.00 MiB", 2 * MiB),
    ("HIP out of memory. Tried to allocate 20.00 MiB (GPU 0; 15.98 GiB total capacity)", 20 * MiB),
    ("HIP error: out of memory\nHIP kernel errors might be asynchronously reported", None),
    ("XPU out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 15.91 GiB.", 4 * GiB),
    ("NPU out of memory. Tried to allocate 9.98 GiB (NPU 0; 61.28 GiB total; 55.17 GiB already allocated)",
     int(9.98 * GiB)),
    ("MPS backend out of memory (MPS allocated: 8.00 GB, other allocations: 1.07 GB, max allowed: 9.07 GB). "
     "Tried to allocate 256.00 MB on private pool.", 256 * MiB),
    ("Invalid buffer size: 32.00 GiB", 32 * GiB),
    ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", None),
    ("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`", None),
    ("cuDNN error: CUDNN_STATUS_ALLOC_FAILED", None),
    ("cuDNN Frontend error: [cudnn_frontend] Error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED", None),
    ("cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`", None),
    ("cuFFT error: CUFFT_ALLOC_FAILED", None),
    ("CUDA error: CUSPARSE_STATUS_INSUFFICIENT_RESOURCES when calling `cusparseSpGEMM_compute(...)`", None),
    ("MIOpen Error: miopenStatusAllocFailed", None),
    ("NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled cuda error, NCCL version 2.21.5\nLast error:\nCuda failure 2",
     None),
    ("NCCL error in: NCCLUtils.hpp:328, unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version "
     "2.20.5\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nFailed to CUDA calloc 536870912 bytes",
     512 * MiB),
    ("ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nFailed to CUDA calloc async 2432 bytes", 2432),
    ("NCCL WARN Cuda failure 'out of memory'", None),
    ("Triton Error [CUDA]: out of memory", None),
    ("parallel_for failed: cudaErrorMemoryAllocation: out of memory", None),
    ("Error out of memory at line 351 in file /src/bitsandbytes/csrc/pythonInterface.c", None),
    ("ggml_backend_cuda_buffer_type_alloc_buffer: allocating 1024.00 MiB on device 0: cudaMalloc failed: out of memory",
     GiB),
    ("std::bad_alloc: out_of_memory: CUDA error at: rmm/mr/device/cuda_memory_resource.hpp:70: "
     "cudaErrorMemoryAllocation out of memory", None),
    ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 7406166528 bytes.", 7406166528),
    ("RESOURCE_EXHAUSTED: Error loading program: Attempting to reserve 7.04G at the bottom of memory. That was not "
     "possible. There are 6.90G free, 0B reserved, and 6.90G reservable.", int(7.04 * GiB)),
    ("Native API failed. Native API returns: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)", None),
    ("No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.", None),
    ("To serve at least one request with the model's max seq len (131072), (5.07 GiB KV cache is needed, which is larger "
     "than the available KV cache memory (4.34 GiB).", int(5.07 * GiB)),
    ("\n\n-- Process 0 terminated with the following error:\nTraceback (most recent call last):\n"
     '  File "train.py", line 3, in main\n    y = model(x)\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate '
     "64.00 MiB. GPU 0 has a total capacity of 8.00 GiB", 64 * MiB),
    ("[Errno 12] ErrorCode:RuntimeException Failed to allocate memory for requested buffer of size 684345600",
     684345600),
]  # fmt: skip
HOST: list[tuple[str, int | None]] = [
    ("[enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
     "4096 bytes. Error code 12 (Cannot allocate memory)", 4096),
    ("[enforce fail at alloc_cpu.cpp:80] . DefaultCPUAllocator: not enough memory: you tried to allocate 64 bytes.", 64),
    ("$ Torch: unable to mmap memory: you tried to mmap 3GB.", 3 * GiB),
    ("unable to mmap 49907246508 bytes from file </models/model.safetensors>: Cannot allocate memory (12)", 49907246508),
    ("[Errno 12] Cannot allocate memory", None),
    ("std::bad_alloc", None),
    ("Unable to allocate 7.45 GiB for an array with shape (1000, 1000, 1000) and data type float64", int(7.45 * GiB)),
    ("DataLoader worker (pid 4242) is killed by signal: Killed. ", None),
    ("OpenCV(4.10.0) /io/opencv/modules/core/src/alloc.cpp:73: error: (-4:Insufficient memory) Failed to allocate "
     "1228800000 bytes in function 'OutOfMemoryError'", 1228800000),
    ("[WinError 1455] The paging file is too small for this operation to complete. Error loading cufft64_10.dll", None),
]  # fmt: skip
SHARED: list[tuple[str, int | None]] = [
    ("DataLoader worker (pid(s) 7) is killed by signal: Bus error. It is possible that dataloader's workers are out of "
     "shared memory. Please try to raise your shared memory limit.", None),
    ("unable to write to file </torch_15769_1517813162>", None),
    ("unable to write to file </torch_722_783672312_1>: No space left on device (28)", None),
    ("unable to allocate shared memory(shm) for file </torch_4304_2962414746_0>: No space left on device (28)", None),
    ("unable to allocate shared memory(shm) for file </torch_41_7>: Resource temporarily unavailable (11)", None),
    ("unable to mmap 1048576 bytes from file </torch_12_34>: Cannot allocate memory (12)", MiB),
    ("ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
     None),
    ("[Errno 28] No space left on device: '/dev/shm/psm_21467'", None),
    ("NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled system error, NCCL version 2.21.5\nLast error:\nError while "
     "creating shared memory segment /dev/shm/nccl-YRkVqC (size 9637888)", 9637888),
]  # fmt: skip
NO: list[str] = [
    "out of resource: shared memory, Required: 131072, Hardware limit: 101376. Reducing block sizes or `num_stages` may "
    "help.",
    "No valid triton configs. OutOfMemoryError: out of resource: triton_per_fused_0 Required: 262144 Hardware limit:"
    "232448 Reducing block sizes or `num_stages` may help.",
    "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be asynchronously reported",
    "CUDA error: misaligned address",
    "CUDA error: device-side assert triggered",
    "CUDA error: too many resources requested for launch",
    "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(...)`",
    "CUDA error: unspecified launch failure",
    "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed in a non-contiguous input.",
    "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
    "mat1 and mat2 shapes cannot be multiplied (4x8 and 16x8)",
    "DataLoader worker (pid 4242) is killed by signal: Terminated. ",
    "DataLoader worker (pid 4242) is killed by signal: Segmentation fault. ",
    "DataLoader worker (pid(s) 3216) exited unexpectedly",
    "the model is out of memory slots for this key",
    "Cannot assign requested address",
    "[Errno 28] No space left on device: '/data/checkpoints/last.pt'",
    "[enforce fail at inline_container.cc:659] . unexpected pos 704 vs 640",
    "PytorchStreamWriter failed writing file data/3: file write failed",
    "unable to write to file <checkpoint.bin>: No space left on device (28)",
    "I/O error: No space left on device (os error 28)",
    "unsupported memory format option Preserve",
    "memory format option is only supported by strided tensors",
    "libgomp.so.1: cannot allocate memory in static TLS block",
    "unable to open shared memory object </torch_6_7> in read-write mode: Too many open files (24)",
    "unable to mmap 4096 bytes from file </torch_1_2>: Invalid argument (22)",
    "received 0 items of ancdata",
    "batch 512 would cause CUDA out of memory errors on this card, choose a smaller one",
    "refusing to start: with these settings you would run out of memory",
    "CUDA out of memory handling is not supported by this backend",
    "the replay memory is empty: call add() before sample()",
    "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space vmem. Used 17.5M of 16M",
    "429 RESOURCE_EXHAUSTED. You exceeded your current quota",
    "NCCL error in: NCCLUtils.hpp:275, unhandled cuda error, NCCL version 2.20.5\nncclUnhandledCudaError: Call to CUDA "
    "function failed.\nLast error:\nCuda failure 1 'invalid argument'",
    "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False.",
]
DEVICE_ASIDE: list[str] = [
    "CUDA failed with error out of memory",
    "Error: 'err == cudaSuccess' failed: StandardGpuResources: alloc fail type FlatData dev 0 space Device stream 0x5 size "
    "12884901888 bytes (cudaMalloc error out of memory [2])",
    "[TRT] [E] 1: [defaultAllocator.cpp::allocate::20] Error Code 1: Cuda Runtime (out of memory)",
    "[2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY",
    "cuMemAlloc failed: out of memory",
    "hipErrorOutOfMemory: out of memory",
    "HIP out of memory. Tried to allocate 1.16 GiB. GPU 0 has a total capacity of 15.98 GiB of which 0 bytes is free.",
    "vk::Device::allocateMemory: ErrorOutOfDeviceMemory",
    "[METAL] Command buffer execution failed: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
    "NVML_SUCCESS == r INTERNAL ASSERT FAILED ... CUDA error: out of memory",
    "Caught OutOfMemoryError in replica 1 on device 1.\nOriginal Traceback (most recent call last):\n  File \"parallel_"
    "apply.py\", line 83, in _worker\n    output = module(*input, **kwargs)\ntorch.OutOfMemoryError: CUDA out of memory. "
    "Tried to allocate 20.00 MiB.",
    "CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try lowering `max_num_seqs`",
    "INTERNAL: Failed to allocate 1073741824 bytes for new constant: RESOURCE_EXHAUSTED: Failed to allocate request for "
    "1.00GiB (1073741824B) on device ordinal 0",
    "CUDA error: CURAND_STATUS_ALLOCATION_FAILED when calling `curandCreateGenerator`",
    "CUTLASS error: Error Memory Allocation failed at: 114",
    "[rank3]: torch.distributed.DistBackendError: NCCL error in: /src/NCCLUtils.cpp:77, unhandled cuda error, NCCL version "
    "2.26.2\n[rank3]: Last error:\n[rank3]: Failed to CUDA calloc async 608 bytes",
    "CUDA error at /tmp/DeepEP/csrc/deep_ep.cpp:31: 'out of memory'",
    "OOM when allocating tensor with shape[64,512,56,56] and type float on /job:localhost/replica:0/task:0/device:GPU:0",
    "CUDA runtime error: out of memory (2) at csrc/workspace.cu:88",
    "/opt/dali/operators.cc: Critical error in pipeline: CUDA allocation failed",
]  # fmt: skip
HOST_ASIDE: list[str] = [
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
    "memory allocation of 17179869184 bytes failed",
    "malloc of size 8589934592 failed",
    "/data/train.lmdb: Cannot allocate memory",
    "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
    "137438953472 bytes. Error code 12 (Cannot allocate memory)",
    "bad allocation",
    "Task was killed due to the node running low on memory.",
    "fork: Cannot allocate memory",
]
SHARED_ASIDE: list[str] = [
    "unable to resize file </torch_91_2> to the right size: No space left on device (28)",
    "NCCL error in: NCCLUtils.cpp:77, unhandled system error\nLast error:\nError: failed to extend /dev/shm/nccl-03v824 to "
    "4194660 bytes",
    "Caught RuntimeError in DataLoader worker process 1.\nOriginal Traceback (most recent call last):\n  File \"w.py\", line "
    "3\n    fd, size = storage._share_fd_cpu_()\nRuntimeError: unable to write to file </torch_722_7_1>: No space left on "
    "device (28)",
    "posix_fallocate of /dev/shm/nccl-Xy failed: No space left on device",
]  # fmt: skip
NO_ASIDE: list[str] = [
    "out of resource: tensor memory, Required: 640, Hardware limit: 512. Reducing block sizes may help.",
    "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
    "CUDA error: no kernel image is available for execution on the device",
    "The size of tensor a (512) must match the size of tensor b (77) at non-singleton dimension 1",
    "Found 0 free memory pools; call warmup() first",
    "Set PYTORCH_CUDA_ALLOC_CONF to avoid out of memory errors in long runs",
    'Error while serializing: IoError(Os { code: 28, kind: StorageFull, message: "No space left on device" })',
    "[Errno 28] No space left on device: '/tmp/torchinductor/cache'",
    "NCCL communicator was aborted on rank 0. Original reason for failure was: watchdog timeout",
    "OOM command not allowed when used memory > 'maxmemory'.",
    "cuDNN error: CUDNN_STATUS_MAPPING_ERROR",
    "Attempted to access the data pointer on an invalid python storage.",
    "[Errno 24] Too many open files: '/dev/shm'",
    "batch_size must shrink: last epoch ended in CUDA out of memory, see the log",
    "grpc: RESOURCE_EXHAUSTED: Received message larger than max (10485760 vs. 4194304)",
]
