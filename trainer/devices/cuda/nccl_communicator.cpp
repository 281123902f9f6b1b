// SPDX-License-Identifier: Apache-2.0
//
// NCCL's all-reduce and all-gather on the device's stream, over libdp-nccl's communicator, which does not
// block: a call may answer "in progress", and then its state is polled until it is done.
//
// Each group of ranks has communicators of its own from libdp-nccl, which gets their ids by the group and aborts them when a rank
// dies. (ncclCommSplit would make them without libdp, which then could not abort them: a kernel of theirs would wait for the dead.)
//
// Messages between the stages of a pipeline. To NCCL a message is a kernel that ends when the other side's has taken part, and the
// kernels of one communicator run one after another, whatever their streams. So over one communicator 1F1B would deadlock: a
// stage's second activations would wait for a stage that waits until its first gradients are taken, and the kernel that takes them is
// queued behind those activations. Hence a communicator for each link (devices/nccl_group.hpp), with a stream of its own: `up` has what goes
// to stages of higher numbers (activations), `down` what goes to lower ones (gradients). Nothing then waits in a circle:
// - In `up`, the messages of micro-batch i from stage s to s + 1 come, on both sides, after those of i - 1, and on the sender's after
//   that of i from s - 1. All that a message waits for has a smaller (i, s). `down` likewise, with (i, -s).
// - The device waits for a message only where it receives it, and, in wait_send(), where it writes to its memory again. It does so to
//   activations in the micro-batch's slot, whose backward pass came after the next stage had received them; and to gradients in the
//   next backward pass, when the stage before has had nothing else to do than to take them: it receives in the order of
//   micro-batches, too, and none of its forward passes until then needs more of this stage.
// - In an interleaved schedule the stages are a ring, in which each would send over `up` before it receives, and wait for the next, all
//   round. So what closes the ring goes over links of its own, and gradients alternate between two buffers. The unit tests play all
//   schedules of small pipelines with these links, and none waits for ever (nccl_links_test.cpp).
// - Kernels that wait each hold some SMs, which the others then do not have: at most one of each link, two of the sums that
//   go on beside (of gradients, and of the layers' parts), and one on the device's stream at a time.
// The host never waits for another stage: join() connects all that send each other something, since NCCL connects two ranks at their
// first message and waits for both.
//
// When a rank dies, the others' kernels are aborted (dp/nccl.h). Such a kernel ends as any other does, leaves garbage, and
// passes it on to ranks that have not heard of the death yet, which take it for a result. So a rank confirms: once its own
// kernels have ended and nothing was aborted on it, it takes part in one more sum, of a number that is new each time. The
// sum is right only if every rank got that far. What is read from a collective, or saved, is confirmed in every world. Where ranks
// survive others, each step's sums are, too, before the optimizer sees them; they still travel while the backward pass computes.
// Elsewhere garbage may get into the parameters, and the next number that anybody asks for says so.
#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/abort_guard.hpp"
#include "dp/nccl.h"
#include "trainer/base/partition.hpp"
#include "trainer/base/random.hpp"
#include "trainer/devices/cuda/cuda_device.hpp"
#include "trainer/devices/cuda/nccl_types.hpp"

namespace dp::trainer {
namespace {

// Queueing a collective takes microseconds once the communicator is built; the first one may set up channels.
constexpr auto kQueueTimeout = std::chrono::minutes(2);

// Numbers of f32: of so many NCCL makes large messages.
constexpr std::int64_t kLargeSum = std::int64_t{1} << 20;

class NcclCommunicator final : public Communicator {
 public:
    NcclCommunicator(CudaDevice& device, const NcclGroup& group)
        : device_(device), group_(group), survives_(group.survives && can_abort()) {}

    Result<void> join(dp_context* context) {
        DP_TRY(make_event(event_));
        const dp_world* world = dp_get_world(context);
        rank_ = world_rank_ = world->rank;
        size_ = world->size;
        if (!group_.members.empty()) {
            rank_ = std::ranges::find(group_.members, world->rank) - group_.members.begin();
            size_ = static_cast<std::int64_t>(group_.members.size());
        }
        comm_ = DP_TRY(open(context, group_.name));
        ticket_ = device_.make(Type::i64, {1});
        // NCCL allocates what an algorithm needs when it first takes it: now, before anybody reads how much memory is left. We
        // measure what large and small sums, gathers, scatters and broadcasts take, and assume that NCCL keeps one algorithm for
        // each.
        large_ = device_.make(Type::f32, {kLargeSum / size_ * size_});
        DP_TRY(queue(large_, Reduction::sum, device_.stream()));
        DP_TRY(gather(large_));
        DP_TRY(reduce_scatter(large_));
        DP_TRY(broadcast(large_, 0));
        DP_TRY(confirm());
        large_ = {};
        for (const auto& [link, name, closes_ring] : kStageLinks) {
            if (group_.messages == StageMessages::none ||
                (closes_ring && group_.messages != StageMessages::in_a_ring))
                continue;
            Link& one = at(link);
            one.comm = DP_TRY(open(context, group_.name + name));
            DP_TRY(make_stream(one.stream));
        }
        for (const NamedLink& one : kStageLinks) DP_TRY(connect_stages(one.link));
        return device_.status();
    }

    // Ignores results: the process, or its generation, is about to end.
    ~NcclCommunicator() override {
        if (comm_ != nullptr) end_communicator(comm_);
        for (const Link& one : links_)
            if (one.comm != nullptr) end_communicator(one.comm);
        ticket_ = kept_ = large_ = {};  // freeing waits for the kernels that use them
        for (const Sent& one : sent_) cudaEventDestroy(one.sent);
        if (event_ != nullptr) cudaEventDestroy(event_);
        if (aside_ != nullptr) cudaStreamDestroy(aside_);
        for (const Link& one : links_)
            if (one.stream != nullptr) cudaStreamDestroy(one.stream);
    }

    void end_communicator(ncclComm_t comm) {
        // Destroying waits for the peers. If something has failed already they may be gone, so abort.
        const bool ended = dp_nccl_release(comm) == 0;
        const auto abort = [this, comm] { abort_or_exit(world_rank_, [comm] { ncclCommAbort(comm); }); };
        if (ended || failed_ || !device_.status()) return abort();
        ncclResult_t state = ncclCommFinalize(comm);
        if (state == ncclInProgress) state = settle(comm);
        if (state == ncclSuccess) {
            ncclCommDestroy(comm);
        } else {
            failed_ = true;  // so the others are not waited for as long
            abort();
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

    // Parts that differ in length are summed everywhere: where ranks divide tokens they are equal.
    Result<void> reduce_scatter(const Tensor& tensor) override {
        if (tensor.elements() % size_ != 0) return all_reduce(tensor, Reduction::sum);
        DP_TRY(device_.status());
        const std::int64_t part = tensor.elements() / size_;
        const auto type = DP_TRY(nccl_type(tensor));
        return settled(
            "reduce-scatter",
            ncclReduceScatter(tensor.data<void>(), tensor.view(rank_ * part, {part}).data<void>(),
                              static_cast<std::size_t>(part), type, ncclSum, comm_, device_.stream()));
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
        if (aside_ == nullptr) DP_TRY(make_stream(aside_));
        DP_TRY(wait(device_.stream(), aside_));
        return queue(tensor, Reduction::sum, aside_);
    }
    Result<void> wait_all_reduces() override {
        if (aside_ != nullptr) DP_TRY(wait(aside_, device_.stream()));
        return survives_ ? confirm() : Result<void>();
    }

    Result<void> start_send(const Tensor& tensor, std::int64_t to, Lane lane) override {
        const Link& link = at(link_of(lane, rank_, to));
        DP_TRY(wait(device_.stream(), link.stream));
        DP_TRY(settled("sending",
                       ncclSend(tensor.data<void>(), tensor.bytes(), ncclChar, static_cast<int>(to),
                                link.comm, link.stream),
                       link.comm));
        Sent sent{tensor, nullptr};
        DP_TRY(make_event(sent.sent));
        sent_.push_back(sent);
        return done(cudaEventRecord(sent.sent, link.stream), "noting that a message is sent");
    }
    // What the device does next comes after it; the host does not wait.
    Result<void> wait_send(const Tensor& tensor) override {
        for (auto one = sent_.begin(); one != sent_.end();) {
            if (one->tensor.data<void>() != tensor.data<void>()) {
                ++one;
                continue;
            }
            const auto waits = cudaStreamWaitEvent(device_.stream(), one->sent, 0);
            cudaEventDestroy(one->sent);  // CUDA keeps what is needed until the wait has ended
            one = sent_.erase(one);
            DP_TRY(done(waits, "waiting until a message is sent"));
        }
        return device_.status();
    }
    // Into memory that the device may still have been reading.
    Result<void> receive(const Tensor& tensor, std::int64_t from, Lane lane) override {
        const Link& link = at(link_of(lane, from, rank_));
        DP_TRY(wait(device_.stream(), link.stream));
        DP_TRY(settled("receiving",
                       ncclRecv(tensor.data<void>(), tensor.bytes(), ncclChar, static_cast<int>(from),
                                link.comm, link.stream),
                       link.comm));
        return wait(link.stream, device_.stream());
    }

    // Of several communicators it speaks for those that were opened after this one, too: libdp tells this one first.
    Result<void> confirm() override {
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
    struct Link {
        ncclComm_t comm = nullptr;
        cudaStream_t stream = nullptr;
    };
    // A message that nobody has waited for, and when it is sent.
    struct Sent {
        Tensor tensor;
        cudaEvent_t sent;
    };

    CudaDevice& device_;
    const NcclGroup group_;
    const bool survives_;
    ncclComm_t comm_ = nullptr;
    std::uint32_t world_rank_ = 0;
    std::int64_t rank_ = 0, size_ = 1;  // in the group
    cudaStream_t aside_ = nullptr;
    cudaEvent_t event_ = nullptr;
    std::array<Link, std::size(kStageLinks)> links_;
    std::vector<Sent> sent_;
    Tensor ticket_;  // of confirm(): i64 [1]
    Tensor large_;   // of join()
    Tensor kept_;    // this rank's part of what is gathered: parameters
    std::uint64_t confirmed_ = 0;
    bool failed_ = false;

    Result<ncclComm_t> open(dp_context* context, const std::string& name) {
        const dp_group group{name.c_str(), group_.members.data(), group_.members.size()};
        ncclComm_t comm = nullptr;
        if (dp_nccl_communicator(context, group_.members.empty() ? nullptr : &group, &comm,
                                 DP_TIMEOUT_DEFAULT) != DP_OK)
            return failure(dp_last_error());
        return comm;
    }
    Result<void> make_stream(cudaStream_t& stream) {
        return done(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream for NCCL");
    }
    Result<void> make_event(cudaEvent_t& event) {
        return done(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "creating an event for NCCL");
    }

    Link& at(StageLink link) { return links_[static_cast<std::size_t>(link)]; }

    // A first message between all that will send each other some over this link, if it is there.
    Result<void> connect_stages(StageLink which) {
        const Link& link = at(which);
        if (link.comm == nullptr) return {};
        const Tensor byte = device_.make(Type::u8, {2});
        DP_TRY(wait(device_.stream(), link.stream));
        ncclResult_t begun = ncclGroupStart();
        const auto note = [&](ncclResult_t result) {
            if (begun == ncclSuccess && result != ncclInProgress) begun = result;
        };
        for (const auto& [from, to] : senders_of(which, size_)) {
            if (to == rank_)
                note(ncclRecv(byte.data<char>() + 1, 1, ncclChar, static_cast<int>(from), link.comm,
                              link.stream));
            if (from == rank_)
                note(ncclSend(byte.data<void>(), 1, ncclChar, static_cast<int>(to), link.comm, link.stream));
        }
        const ncclResult_t ended = ncclGroupEnd();
        DP_TRY(settled("connecting the stages", begun == ncclSuccess ? ended : begun, link.comm));
        DP_TRY(wait(link.stream, device_.stream()));
        device_.synchronize();  // until then `byte` is needed
        return device_.status();
    }

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

    static Result<ncclDataType_t> nccl_type(const Tensor& tensor) {
        if (const auto type = type_to_reduce(tensor.type())) return *type;
        return fail(Fault::world, "NCCL's sums are not for tensors of this type here");
    }

    Result<void> queue(const Tensor& tensor, Reduction reduction, cudaStream_t stream) {
        DP_TRY(device_.status());
        const auto type = DP_TRY(nccl_type(tensor));
        void* data = tensor.data<void>();
        return settled("all-reduce",
                       ncclAllReduce(data, data, static_cast<std::size_t>(tensor.elements()), type,
                                     reduction == Reduction::sum ? ncclSum : ncclMax, comm_, stream));
    }

    Result<void> settled(const char* what, ncclResult_t result) { return settled(what, result, comm_); }
    // The outcome of a call on that communicator with this result.
    Result<void> settled(const char* what, ncclResult_t result, ncclComm_t comm) {
        if (result == ncclInProgress) result = settle(comm);
        if (result == ncclSuccess) return {};
        failed_ = true;
        const char* last = ncclGetLastError(comm);
        return failure(std::string(what) + " over NCCL failed: " + ncclGetErrorString(result) +
                       (last != nullptr && *last != '\0' ? ": " : "") + (last != nullptr ? last : "") +
                       "; NCCL_DEBUG=INFO shows more");
    }

    // NCCL allocates for itself, and says only in words that there was no memory.
    tl::unexpected<Error> failure(const std::string& message) {
        if (message.find("out of memory") != std::string::npos) device_.memory().note_exhausted();
        return fail(Fault::world, message);
    }

    // Waits until the last call is no longer in progress.
    ncclResult_t settle(ncclComm_t comm) {
        const auto deadline = std::chrono::steady_clock::now() + kQueueTimeout;
        while (std::chrono::steady_clock::now() < deadline) {
            ncclResult_t state = ncclSuccess;
            if (const ncclResult_t asked = ncclCommGetAsyncError(comm, &state); asked != ncclSuccess)
                return asked;
            if (state != ncclInProgress) return state;
            std::this_thread::yield();
        }
        return ncclInProgress;
    }
};

}  // namespace

Result<std::unique_ptr<Communicator>> CudaDevice::open_nccl(dp_context* context, const NcclGroup& group) {
    auto made = std::make_unique<NcclCommunicator>(*this, group);
    DP_TRY(made->join(context));
    return made;
}

}  // namespace dp::trainer
