// SPDX-License-Identifier: Apache-2.0
//
// NCCL's all-reduce and all-gather on the device's stream, over libdp-nccl's communicator, which does not
// block: a call may answer "in progress", and then its state is polled until it is done.
//
// When a rank dies, the others' kernels are aborted (dp/nccl.h). Such a kernel ends as any other does, leaves garbage, and
// passes it on to ranks that have not heard of the death yet, which take it for a result. So a rank confirms: once its own
// kernels have ended and nothing was aborted on it, it takes part in one more sum, of a number that is new each time. The
// sum is right only if every rank got that far. Where ranks survive others, each step's sums are confirmed before the
// optimizer sees them. They still travel while the backward pass computes.
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "dp/nccl.h"
#include "trainer/base/partition.hpp"
#include "trainer/base/random.hpp"
#include "trainer/devices/cuda/cuda_device.hpp"

namespace dp::trainer {
namespace {

// Queueing a collective takes microseconds once the communicator is built; the first one may set up channels.
constexpr auto kQueueTimeout = std::chrono::minutes(2);

class NcclCommunicator final : public Communicator {
 public:
    NcclCommunicator(CudaDevice& device, bool survives)
        : device_(device), survives_(survives && can_abort()) {}

    Result<void> join(dp_context* context) {
        constexpr const char* kWhat = "creating a stream for the all-reduce";
        DP_TRY(done(cudaStreamCreateWithFlags(&aside_, cudaStreamNonBlocking), kWhat));
        DP_TRY(done(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), kWhat));
        if (dp_nccl_communicator(context, nullptr, &comm_, DP_TIMEOUT_DEFAULT) != DP_OK)
            return fail(Fault::world, dp_last_error());
        const dp_world* world = dp_get_world(context);
        rank_ = world->rank;
        size_ = world->size;
        ticket_ = device_.make(Type::i64, {1});
        return device_.status();
    }

    // Ignores results: the process, or its generation, is about to end.
    ~NcclCommunicator() override {
        if (comm_ != nullptr) end_communicator();
        ticket_ = kept_ = {};
        if (event_ != nullptr) cudaEventDestroy(event_);
        if (aside_ != nullptr) cudaStreamDestroy(aside_);
    }

    void end_communicator() {
        // Destroying waits for the peers. If something has failed already they may be gone, so abort.
        const bool ended = dp_nccl_release(comm_) == 0;
        if (ended || failed_ || !device_.status()) {
            ncclCommAbort(comm_);
            return;
        }
        ncclResult_t state = ncclCommFinalize(comm_);
        if (state == ncclInProgress) state = settle();
        if (state == ncclSuccess) {
            ncclCommDestroy(comm_);
        } else {
            ncclCommAbort(comm_);
        }
    }

    std::string_view name() const override { return "nccl"; }
    std::int64_t rank() const override { return rank_; }
    std::int64_t size() const override { return size_; }
    bool survives_deaths() const override { return survives_; }

    Result<void> all_reduce(const Tensor& tensor, Reduction reduction) override {
        return queue(tensor, reduction, device_.stream());
    }

    // Where ranks survive others, this rank's part is whole afterwards, even if that fails.
    Result<void> all_gather(const Tensor& tensor) override {
        if (!survives_) return gather(tensor);
        const Shard mine = shard_of(tensor.elements(), rank_, size_);
        const Tensor part = tensor.view(mine.first, {mine.count});
        if (kept_.elements() != mine.count) kept_ = device_.make(tensor.type(), {mine.count});
        device_.convert(part, kept_);
        auto gathered = gather(tensor);
        if (gathered) gathered = confirm();
        if (!gathered) device_.convert(kept_, part);  // once the aborted kernel has ended
        return gathered;
    }

    Result<void> gather(const Tensor& tensor) {
        DP_TRY(device_.status());
        const std::int64_t all = tensor.elements();
        const auto bytes_of = [&](std::int64_t elements) {
            return static_cast<std::size_t>(elements) * size_of(tensor.type());
        };
        auto* memory = static_cast<char*>(tensor.data<void>());
        // Parameters are padded to 64 numbers, so the parts of 2, 4, 8, ... ranks are equal.
        if (all % size_ == 0) {
            const std::size_t part = bytes_of(all / size_);
            return settled("all-gather", ncclAllGather(memory + part * static_cast<std::size_t>(rank_),
                                                       memory, part, ncclChar, comm_, device_.stream()));
        }
        ncclResult_t begun = ncclGroupStart();
        for (std::int64_t root = 0; root < size_; ++root) {
            const Shard part = shard_of(all, root, size_);
            char* const at = memory + bytes_of(part.first);
            const ncclResult_t result = ncclBroadcast(at, at, bytes_of(part.count), ncclChar,
                                                      static_cast<int>(root), comm_, device_.stream());
            if (begun == ncclSuccess && result != ncclInProgress) begun = result;
        }
        const ncclResult_t ended = ncclGroupEnd();
        return settled("all-gather", begun == ncclSuccess ? ended : begun);
    }

    Result<void> broadcast(const Tensor& tensor, std::int64_t root) override {
        DP_TRY(device_.status());
        void* data = tensor.data<void>();
        return settled("broadcast", ncclBroadcast(data, data, tensor.bytes(), ncclChar,
                                                  static_cast<int>(root), comm_, device_.stream()));
    }

    // On a separate stream, after what the device has queued so far.
    Result<void> start_all_reduce(const Tensor& tensor) override {
        DP_TRY(wait(device_.stream(), aside_));
        return queue(tensor, Reduction::sum, aside_);
    }
    Result<void> wait_all_reduces() override {
        DP_TRY(wait(aside_, device_.stream()));
        return confirm();
    }

    Result<void> confirm() override {
        if (!survives_) return {};
        if (failed_) return died();
        DP_TRY(ended());
        const std::uint64_t number = Random(0, ++confirmed_).bits();
        device_.upload(&number, ticket_);
        DP_TRY(queue(ticket_, Reduction::sum, device_.stream()));
        DP_TRY(ended());
        const auto sum = static_cast<std::uint64_t>(device_.values_of<std::int64_t>(ticket_)[0]);
        DP_TRY(device_.status());
        return sum == number * static_cast<std::uint64_t>(size_) ? Result<void>() : died();
    }

 private:
    CudaDevice& device_;
    const bool survives_;
    ncclComm_t comm_ = nullptr;
    std::int64_t rank_ = 0, size_ = 1;
    cudaStream_t aside_ = nullptr;
    cudaEvent_t event_ = nullptr;
    Tensor ticket_;  // of confirm(): i64 [1]
    Tensor kept_;    // this rank's part of what is gathered: parameters
    std::uint64_t confirmed_ = 0;
    bool failed_ = false;

    // Without ncclCommRevoke, a kernel that waits for a dead rank holds the process up until it is killed.
    static bool can_abort() {
        constexpr int kHasRevoke = NCCL_VERSION(2, 28, 7);
        int version = 0;
        return NCCL_VERSION_CODE >= kHasRevoke && ncclGetVersion(&version) == ncclSuccess &&
               version >= kHasRevoke;
    }

    // Waits for all work queued on the device's stream; fails if it may have been aborted.
    Result<void> ended() {
        constexpr const char* kWhat = "waiting for NCCL";
        DP_TRY(device_.status());
        DP_TRY(done(cudaEventRecord(event_, device_.stream()), kWhat));
        for (;;) {
            // The event first: dp_nccl_intact() becomes 0 before an abort can end a kernel.
            const cudaError_t state = cudaEventQuery(event_);
            if (dp_nccl_intact(comm_) == 0) return died();
            if (state != cudaErrorNotReady) return done(state, kWhat);
            ncclResult_t error = ncclSuccess;
            const ncclResult_t asked = ncclCommGetAsyncError(comm_, &error);
            DP_TRY(settled("a collective", asked == ncclSuccess ? error : asked));
            std::this_thread::yield();
        }
    }

    Result<void> died() {
        failed_ = true;
        return fail(Fault::world,
                    "what ran over NCCL was aborted: a rank has died, or the step is being ended");
    }

    Result<void> done(cudaError_t result, const char* what) {
        if (result == cudaSuccess) return {};
        failed_ = true;
        return fail(Fault::device, std::string(what) + ": " + cudaGetErrorString(result));
    }

    // Makes work queued on `second` from now on wait for everything on `first`.
    Result<void> wait(cudaStream_t first, cudaStream_t second) {
        constexpr const char* kWhat = "ordering the all-reduce and the kernels";
        DP_TRY(device_.status());
        DP_TRY(done(cudaEventRecord(event_, first), kWhat));
        return done(cudaStreamWaitEvent(second, event_, 0), kWhat);
    }

    Result<void> queue(const Tensor& tensor, Reduction reduction, cudaStream_t stream) {
        DP_TRY(device_.status());
        ncclDataType_t type = ncclFloat32;
        if (tensor.type() == Type::f64) type = ncclFloat64;
        if (tensor.type() == Type::i64) type = ncclInt64;
        void* data = tensor.data<void>();
        return settled("all-reduce",
                       ncclAllReduce(data, data, static_cast<std::size_t>(tensor.elements()), type,
                                     reduction == Reduction::sum ? ncclSum : ncclMax, comm_, stream));
    }

    // The outcome of a call with this result.
    Result<void> settled(const char* what, ncclResult_t result) {
        if (result == ncclInProgress) result = settle();
        if (result == ncclSuccess) return {};
        failed_ = true;
        const char* last = ncclGetLastError(comm_);
        return fail(Fault::world, std::string(what) + " over NCCL failed: " + ncclGetErrorString(result) +
                                      (last != nullptr && *last != '\0' ? ": " : "") +
                                      (last != nullptr ? last : "") + "; NCCL_DEBUG=INFO shows more");
    }

    // Waits until the last call is no longer in progress.
    ncclResult_t settle() {
        const auto deadline = std::chrono::steady_clock::now() + kQueueTimeout;
        while (std::chrono::steady_clock::now() < deadline) {
            ncclResult_t state = ncclSuccess;
            if (const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state); asked != ncclSuccess)
                return asked;
            if (state != ncclInProgress) return state;
            std::this_thread::yield();
        }
        return ncclInProgress;
    }
};

}  // namespace

Result<std::unique_ptr<Communicator>> CudaDevice::open_nccl(dp_context* context, bool survives) {
    auto made = std::make_unique<NcclCommunicator>(*this, survives);
    DP_TRY(made->join(context));
    return made;
}

}  // namespace dp::trainer
