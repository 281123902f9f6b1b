// SPDX-License-Identifier: Apache-2.0
#include "trainer/devices/cuda/captured_step.hpp"

#include "trainer/devices/cuda/cuda_device.hpp"

namespace dp::trainer {
namespace {

// Each call is seen to change a few times at most, so more captures than some mean that steps differ in what they call.
constexpr int kMostCaptures = 64;

// What the stream's capture has last: the node of a single kernel that has just been queued.
cudaError_t last_node(cudaStream_t stream, cudaGraphNode_t& node) {
    cudaStreamCaptureStatus status{};
    const cudaGraphNode_t* last = nullptr;
    const cudaGraphEdgeData* edges = nullptr;  // without it CUDA refuses to say what has some
    std::size_t count = 0;
#if CUDART_VERSION >= 13000
    const cudaError_t told =
        cudaStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &last, &edges, &count);
#else
    const cudaError_t told =
        cudaStreamGetCaptureInfo_v3(stream, &status, nullptr, nullptr, &last, &edges, &count);
#endif
    if (told != cudaSuccess) return told;
    if (status != cudaStreamCaptureStatusActive || count != 1) return cudaErrorStreamCaptureUnsupported;
    node = *last;
    return cudaSuccess;
}

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
    // One that is skipped is short, and the next one is whole again.
    if (next_ < calls_.size() && was_short_) shorten();
    was_short_ = next_ < calls_.size();
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
    Graph* const graph = graph_here();
    ++next_;
    if (graph == nullptr) return false;
    if (next_ == graph->calls.last && !device_.failed()) launch(*graph);
    return true;
}

void CapturedStep::launch(Graph& graph) {
    cudaError_t failed = cudaSuccess;
    for (const std::size_t i : graph.to_set)
        if (failed == cudaSuccess)
            failed = calls_[i]->set(graph.executable, graph.nodes[i - graph.calls.first]);
    graph.to_set.clear();
    const bool are_set = failed == cudaSuccess;
    if (are_set) failed = cudaGraphLaunch(graph.executable, stream_);
    if (failed == cudaSuccess) return;
    // Nothing of it is queued yet. Other failures than these are the device's.
    if (are_set && failed != cudaErrorMemoryAllocation)
        return void(device_.check(failed, "launching what steps repeat"));
    cudaGetLastError();  // not these calls' failure
    make_calls(graph.calls);
    refuse("launching", failed);
}

void CapturedStep::leave_graph() {
    const Graph* const graph = graph_here();
    if (graph == nullptr) return;
    make_calls({graph->calls.first, next_});
    forget(next_graph_);
}

void CapturedStep::make_calls(const CallRun& calls) {
    for (std::size_t i = calls.first; i < calls.last; ++i)
        if (!device_.failed() && calls_[i]->queue() != 0)
            device_.keep_failure("queueing again what steps repeat failed");
}

void CapturedStep::add(std::unique_ptr<AnyCall> call) {
    shorten();
    calls_.push_back(std::move(call));
    facts_.push_back({std::exchange(is_apart_, false), false});
    ++next_;
}

void CapturedStep::note_place(bool is_same) {
    CallFacts facts = after_step(facts_[next_], is_same);
    facts.is_apart |= std::exchange(is_apart_, false);
    is_stale_ |= facts != std::exchange(facts_[next_], facts);
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
    destroy(graphs_[graph]);
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
        graphs_.push_back({calls});
        if (const cudaError_t failed = capture(graphs_.back()); failed != cudaSuccess)
            return refuse("capturing", failed);
    }
}

cudaError_t CapturedStep::capture(Graph& graph) const {
    // Threads of NCCL's may do as they like.
    if (const auto begun = cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal);
        begun != cudaSuccess)
        return begun;
    cudaError_t queued = cudaSuccess;
    for (std::size_t i = graph.calls.first; i < graph.calls.last && queued == cudaSuccess; ++i) {
        cudaGraphNode_t node = nullptr;
        if (calls_[i]->queue() != 0)
            queued = cudaErrorStreamCaptureUnsupported;
        else if (calls_[i]->can_be_set())
            queued = last_node(stream_, node);
        graph.nodes.push_back(node);
    }
    // Whatever has failed: else the stream would queue nothing more.
    const cudaError_t ended = cudaStreamEndCapture(stream_, &graph.captured);
    if (ended != cudaSuccess) return ended;
    return queued == cudaSuccess ? make_executable(graph) : queued;
}

// And takes the memory that it needs on the GPU, which the first launch would do else.
cudaError_t CapturedStep::make_executable(Graph& graph) const {
    const cudaError_t made = cudaGraphInstantiate(&graph.executable, graph.captured, 0);
    return made == cudaSuccess ? cudaGraphUpload(graph.executable, stream_) : made;
}

void CapturedStep::destroy(Graph& graph) {
    if (graph.executable != nullptr) cudaGraphExecDestroy(graph.executable);
    if (graph.captured != nullptr) cudaGraphDestroy(graph.captured);
}

// All calls of the step are queued, and those to come are made one by one.
void CapturedStep::refuse(const char* what, cudaError_t why) {
    cudaGetLastError();  // else the next call that asks for it would be blamed
    refusal_ = std::string(what) + " a step failed: " + cudaGetErrorString(why);
    stop();
}

void CapturedStep::refuse(const char* why) {
    refusal_ = why;
    stop();
}

void CapturedStep::forget_all() {
    stop();
    captures_ = 0;
    is_new_ = is_stale_ = was_short_ = false;
    refusal_.clear();
}

void CapturedStep::stop() {
    is_open_ = false;
    while (!graphs_.empty()) forget(graphs_.size() - 1);
    calls_.clear();
    facts_.clear();
}

}  // namespace dp::trainer
