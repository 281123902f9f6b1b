// SPDX-License-Identifier: Apache-2.0
//
// Launches together what each step of a training queues on the device's stream, as CUDA graphs: small models are bound by the time
// that the host takes for each launch.
//
// Every call that queues something comes by here, as a value that can be compared and made again. The first step notes its calls.
// The second one compares: what both have is captured, in graphs of calls that follow each other. From then on a call that is as it
// was is only counted, and the last one of a graph launches it. Where a kernel gets other arguments, such as Adam's with the step's
// number, they are set in the graph before. A library's call that differs is made by itself, between graphs; once it stays as it
// is, it is captured, too. So what the GPU gets is always what the calls say, in their order, and no call need know of this.
//
// Whoever else queues on the stream, or waits for it, calls flush() first (CudaDevice::stream() does): graphs end there, so that
// neither collectives nor copies nor events are captured, and the host may wait wherever it wants. Calls that were only counted
// when the next one turns out to be another are made then.
//
// Calls are captured after the step, when all of them have been made once: libraries have prepared what they need by then, and if
// CUDA refuses the capture nothing is lost; later steps are queued call by call. The same goes for a graph that is refused when it
// is to be launched, as for lack of memory: its calls are made one by one.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "trainer/devices/device.hpp"

namespace dp::trainer {

class CudaDevice;

// Of what kernels are given, to compare it. A field more does not compile until it is here, too.
inline auto fields_of(const Shard& of) {
    const auto& [first, count] = of;
    return std::tuple(first, count);
}
inline auto fields_of(const BatchNorm& of) {
    const auto& [x, relu] = of;
    return std::tuple(x, relu);
}
inline auto fields_of(const Dropout& of) {
    const auto& [rate, key, first_row] = of;
    return std::tuple(rate, key, first_row);
}
inline auto fields_of(const Attention& of) {
    const auto& [sequence, heads, dropout, first_head, all_heads, starts] = of;
    return std::tuple(sequence, heads, fields_of(dropout), first_head, all_heads, starts);
}
inline auto fields_of(const SgdStep& of) {
    const auto& [rate, momentum, decay, clipping] = of;
    return std::tuple(rate, momentum, decay, clipping);
}
inline auto fields_of(const AdamStep& of) {
    const auto& [rate, root_scale, beta1, beta2, epsilon, keep, clipping] = of;
    return std::tuple(rate, root_scale, beta1, beta2, epsilon, keep, clipping);
}

// ---- calls: queue() returns the library's status, of which 0 is success; is_like() of calls that differ in their arguments alone;
// set(), if there is one, gives a graph's node these arguments, from the graph's next launch on.

template <typename... Parameters>
struct KernelLaunch {
    void (*kernel)(Parameters...);
    dim3 blocks, threads;
    std::size_t shared;
    cudaStream_t stream;
    std::tuple<Parameters...> parameters;

    int queue() const {
        if (const cudaError_t allowed = allow_shared(); allowed != cudaSuccess) return allowed;
        cudaLaunchConfig_t config{};
        config.dynamicSmemBytes = shared;
        config.gridDim = blocks;
        config.blockDim = threads;
        config.stream = stream;
        return std::apply(
            [&](const Parameters&... each) { return cudaLaunchKernelEx(&config, kernel, each...); },
            parameters);
    }
    cudaError_t set(cudaGraphExec_t graph, cudaGraphNode_t node) const {
        if (const cudaError_t allowed = allow_shared(); allowed != cudaSuccess) return allowed;
        return std::apply(
            [&](const Parameters&... each) {
                std::array<void*, sizeof...(Parameters)> places{
                    const_cast<void*>(static_cast<const void*>(&each))...};
                cudaKernelNodeParams all{};
                all.func = reinterpret_cast<void*>(kernel);
                all.gridDim = blocks;
                all.blockDim = threads;
                all.sharedMemBytes = static_cast<unsigned>(shared);
                all.kernelParams = places.data();
                return cudaGraphExecKernelNodeSetParams(graph, node, &all);
            },
            parameters);
    }
    bool is_like(const KernelLaunch& other) const { return kernel == other.kernel && stream == other.stream; }
    bool operator==(const KernelLaunch& other) const {
        const auto alike = [](const dim3& one, const dim3& two) {
            return one.x == two.x && one.y == two.y && one.z == two.z;
        };
        return kernel == other.kernel && alike(blocks, other.blocks) && alike(threads, other.threads) &&
               shared == other.shared && stream == other.stream &&
               are_same(other, std::index_sequence_for<Parameters...>());
    }

 private:
    // Without it a kernel may have 48 KiB, its own among them.
    cudaError_t allow_shared() const {
        if (shared == 0) return cudaSuccess;
        return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                    cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
    }
    template <typename T>
    static bool is_same(const T& one, const T& other) {
        if constexpr (std::is_empty_v<T>)
            return true;
        else if constexpr (requires { fields_of(one); })
            return fields_of(one) == fields_of(other);
        else
            return one == other;
    }
    template <std::size_t... kAll>
    bool are_same(const KernelLaunch& other, std::index_sequence<kAll...>) const {
        return (is_same(std::get<kAll>(parameters), std::get<kAll>(other.parameters)) && ...);
    }
};

struct MemoryClear {
    void* to;
    std::size_t bytes;
    cudaStream_t stream;

    int queue() const { return cudaMemsetAsync(to, 0, bytes, stream); }
    bool is_like(const MemoryClear&) const { return true; }
    bool operator==(const MemoryClear&) const = default;
};

// ---- which calls go into graphs

struct CallFacts {
    bool is_apart;    // something else may have been queued before it, or the host has waited
    bool changes;     // was not as in the step before; of one that cannot be set in a graph
    int changed = 0;  // how often it began to change
    bool operator==(const CallFacts&) const = default;
};
// Pure: after a step that has it as the one before, or has not. A call that begins to change again and again stays outside.
inline CallFacts after_step(CallFacts call, bool is_same) {
    constexpr int kMost = 3;
    if (!is_same && !call.changes) ++call.changed;
    call.changes = !is_same || (call.changes && call.changed > kMost);
    return call;
}
struct CallRun {
    std::size_t first, last;  // without the last
    bool operator==(const CallRun&) const = default;
};
// Pure. A single call is no graph.
inline std::vector<CallRun> runs_of(std::span<const CallFacts> calls) {
    std::vector<CallRun> runs;
    std::size_t first = 0;
    const auto end_at = [&](std::size_t place) {
        if (place >= first + 2) runs.push_back({first, place});
        first = place;
    };
    for (std::size_t i = 0; i < calls.size(); ++i) {
        if (calls[i].is_apart || calls[i].changes) end_at(i);
        if (calls[i].changes) first = i + 1;
    }
    end_at(calls.size());
    return runs;
}

class CapturedStep {
 public:
    // The device owns this.
    explicit CapturedStep(CudaDevice& device) : device_(device) {}
    ~CapturedStep();
    CapturedStep(const CapturedStep&) = delete;
    CapturedStep& operator=(const CapturedStep&) = delete;

    // Of a training. What is queued outside is queued as ever.
    void begin(cudaStream_t stream);
    void end();
    void flush();
    // Steps of another training follow.
    void forget_all();
    // Nothing is captured until then.
    void refuse(const char* why);

    // Makes the call, or lets its graph make it.
    template <typename Call>
    int queue(const Call& call) {
        if (!is_open_) return call.queue();
        Call* const before = call_before<Call>();
        const bool is_like = before != nullptr && before->is_like(call);
        if (is_like && *before == call) {
            note_place(true);
            return is_in_graph() ? 0 : call.queue();
        }
        if constexpr (kCanBeSet<Call>) {
            if (is_like) {
                *before = call;
                if (Graph* const graph = graph_here(); graph != nullptr) graph->to_set.push_back(next_);
                note_place(true);
                return is_in_graph() ? 0 : call.queue();
            }
        }
        leave_graph();
        if (const int failed = call.queue(); failed != 0) return failed;
        if (is_like) {
            *before = call;
            note_place(false);
            ++next_;
        } else {
            add(std::make_unique<Kept<Call>>(call));
        }
        return 0;
    }

    // Why CUDA refused to capture; empty: it did not.
    const std::string& refusal() const { return refusal_; }

 private:
    template <typename Call>
    static constexpr bool kCanBeSet = requires(const Call& call, cudaGraphExec_t graph,
                                               cudaGraphNode_t node) {
        call.set(graph, node);
    };
    struct AnyCall {
        virtual ~AnyCall() = default;
        virtual int queue() const = 0;
        virtual bool can_be_set() const = 0;
        virtual cudaError_t set(cudaGraphExec_t graph, cudaGraphNode_t node) const = 0;
    };
    template <typename Call>
    struct Kept final : AnyCall {
        explicit Kept(const Call& kept) : call(kept) {}
        int queue() const override { return call.queue(); }
        bool can_be_set() const override { return kCanBeSet<Call>; }
        cudaError_t set(cudaGraphExec_t graph, cudaGraphNode_t node) const override {
            if constexpr (kCanBeSet<Call>)
                return call.set(graph, node);
            else
                return cudaErrorNotSupported;
        }
        Call call;
    };
    struct Graph {
        CallRun calls;
        cudaGraph_t captured = nullptr;  // its nodes name those of the executable one
        cudaGraphExec_t executable = nullptr;
        std::vector<cudaGraphNode_t> nodes = {};  // of each call; null: it cannot be set
        std::vector<std::size_t> to_set = {};     // calls with other arguments, before the next launch
    };

    CudaDevice& device_;
    cudaStream_t stream_ = nullptr;
    bool is_open_ = false;
    std::vector<std::unique_ptr<AnyCall>> calls_;  // of the last step
    std::vector<CallFacts> facts_;                 // of these
    std::vector<Graph> graphs_;                    // ascending
    std::size_t next_ = 0;                         // call of this step
    std::size_t next_graph_ = 0;                   // none before it has calls of those to come
    bool is_apart_ = true;                         // the next call
    bool is_new_ = false;                          // this step has other calls than the last one
    bool was_short_ = false;                       // the last step had the first of these calls alone
    bool is_stale_ = false;                        // the facts have changed since the graphs were made
    int captures_ = 0;
    std::string refusal_;

    // What the last step has in this place, if it is a call of this type.
    template <typename Call>
    Call* call_before() {
        auto* const kept = next_ < calls_.size() ? dynamic_cast<Kept<Call>*>(calls_[next_].get()) : nullptr;
        return kept == nullptr ? nullptr : &kept->call;
    }
    Graph* graph_here();
    // Passes the next call, which is as it was, or can be set.
    bool is_in_graph();
    void launch(Graph& graph);
    // The next call is another: makes those of its graph that came before it.
    void leave_graph();
    void make_calls(const CallRun& calls);
    void add(std::unique_ptr<AnyCall> call);
    void note_place(bool is_same);
    void shorten();
    void forget(std::size_t graph);
    void capture();
    cudaError_t capture(Graph& graph) const;
    cudaError_t make_executable(Graph& graph) const;
    static void destroy(Graph& graph);
    void refuse(const char* what, cudaError_t why);
    void stop();
};

}  // namespace dp::trainer
