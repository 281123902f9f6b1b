// SPDX-License-Identifier: Apache-2.0
#include "graphs.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "blocks.hpp"
#include "queues.hpp"

namespace dp::cuda_emulator {
namespace {

using Nodes = std::vector<GraphNode>;

struct Capture {
    cudaStream_t origin;
    std::thread::id thread;
    bool is_valid = true;
    std::set<cudaStream_t> unjoined = {};
    Nodes nodes = {};
};

// Never freed: something may be queued after the static objects.
struct Captures {
    std::mutex mutex;
    std::map<cudaStream_t, std::shared_ptr<Capture>> streams;
    // The capture in which it was recorded, and where.
    std::map<cudaEvent_t, std::pair<std::shared_ptr<Capture>, cudaStream_t>> events;
};
Captures& captures() {
    static auto* all = new Captures;
    return *all;
}

std::atomic<std::uint64_t> launches;
thread_local bool is_launching = false;

cudaError_t invalid(Capture& capture, cudaError_t why) {
    capture.is_valid = false;
    note(why);
    return why;
}

std::shared_ptr<Capture> capture_of(cudaStream_t stream) {
    const auto found = captures().streams.find(stream);
    return found == captures().streams.end() ? nullptr : found->second;
}

Nodes& nodes_of(void* handle) {
    return *static_cast<Nodes*>(handle);
}

// Of the graph, and of those that are made of it.
cudaGraphNode_t handle_of(std::size_t place) {
    return reinterpret_cast<cudaGraphNode_t>(place + 1);
}
std::size_t place_of(cudaGraphNode_t node) {
    return reinterpret_cast<std::uintptr_t>(node) - 1;
}

std::atomic<bool> was_captured = false;

bool is_refused(std::string_view what) {
    const char* said = std::getenv("DP_CUDA_EMULATOR_GRAPHS");
    return said != nullptr && what == said;
}

cudaError_t noted(cudaError_t why) {
    note(why);
    return why;
}

}  // namespace

void count_launch() {
    [[maybe_unused]] static const bool once = [] {
        const char* said = std::getenv("DP_CUDA_EMULATOR_LAUNCHES");
        if (said != nullptr && std::string_view(said) == "said")
            std::atexit([] {
                std::fprintf(stderr, "emulated GPU: the host queued something %llu times\n",
                             static_cast<unsigned long long>(launches.load()));
            });
        return true;
    }();
    if (!is_launching) ++launches;
}

// For tests, which look it up (step_capture_test.cpp).
extern "C" unsigned long long dp_cuda_emulator_launches() {
    return launches;
}

bool keep_if_captured(cudaStream_t stream, const GraphNode& node, cudaError_t& result) {
    Captures& all = captures();
    const std::lock_guard lock(all.mutex);
    result = cudaSuccess;
    const auto capture = capture_of(stream);
    if (capture == nullptr) {
        if (stream != nullptr || all.streams.empty()) return false;
        for (const auto& [other, of_other] : all.streams)
            result = invalid(*of_other, cudaErrorStreamCaptureImplicit);
        return true;
    }
    if (!capture->is_valid)
        note(result = cudaErrorStreamCaptureInvalidated);
    else
        capture->nodes.push_back(node);
    return true;
}

bool has_captured() {
    return was_captured;
}

cudaError_t refuse_on(cudaStream_t stream) {
    const std::lock_guard lock(captures().mutex);
    const auto capture = capture_of(stream);
    return capture == nullptr ? cudaSuccess : invalid(*capture, cudaErrorStreamCaptureUnsupported);
}

cudaError_t refuse_in_thread() {
    const std::lock_guard lock(captures().mutex);
    for (const auto& [stream, capture] : captures().streams)
        if (capture->thread == std::this_thread::get_id())
            return invalid(*capture, cudaErrorStreamCaptureUnsupported);
    return cudaSuccess;
}

cudaError_t record_captured(cudaEvent_t event, cudaStream_t stream, bool& is_done) {
    const std::lock_guard lock(captures().mutex);
    const auto capture = capture_of(stream);
    is_done = capture != nullptr;
    captures().events.erase(event);
    if (capture == nullptr) return cudaSuccess;
    if (!capture->is_valid) return cudaErrorStreamCaptureInvalidated;
    captures().events[event] = {capture, stream};
    return cudaSuccess;
}

cudaError_t wait_captured(cudaStream_t stream, cudaEvent_t event, bool& is_done) {
    const std::lock_guard lock(captures().mutex);
    const auto capture = capture_of(stream);
    const auto recorded = captures().events.find(event);
    is_done = capture != nullptr || recorded != captures().events.end();
    if (!is_done) return cudaSuccess;
    if (recorded == captures().events.end()) return invalid(*capture, cudaErrorStreamCaptureIsolation);
    const auto& [from, of_stream] = recorded->second;
    if (capture != nullptr && capture != from) return invalid(*capture, cudaErrorStreamCaptureMerge);
    if (capture == nullptr) {
        captures().streams[stream] = from;
        from->unjoined.insert(stream);
    }
    if (stream == from->origin) from->unjoined.erase(of_stream);
    return cudaSuccess;
}

cudaError_t refuse_captured(cudaEvent_t event) {
    {
        const std::lock_guard lock(captures().mutex);
        const auto recorded = captures().events.find(event);
        if (recorded != captures().events.end())
            return invalid(*recorded->second.first, cudaErrorCapturedEvent);
    }
    return refuse_in_thread();
}

void forget_captured(cudaEvent_t event) {
    const std::lock_guard lock(captures().mutex);
    captures().events.erase(event);
}

}  // namespace dp::cuda_emulator

using namespace dp::cuda_emulator;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    const std::lock_guard lock(captures().mutex);
    if (is_refused("refused") || stream == nullptr) return noted(cudaErrorStreamCaptureUnsupported);
    if (capture_of(stream) != nullptr) return noted(cudaErrorIllegalState);
    was_captured = true;
    captures().streams[stream] = std::make_shared<Capture>(Capture{stream, std::this_thread::get_id()});
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    *graph = nullptr;
    Captures& all = captures();
    const std::lock_guard lock(all.mutex);
    const auto capture = capture_of(stream);
    cudaError_t result = cudaSuccess;
    if (capture == nullptr || capture->origin != stream)
        result = cudaErrorIllegalState;
    else if (capture->thread != std::this_thread::get_id())
        result = cudaErrorStreamCaptureWrongThread;
    else if (!capture->is_valid)
        result = cudaErrorStreamCaptureInvalidated;
    else if (!capture->unjoined.empty())
        result = cudaErrorStreamCaptureUnjoined;
    std::erase_if(all.streams, [&](const auto& one) { return one.second == capture; });
    if (result != cudaSuccess) return noted(result);
    *graph = reinterpret_cast<cudaGraph_t>(new Nodes(std::move(capture->nodes)));
    return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long*, cudaGraph_t*, const cudaGraphNode_t** last,
                                     const cudaGraphEdgeData**, std::size_t* count) {
    thread_local cudaGraphNode_t node = nullptr;
    const std::lock_guard lock(captures().mutex);
    const auto capture = capture_of(stream);
    *status = capture == nullptr  ? cudaStreamCaptureStatusNone
              : capture->is_valid ? cudaStreamCaptureStatusActive
                                  : cudaStreamCaptureStatusInvalidated;
    *count = *status == cudaStreamCaptureStatusActive && !capture->nodes.empty() ? 1 : 0;
    if (*count > 0) node = handle_of(capture->nodes.size() - 1);
    *last = &node;
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
    *executable = reinterpret_cast<cudaGraphExec_t>(new Nodes(nodes_of(graph)));
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
    if (is_refused("launch")) return noted(cudaErrorMemoryAllocation);
    count_launch();
    if (const cudaError_t refused = refuse_on(stream); refused != cudaSuccess) return refused;
    is_launching = true;
    for (const GraphNode& node : nodes_of(executable)) queue(stream, node);
    is_launching = false;
    return cudaSuccess;
}
// Of the launches that follow.
cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                             const cudaKernelNodeParams* to) {
    Nodes& nodes = nodes_of(executable);
    const std::size_t place = place_of(node);
    if (is_refused("set") || place >= nodes.size() || nodes[place].rebinding == nullptr ||
        to->func != nodes[place].name.kernel)
        return noted(cudaErrorInvalidValue);
    return noted(nodes[place].rebinding(*to, nodes[place]));
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t stream) {
    if (is_refused("upload")) return noted(cudaErrorMemoryAllocation);
    return refuse_on(stream);
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    if (graph != nullptr) delete &nodes_of(graph);
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
    delete &nodes_of(executable);
    return cudaSuccess;
}
}
