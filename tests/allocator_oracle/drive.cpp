// Reads commands, one a line, and calls PyTorch's allocator; prints its counters, segments and errors.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/PeerToPeerAccess.h>
#include <cstdio>
#include <map>
#include <string>
#include <unistd.h>
#include <unordered_map>
namespace allocator = c10::cuda::CUDACachingAllocator;
namespace c10::cuda::_internal { void setHasPrimaryContext(bool (*)(c10::DeviceIndex)); }
extern "C" { extern int stub_ready; }

static void counters() {
    auto found = allocator::getDeviceStats(0);
    printf("counters");
    for (auto* stat : {&found.requested_bytes, &found.allocated_bytes, &found.active_bytes, &found.reserved_bytes,
                       &found.inactive_split_bytes, &found.segment})
        printf(" %ld %ld", (long)(*stat)[0].current, (long)(*stat)[0].peak);
    printf(" %ld\n", (long)found.num_alloc_retries);
}

static void layout() {
    std::map<size_t, allocator::SegmentInfo> by_address;
    for (auto& segment : allocator::snapshot({0, 0}, false).segments) by_address[segment.address] = segment;
    printf("layout");
    for (auto& [address, segment] : by_address) {
        printf(" %s%s%ld", segment.is_expandable ? "e" : "m", segment.is_large ? "l" : "s", (long)segment.stream);
        for (auto& block : segment.blocks)
            printf(",%zu%s", block.size, block.allocated ? "a" : block.active ? "w" : "");
    }
    printf("\n");
}

int main() {
    c10::cuda::_internal::setHasPrimaryContext(+[](c10::DeviceIndex) { return true; });
    allocator::init(1);
    c10::cuda::detail::init_p2p_access_cache(1);
    std::unordered_map<long, void*> live;
    char line[256];
    long id, size, stream;
    while (fgets(line, sizeof line, stdin)) switch (line[0]) {
        case 'a':
            sscanf(line + 1, "%ld %ld %ld", &id, &size, &stream);
            try {
                live[id] = allocator::raw_alloc_with_stream(size, (cudaStream_t)stream);
            } catch (const c10::Error& error) {
                printf("error %s\n", error.what_without_backtrace());
            }
            break;
        case 'f':
            sscanf(line + 1, "%ld", &id);
            allocator::raw_delete(live[id]);
            live.erase(id);
            break;
        case 'u': {
            sscanf(line + 1, "%ld %ld", &id, &stream);
            c10::DataPtr data(live[id], live[id], allocator::get()->raw_deleter(), c10::Device(c10::kCUDA, 0));
            allocator::recordStream(data, c10::cuda::getStreamFromExternal((cudaStream_t)stream, 0));
            data.release_context();
            break;
        }
        case 'e': allocator::emptyCache(); break;
        case 'r': allocator::resetPeakStats(0); break;
        case 'w': stub_ready = 0; break;
        case 'c': counters(); break;
        case 'l': layout(); break;
    }
    fflush(stdout);
    _exit(0);
}
