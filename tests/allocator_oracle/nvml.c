/* NVML that sees one process on the GPU: ours. */
#include <stddef.h>
#include <unistd.h>
extern size_t stub_used;
size_t stub_outside(void);
struct process { unsigned pid; unsigned long long used; unsigned instance, compute; };
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device) { *device = (void *)1; return 0; }
int nvmlDeviceGetComputeRunningProcesses(void *device, unsigned *count, struct process *found) {
    if (*count < 1 || !found) { *count = 1; return 7; }
    *count = 1;
    found[0].pid = getpid();
    found[0].used = stub_used + stub_outside();
    return 0;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(void) { return 3; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void) { return 3; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13000; return 0; }
int nvmlDeviceGetGpuFabricInfoV(void) { return 0; }
