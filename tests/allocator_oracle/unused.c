/* What libc10_cuda.so links to but the allocator never calls here. Without prototypes, so no header. */
#define NEVER(name) int name() { return 801; }
NEVER(cudaDeviceCanAccessPeer) NEVER(cudaDeviceEnablePeerAccess) NEVER(cudaDeviceGetDefaultMemPool)
NEVER(cudaDeviceGetGraphMemAttribute) NEVER(cudaDeviceSetGraphMemAttribute)
NEVER(cudaEventElapsedTime) NEVER(cudaFreeAsync) NEVER(cudaGraphNodeGetDependencies) NEVER(cudaIpcCloseMemHandle)
NEVER(cudaIpcGetMemHandle) NEVER(cudaIpcOpenMemHandle) NEVER(cudaMallocAsync) NEVER(cudaMemPoolGetAttribute)
NEVER(cudaMemPoolSetAccess) NEVER(cudaMemPoolSetAttribute) NEVER(cudaMemPoolTrimTo) NEVER(cudaMemcpy)
NEVER(cudaMemcpyAsync) NEVER(cudaMemcpyPeerAsync) NEVER(cudaStreamCreateWithPriority) NEVER(cudaStreamGetCaptureInfo)
NEVER(cudaStreamWaitEvent)
