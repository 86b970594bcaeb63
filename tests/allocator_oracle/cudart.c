/* A CUDA runtime without a GPU: counts the bytes that are handed out, up to STUB_TOTAL less STUB_OUTSIDE. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cuda.h>
#include <cuda_runtime_api.h>

#define SLOTS (1u << 22)
static struct { uintptr_t key; size_t size; } table[SLOTS]; /* open addressing; key 1 marks a removed entry */
static uintptr_t next_address = 0x7f0000000000ull;
size_t stub_used = 0;
int stub_ready = 1;

static size_t slot(uintptr_t key) { return (key * 0x9E3779B97F4A7C15ull) >> 42; }
static void put(uintptr_t key, size_t size) {
    size_t i = slot(key) % SLOTS;
    while (table[i].key > 1) i = (i + 1) % SLOTS;
    table[i].key = key; table[i].size = size;
}
static size_t take(uintptr_t key) {
    size_t i = slot(key) % SLOTS;
    while (table[i].key != key) { if (!table[i].key) abort(); i = (i + 1) % SLOTS; }
    table[i].key = 1;
    return table[i].size;
}
static size_t number(const char *name, size_t otherwise) {
    const char *text = getenv(name);
    return text ? strtoull(text, 0, 10) : otherwise;
}
size_t stub_total(void) { return number("STUB_TOTAL", 1ull << 37); }
size_t stub_outside(void) { return number("STUB_OUTSIDE", 0); }
static int full(size_t size) { return stub_used + size + stub_outside() > stub_total(); }

cudaError_t cudaMalloc(void **pointer, size_t size) {
    if (full(size)) return cudaErrorMemoryAllocation;
    stub_used += size;
    put(next_address, size);
    *pointer = (void *)next_address;
    next_address += (size + 0x1fffff) & ~(uintptr_t)0x1fffff;
    return 0;
}
cudaError_t cudaFree(void *pointer) { if (pointer) stub_used -= take((uintptr_t)pointer); return 0; }
cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
    *total = stub_total(); *available = *total - stub_outside() - stub_used; return 0;
}
cudaError_t cudaGetDeviceCount(int *count) { *count = 1; return 0; }
cudaError_t cudaGetDevice(int *device) { *device = 0; return 0; }
cudaError_t cudaSetDevice(int device) { return 0; }
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *found, int device) {
    memset(found, 0, sizeof *found);
    strcpy(found->name, "stub");
    found->totalGlobalMem = stub_total(); found->major = 9; found->multiProcessorCount = 132; found->pciBusID = 1;
    return 0;
}
cudaError_t cudaGetLastError(void) { return 0; }
const char *cudaGetErrorString(cudaError_t error) { return "stub error"; }
const char *cudaGetErrorName(cudaError_t error) { return "stub"; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) { *event = malloc(1); return 0; }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return 0; }
cudaError_t cudaEventQuery(cudaEvent_t event) { return stub_ready ? 0 : cudaErrorNotReady; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) { return 0; }
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return 0; }
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) { *status = 0; return 0; }
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) { return 0; }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return 0; }
cudaError_t cudaStreamQuery(cudaStream_t stream) { return 0; }
cudaError_t cudaDeviceSynchronize(void) { return 0; }
cudaError_t cudaDriverGetVersion(int *version) { *version = 13000; return 0; }
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { *least = 0; *greatest = -1; return 0; }

static CUresult reserve(CUdeviceptr *address, size_t size, size_t a, CUdeviceptr b, unsigned long long c) {
    *address = next_address;
    next_address += ((size + 0x1fffff) & ~(uintptr_t)0x1fffff) + 0x200000;
    return 0;
}
static CUresult create(CUmemGenericAllocationHandle *handle, size_t size, const void *a, unsigned long long b) {
    static uintptr_t last = 1;
    if (full(size)) return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = ++last;
    put(last, size);
    stub_used += size;
    return 0;
}
static CUresult release(CUmemGenericAllocationHandle handle) { stub_used -= take(handle); return 0; }
static CUresult attribute(int *value, int a, int b) { *value = 0; return 0; }
static CUresult message(CUresult error, const char **text) { *text = "stub driver error"; return 0; }
static CUresult fine(void) { return 0; }
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned a, unsigned long long b,
                                             enum cudaDriverEntryPointQueryResult *status) {
    if (status) *status = cudaDriverEntryPointSuccess;
    *function = !strcmp(name, "cuMemAddressReserve") ? (void *)reserve
              : !strcmp(name, "cuMemCreate") ? (void *)create
              : !strcmp(name, "cuMemRelease") ? (void *)release
              : !strcmp(name, "cuDeviceGetAttribute") ? (void *)attribute
              : !strcmp(name, "cuGetErrorString") ? (void *)message : (void *)fine;
    return 0;
}
