// SPDX-License-Identifier: Apache-2.0
#include "trainer/devices/cuda/cudnn_attention.hpp"

#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "trainer/base/bfloat16.hpp"
#include "trainer/devices/cuda/cudnn_attention_choice.hpp"
#include "trainer/devices/cuda/cudnn_library.hpp"

namespace dp::trainer {
namespace {

// Hidden scores may be -infinity since then, and scratch need not be cleared (cudnn-frontend 1.23, attn_score_modifiers.h).
constexpr std::size_t kOldest = 91000;
// A choice is 'WHO' or 'WHO: NOTE'; `trainer compile` prints the note.
constexpr std::string_view kOurs = "ours";
// Our kernels and cuDNN's round weights and gradients of scores to bf16 in other places: some 0.4 % of a result. Sums are all in
// f32; what they differ by scales all weights of a query in the backward pass.
constexpr double kApart = 1.0 / 64, kSumsApart = 1.0 / 512;

const char* name_of(AttentionPass pass) {
    return pass == AttentionPass::forward ? "attention" : "the gradient of attention";
}

std::string choice_of(const AttentionShape& shape, AttentionPass pass) {
    std::string name = name_of(pass);
    for (const std::int64_t number : {shape.sequences, shape.heads, shape.sequence, shape.size})
        name += " " + std::to_string(number);
    return name;
}

std::string chosen_by(const std::string& choice) {
    return choice.substr(0, choice.find(": "));
}

std::string text_of(const Times& times) {
    std::array<char, 100> text{};
    std::snprintf(text.data(), text.size(), "cuDNN takes %.3f ms, our kernels %.3f ms",
                  static_cast<double>(times.one), static_cast<double>(times.other));
    return text.data();
}

// Of another version the plan may be another one.
std::string by_cudnn() {
    return cudnn().missing != nullptr ? "" : "cudnn " + std::to_string(cudnn().cudnnGetVersion());
}

// Packed rows as cuDNN's engines read them: 16 bytes at a time.
bool is_aligned(In tensor) {
    return reinterpret_cast<std::uintptr_t>(tensor.data<void>()) % 16 == 0;
}

bool can_be_cudnns(const Attention& a, const CudnnAttention::Tensors& t) {
    const std::int64_t size = t.y.columns() / a.heads;
    return t.qkv.type() == Type::bf16 && a.dropout.rate == 0 && a.starts == nullptr && size % 8 == 0 &&
           t.y.rows() > 0 && is_aligned(t.qkv) && is_aligned(t.y) && is_aligned(t.dy) && is_aligned(t.d_qkv);
}

}  // namespace

// As captured_step.hpp has it; a plan stays as it is.
struct CudnnAttention::Call {
    const AttentionPlan* plan;
    cudnnHandle_t handle;
    AttentionPlaces places;
    void* workspace;

    int queue() const { return plan->run(handle, places, workspace); }
    bool is_like(const Call& other) const { return plan == other.plan; }
    bool operator==(const Call&) const = default;
};

// Ignores results: the process is about to end, or the device has failed already.
CudnnAttention::~CudnnAttention() {
    plans_.clear();
    if (handle_ != nullptr) cudnn().cudnnDestroy(handle_);
}

Try<void> CudnnAttention::open() {
    if (handle_ != nullptr) return {};
    if (const char* missing = cudnn().missing) return dp::fail(std::string(missing) + " is not found");
    if (cudnn().cudnnGetVersion() < kOldest)
        return dp::fail("cuDNN " + std::to_string(cudnn().cudnnGetVersion()) + " is older than 9.10");
    cudnnHandle_t handle = nullptr;
    DP_TRY(cudnn_done(cudnn().cudnnCreate(&handle), "opening cuDNN"));
    const auto given =
        cudnn_done(cudnn().cudnnSetStream(handle, device_.stream()), "giving cuDNN the stream");
    if (given)
        handle_ = handle;
    else
        cudnn().cudnnDestroy(handle);
    return given;
}

Try<void> CudnnAttention::plan(const AttentionShape& shape, AttentionPass pass, Planned& planned) {
    DP_TRY(open());
    const std::int64_t room = kernels_workspace(device_.sms_or_all());
    planned.shape = shape;
    std::int64_t most = room;
    if (pass == AttentionPass::backward) {
        // cudnn-frontend says that the graph is deterministic on GPUs up to Hopper; on Blackwell it sets an engine's knobs besides.
        if (device_.major() > 9) return dp::fail("on this GPU it may give other bits each time");
        planned.shape.sequences = sequences_at_a_time(shape, room);
        if (planned.shape.sequences == 0)
            return dp::fail("a sequence needs a workspace of more than " + std::to_string(room) + " bytes");
        most -= bytes_of_products(planned.shape);
    }
    planned.plan = DP_TRY(AttentionPlan::make(planned.shape, pass, {handle_, {}}, most));
    return {};
}

const CudnnAttention::Planned& CudnnAttention::planned(const AttentionShape& shape, AttentionPass pass) {
    const auto [place, is_new] = plans_.try_emplace({shape, pass});
    Planned& planned = place->second;
    if (is_new)
        if (auto made = plan(shape, pass, planned); !made) planned.why_not = std::move(made).error().message;
    return planned;
}

cudnnStatus_t CudnnAttention::queue(const AttentionShape& shape, const Planned& planned, AttentionPass pass,
                                    const Places& places) {
    const bool is_backward = pass == AttentionPass::backward;
    const AttentionShape& part = planned.shape;
    const std::int64_t products = is_backward ? bytes_of_products(part) : 0;
    auto* room = device_.workspace<std::byte>(products + planned.plan->workspace());
    if (room == nullptr) return CUDNN_STATUS_SUCCESS;       // the device has failed
    const std::int64_t row = 2 * shape.heads * shape.size;  // bytes of y's
    for (std::int64_t first = 0; first < shape.sequences; first += part.sequences) {
        const std::int64_t rows = first * shape.sequence;
        const auto third = [&](std::byte* qkv, int which) { return qkv + rows * 3 * row + which * row; };
        AttentionPlaces at{};
        at[kQueries] = third(places.qkv, 0);
        at[kKeys] = third(places.qkv, 1);
        at[kValues] = third(places.qkv, 2);
        at[kY] = places.y + rows * row;
        at[kSums] = places.sums + rows * shape.heads * static_cast<std::int64_t>(sizeof(float));
        if (is_backward) {
            at[kDY] = places.dy + rows * row;
            at[kDQueries] = third(places.d_qkv, 0);
            at[kDKeys] = third(places.d_qkv, 1);
            at[kDValues] = third(places.d_qkv, 2);
            at[kProducts] = room;
        }
        const Call call{&*planned.plan, handle_, at, room + products};
        const auto status = static_cast<cudnnStatus_t>(device_.step().queue(call));
        if (status != CUDNN_STATUS_SUCCESS) return status;
    }
    return CUDNN_STATUS_SUCCESS;
}

Try<Times> CudnnAttention::compare(const AttentionShape& shape, AttentionPass pass, const Tensors& t,
                                   const Places& places, const std::function<void()>& ours) {
    const Planned& found = planned(shape, pass);
    if (!found.plan) return dp::fail(found.why_not);
    struct Result {
        In tensor;
        std::int64_t parts;  // of a row, each of which is compared
        double apart;
        std::byte* Places::*place;
    };
    std::vector<Result> results;
    if (pass == AttentionPass::forward) {
        results.push_back({t.y, 1, kApart, &Places::y});
        results.push_back({t.sums, 1, kSumsApart, &Places::sums});
    } else {
        results.push_back({t.d_qkv, 3, kApart, &Places::d_qkv});
    }
    // cuDNN writes to memory of its own.
    Places elsewhere = places;
    std::vector<std::shared_ptr<void>> rooms;
    for (const Result& result : results) {
        void* room = nullptr;
        if (cudaMalloc(&room, static_cast<std::size_t>(result.tensor.bytes())) != cudaSuccess) {
            cudaGetLastError();
            return dp::fail("there is no memory to compare it");
        }
        rooms.emplace_back(room, cudaFree);
        elsewhere.*result.place = static_cast<std::byte*>(room);
    }
    bool has_run = true;
    const auto theirs = [&] {
        has_run = has_run && queue(shape, found, pass, elsewhere) == CUDNN_STATUS_SUCCESS;
        return has_run && !device_.failed();
    };
    const auto with_ours = [&] {
        ours();
        return !device_.failed();
    };
    const auto bytes_at = [&](const std::byte* place, std::int64_t bytes) {
        std::vector<std::byte> all(static_cast<std::size_t>(bytes));
        const bool copied = cudaMemcpyAsync(all.data(), place, all.size(), cudaMemcpyDeviceToHost,
                                            device_.stream()) == cudaSuccess &&
                            cudaStreamSynchronize(device_.stream()) == cudaSuccess;
        has_run = has_run && copied;
        return all;
    };
    const auto cannot_run = [] {
        cudaGetLastError();  // else the next call that asks for it would be blamed
        return dp::fail("it cannot be run");
    };
    if (!with_ours() || !theirs()) return cannot_run();
    std::vector<std::vector<std::byte>> before;
    for (const Result& result : results)
        before.push_back(bytes_at(elsewhere.*result.place, result.tensor.bytes()));
    theirs();
    for (std::size_t i = 0; i < results.size(); ++i) {
        const Result& result = results[i];
        const std::int64_t bytes = result.tensor.bytes();
        const auto our = bytes_at(places.*result.place, bytes),
                   their = bytes_at(elsewhere.*result.place, bytes);
        if (!has_run) break;
        if (their != before[i]) return dp::fail("it gives other bits each time");
        std::vector<Agreement> agreements(static_cast<std::size_t>(result.parts), Agreement(result.apart));
        const std::int64_t columns = result.tensor.columns() / result.parts;
        const auto value = [&](const std::vector<std::byte>& all, std::int64_t place) {
            if (result.tensor.type() == Type::f32) {
                float number = 0;
                std::memcpy(&number, all.data() + 4 * place, sizeof number);
                return number;
            }
            Bfloat16 number{};
            std::memcpy(&number, all.data() + 2 * place, sizeof number);
            return to_float(number);
        };
        for (std::int64_t place = 0; place < result.tensor.elements(); ++place)
            agreements[static_cast<std::size_t>(place / columns % result.parts)].add(value(our, place),
                                                                                     value(their, place));
        for (const Agreement& agreement : agreements)
            if (!agreement.holds())
                return dp::fail("its numbers are not those of our kernels (they differ by " +
                                std::to_string(100 * agreement.apart()) + " %)");
    }
    const Times times = has_run ? times_of(theirs, with_ours, device_.stream()) : Times{};
    if (!has_run) return cannot_run();
    return times;
}

std::string CudnnAttention::choice(const AttentionShape& shape, AttentionPass pass, const Tensors& tensors,
                                   const Places& places, const std::function<void()>& ours) {
    const auto times = compare(shape, pass, tensors, places, ours);
    if (!times) return std::string(kOurs) + ": cuDNN's way is not taken: " + times.error().message;
    return (times->is_one_faster() ? by_cudnn() : std::string(kOurs)) + ": " + text_of(*times);
}

bool CudnnAttention::run(const Attention& a, AttentionPass pass, const Tensors& t,
                         const std::function<void()>& ours) {
    if (device_.failed() || !can_be_cudnns(a, t)) return false;
    const AttentionShape shape{t.y.rows() / a.sequence, a.heads, a.sequence, t.y.columns() / a.heads};
    const std::string name = choice_of(shape, pass);
    const Places places{t.qkv.data<std::byte>(), t.y.data<std::byte>(), t.sums.data<std::byte>(),
                        t.dy.data<std::byte>(), t.d_qkv.data<std::byte>()};
    TunedChoices& choices = device_.choices();
    if (choices.is_measuring() && !choices.find(name))
        choices.set(name, choice(shape, pass, t, places, ours));
    const auto chosen = choices.find(name);
    if (!chosen || chosen_by(*chosen) != by_cudnn()) return false;
    const Planned& found = planned(shape, pass);
    if (!found.plan) {  // with our kernels this rank would be slower, and another run's bits others
        device_.keep_failure(std::string("`trainer compile` chose cuDNN for ") + name_of(pass) +
                             ", and now " + found.why_not + "; compile again with --force");
        return true;
    }
    const cudnnStatus_t status = queue(shape, found, pass, places);
    if (status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED) device_.memory().note_exhausted();
    if (const auto ran = cudnn_done(status, name_of(pass)); !ran) device_.keep_failure(ran.error().message);
    return true;
}

bool CudaDevice::attention_by_cudnn(const Attention& a, In qkv, Out y, Out sums) {
    return cudnn_attention_->run(a, AttentionPass::forward, {qkv, y, sums, {}, {}},
                                 [&] { attention_bf16(a, qkv, y, sums); });
}

bool CudaDevice::attention_backward_by_cudnn(const Attention& a, In qkv, In y, In sums, In dy, Out d_qkv) {
    return cudnn_attention_->run(a, AttentionPass::backward, {qkv, y, sums, dy, d_qkv},
                                 [&] { attention_bf16_backward(a, qkv, y, sums, dy, d_qkv); });
}

}  // namespace dp::trainer
