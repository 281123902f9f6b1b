// SPDX-License-Identifier: Apache-2.0
#include "trainer/devices/cuda/captured_step.hpp"

#include "trainer/devices/cuda/cuda_device.hpp"

namespace dp::trainer {
namespace {

// Each call is seen to change once at most, so more captures than some mean that steps differ in what they call.
constexpr int kMostCaptures = 64;

}  // namespace

CapturedStep::~CapturedStep() {
    stop();
}

void CapturedStep::begin(cudaStream_t stream) {
    if (captures_ > kMostCaptures || !refusal_.empty()) return;
    stream_ = stream;
    next_ = next_graph_ = 0;
    is_open_ = is_apart_ = true;
}

void CapturedStep::end() {
    if (!is_open_) return;
    flush();
    is_open_ = false;
    if (device_.failed()) return stop();
    if (next_ < calls_.size()) shorten();
    is_stale_ |= is_new_;
    // Calls that were made once only may be those of this step alone.
    if (!std::exchange(is_new_, false) && is_stale_) capture();
}

void CapturedStep::flush() {
    if (!is_open_) return;
    const Graph* const graph = graph_here();
    if (graph != nullptr && graph->calls.first < next_) leave_graph();
    is_apart_ = true;
}

CapturedStep::Graph* CapturedStep::graph_here() {
    while (next_graph_ < graphs_.size() && graphs_[next_graph_].calls.last <= next_) ++next_graph_;
    const bool is_here = next_graph_ < graphs_.size() && graphs_[next_graph_].calls.first <= next_;
    return is_here ? &graphs_[next_graph_] : nullptr;
}

bool CapturedStep::is_in_graph() {
    note_place();
    const Graph* const graph = graph_here();
    ++next_;
    if (graph == nullptr) return false;
    if (next_ == graph->calls.last && !device_.failed())
        device_.check(cudaGraphLaunch(graph->executable, stream_), "launching what steps repeat");
    return true;
}

void CapturedStep::leave_graph() {
    const Graph* const graph = graph_here();
    if (graph == nullptr) return;
    for (std::size_t i = graph->calls.first; i < next_; ++i)
        if (!device_.failed() && calls_[i]->queue() != 0)
            device_.keep_failure("queueing again what steps repeat failed");
    forget(next_graph_);
}

void CapturedStep::replaced() {
    note_place();
    is_stale_ |= !std::exchange(facts_[next_].changes, true);
    ++next_;
}

void CapturedStep::add(std::unique_ptr<AnyCall> call) {
    shorten();
    calls_.push_back(std::move(call));
    facts_.push_back({std::exchange(is_apart_, false), false});
    ++next_;
}

void CapturedStep::note_place() {
    if (std::exchange(is_apart_, false)) is_stale_ |= !std::exchange(facts_[next_].is_apart, true);
}

// The step has other calls from here on.
void CapturedStep::shorten() {
    is_new_ = true;
    calls_.resize(next_);
    facts_.resize(next_);
    while (!graphs_.empty() && graphs_.back().calls.last > next_) forget(graphs_.size() - 1);
}

// It may still run.
void CapturedStep::forget(std::size_t graph) {
    cudaGraphExecDestroy(graphs_[graph].executable);
    graphs_.erase(graphs_.begin() + static_cast<std::ptrdiff_t>(graph));
    is_stale_ = true;
}

void CapturedStep::capture() {
    while (!graphs_.empty()) forget(graphs_.size() - 1);
    is_stale_ = false;
    if (++captures_ > kMostCaptures) {
        refusal_ = "its steps differ too often";
        return stop();
    }
    for (const CallRun& calls : runs_of(facts_)) {
        cudaGraphExec_t executable = nullptr;
        if (const cudaError_t failed = capture(calls, executable); failed != cudaSuccess) {
            cudaGetLastError();  // else the next call that asks for it would be blamed
            refusal_ = std::string("capturing a step failed: ") + cudaGetErrorString(failed);
            return stop();
        }
        graphs_.push_back({calls, executable});
    }
}

cudaError_t CapturedStep::capture(const CallRun& calls, cudaGraphExec_t& executable) const {
    // Threads of NCCL's may do as they like.
    if (const auto begun = cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal);
        begun != cudaSuccess)
        return begun;
    bool are_queued = true;
    for (std::size_t i = calls.first; i < calls.last && are_queued; ++i) are_queued = calls_[i]->queue() == 0;
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream_, &graph);
    if (ended != cudaSuccess) return ended;
    const cudaError_t made =
        are_queued ? cudaGraphInstantiate(&executable, graph, 0) : cudaErrorStreamCaptureUnsupported;
    cudaGraphDestroy(graph);
    return made;
}

void CapturedStep::stop() {
    is_open_ = false;
    while (!graphs_.empty()) forget(graphs_.size() - 1);
    calls_.clear();
    facts_.clear();
}

}  // namespace dp::trainer
