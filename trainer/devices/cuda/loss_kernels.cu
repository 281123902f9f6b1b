// SPDX-License-Identifier: Apache-2.0
//
// CudaDevice's losses and their gradients, with their kernels. Each block writes its part of the metrics, and
// one block then adds the parts up in order, so a loss has the same bits each time.
#include <climits>

#include "trainer/devices/cuda/launched_memory.cuh"
#include "trainer/devices/cuda/launching.cuh"
#include "trainer/devices/cuda/numbers.cuh"
#include "trainer/devices/cuda/shared_rows.hpp"
#include "trainer/devices/cuda/tensor_instructions.cuh"

namespace dp::trainer {
namespace kernels {
namespace {

struct Part {
    double loss, right;
};

// Run by one block.
__global__ void add_parts_kernel(const Part* parts, std::int64_t count, double* metrics) {
    double loss = 0, right = 0;
    for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) {
        loss += parts[i].loss;
        right += parts[i].right;
    }
    loss = block_sum(loss);
    right = block_sum(right);
    if (threadIdx.x != 0) return;
    metrics[0] += loss;
    metrics[1] += right;
}

// One thread per row, for few classes. Reads the logits three times from cache, writes the gradient once.
// `length`: the stride between rows.
template <typename T>
__global__ void softmax_cross_entropy_kernel(const T* logits, const std::int32_t* labels, std::int64_t rows,
                                             std::int64_t classes, std::int64_t length, float scale,
                                             Part* parts, T* gradient) {
    double loss = 0, right = 0;
    for (std::int64_t r = first_item(); r < rows; r += stride()) {
        const T* row = logits + r * length;
        const std::int32_t label = labels[r];
        std::int64_t best = 0;
        for (std::int64_t c = 1; c < classes; ++c) best = read(row[c]) > read(row[best]) ? c : best;
        const float largest = read(row[best]);
        float total = 0;
        for (std::int64_t c = 0; c < classes; ++c) total += expf(read(row[c]) - largest);
        loss += static_cast<double>(logf(total) - (read(row[label]) - largest));
        right += best == label ? 1 : 0;
        if (gradient == nullptr) continue;
        for (std::int64_t c = 0; c < classes; ++c)
            write(gradient[r * length + c],
                  scale * (expf(read(row[c]) - largest) / total - (c == label ? 1.0f : 0.0f)));
    }
    loss = block_sum(loss);
    right = block_sum(right);
    if (threadIdx.x == 0) parts[blockIdx.x] = {loss, right};
}

// Run by a block: calls work(i, kWidth neighbours from i on, as a Numbers<kWidth>) for all numbers of a row, 16 bytes at a time if
// aligned, or none but one by one. Each thread always gets the same ones.
template <typename T, typename Work>
__device__ void for_each_of_row(const T* row, std::int64_t count, Work work, bool in_packs = true) {
    constexpr int kWidth = kPacked<T>;
    const auto place = reinterpret_cast<std::uintptr_t>(row);
    const std::int64_t before = min(static_cast<std::int64_t>((16 - place % 16) % 16 / sizeof(T)), count);
    const std::int64_t packs = in_packs ? (count - before) / kWidth : 0;
    if (threadIdx.x < before) work(threadIdx.x, read_pack<1>(row + threadIdx.x));
    for (std::int64_t pack = threadIdx.x; pack < packs; pack += blockDim.x)
        work(before + pack * kWidth, read_pack<kWidth>(row + before + pack * kWidth));
    for (std::int64_t i = before + packs * kWidth + threadIdx.x; i < count; i += blockDim.x)
        work(i, read_pack<1>(row + i));
}

// e^(x - largest), x <= largest. Of bf16 numbers with fewer instructions: within |largest| 2^-23 of it, where they themselves are
// within 2^-9.
template <typename T>
struct Exponential {
    static constexpr bool kByTwo = std::is_same_v<T, Bf16>;
    static constexpr float kLog2E = 1.44269504f;
    float shift;

    __device__ explicit Exponential(float largest) : shift(kByTwo ? kLog2E * largest : largest) {}
    __device__ float operator()(float x) const {
        return kByTwo ? power_of_two(fmaf(kLog2E, x, -shift)) : expf(x - shift);
    }
    template <int kWidth>
    __device__ double sum_of(const Numbers<kWidth>& numbers) const {
        float sum = 0;
        for (float number : numbers.at) sum += (*this)(number);
        return static_cast<double>(sum);
    }
};

// The largest number of all threads of a block of kBlock. Once in a kernel.
template <int kBlock>
__device__ float block_max(float most) {
    __shared__ float warps[kBlock / 32];
    most = warp_max_all(most);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = most;
    __syncthreads();
    for (float warp : warps) most = fmaxf(most, warp);
    return most;
}

template <int kWidth>
__device__ float largest_of(const Numbers<kWidth>& numbers, float most) {
    for (float number : numbers.at) most = fmaxf(most, number);
    return most;
}

// The sum of e^(number - maximum); a larger number rescales the sum so far.
struct Exponentials {
    float largest = -INFINITY;
    double sum = 0;

    __device__ void rescale(float to) {
        if (largest > -INFINITY) sum *= static_cast<double>(expf(largest - to));
        largest = to;
    }
    template <typename T, int kWidth>
    __device__ void add(const Numbers<kWidth>& numbers) {
        const float most = largest_of(numbers, largest);
        if (most > largest) rescale(most);
        // Where there were only classes that are ruled out, by -inf, so far: nothing, rather than e^(-inf - -inf).
        sum += Exponential<T>(largest > -INFINITY ? largest : 0).sum_of(numbers);
    }
    // Combines those of all threads of a block; the result is in each.
    __device__ Exponentials of_block() const {
        Exponentials all = *this;
        all.rescale(block_max<kThreads>(largest));
        all.sum = block_sum(all.sum);
        return all;
    }
};

// Run by a block: a row's gradient, possibly in the row's place. `label`: of a number of the row, which is `own`, or of none.
template <typename T>
__device__ void write_gradient(const T* row, std::int64_t count, std::int64_t label, float own, float scale,
                               float largest, float total, T* to) {
    const float factor = scale / total;
    const Exponential<T> exponential(largest);
    const auto put = [&]<int kWidth>(std::int64_t first, Numbers<kWidth> numbers) {
        for (float& number : numbers.at) number = factor * exponential(number);
        write_pack(to + first, numbers);
    };
    const auto apart = reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(row);
    for_each_of_row(row, count, put, apart % 16 == 0);
    __syncthreads();  // whoever has written the label's
    if (threadIdx.x == 0 && label >= 0 && label < count) write(to[label], factor * exponential(own) - scale);
}

// One block per row, for many classes. Reads the logits twice, writes the gradient once, possibly over them.
template <typename T>
__global__ void wide_cross_entropy_kernel(const T* logits, const std::int32_t* labels, std::int64_t classes,
                                          std::int64_t length, float scale, Part* parts, T* gradient) {
    const T* row = logits + blockIdx.x * length;
    const std::int32_t label = labels[blockIdx.x];
    const float own = read(row[label]);
    Exponentials thread;
    int better = 0;  // that are larger, or as large and in front of the label
    for_each_of_row(row, classes, [&](std::int64_t first, const auto& numbers) {
        thread.add<T>(numbers);
        for (float number : numbers.at) {
            better += number > own || (number == own && first < label) ? 1 : 0;
            ++first;
        }
    });
    const Exponentials all = thread.of_block();
    const double all_better = block_sum(better);
    const float largest = all.largest;
    const auto total = static_cast<float>(all.sum);
    if (threadIdx.x == 0)
        parts[blockIdx.x] = {static_cast<double>(logf(total) - (own - largest)),
                             own == largest && all_better == 0 ? 1.0 : 0.0};
    if (gradient == nullptr) return;
    write_gradient(row, classes, label, own, scale, largest, total, gradient + blockIdx.x * length);
}

constexpr int kThreadsOfKept =
    1024;  // of sm_80 and sm_90 two blocks are all threads of an SM, and rows of 100 KB fit twice

// The same for rows that shared memory holds: reads the logits once. Barriers of block_max and
// block_sum come before a thread reads what another one has put there.
template <typename T>
__global__ void __launch_bounds__(kThreadsOfKept)
    kept_cross_entropy_kernel(const T* logits, const std::int32_t* labels, std::int64_t classes,
                              std::int64_t length, float scale, Part* parts, T* gradient) {
    const T* row = logits + blockIdx.x * length;
    // As far behind a multiple of 16 bytes as the row.
    T* const kept = launched_memory<T>() + reinterpret_cast<std::uintptr_t>(row) % 16 / sizeof(T);
    float largest = -INFINITY;
    for_each_of_row(row, classes, [&](std::int64_t first, const auto& numbers) {
        write_pack(kept + first, numbers);
        largest = largest_of(numbers, largest);
    });
    largest = block_max<kThreadsOfKept>(largest);
    const std::int32_t label = labels[blockIdx.x];
    const float own = read(kept[label]);
    double sum = 0;
    for_each_of_row(kept, classes,
                    [&, exponential = Exponential<T>(largest)](std::int64_t, const auto& numbers) {
                        sum += exponential.sum_of(numbers);
                    });
    const auto total = static_cast<float>(block_sum<kThreadsOfKept>(sum));
    int before = 0;  // the label, as large: of two the first is the answer
    if (own == largest)
        for_each_of_row(kept, label, [&](std::int64_t, const auto& numbers) {
            before |= largest_of(numbers, -INFINITY) == largest ? 1 : 0;
        });
    const bool is_right = block_sum<kThreadsOfKept>(before) == 0 && own == largest;
    if (threadIdx.x == 0)
        parts[blockIdx.x] = {static_cast<double>(logf(total) - (own - largest)), is_right ? 1.0 : 0.0};
    if (gradient == nullptr) return;
    write_gradient(kept, classes, label, own, scale, largest, total, gradient + blockIdx.x * length);
}

// Where ranks have parts of each row: what the others need of this one's. One block per row; reads the logits once.
template <typename T>
__global__ void softmax_part_kernel(const T* logits, std::int64_t length, Shard words,
                                    const std::int32_t* labels, float* notes) {
    const T* row = logits + blockIdx.x * length;
    Exponentials thread;
    float largest = -INFINITY;
    int at = 0;  // of the first largest number of this thread, which gets its numbers in their order
    for_each_of_row(row, words.count, [&](std::int64_t first, const auto& numbers) {
        thread.add<T>(numbers);
        for (float number : numbers.at) {
            if (number > largest) {
                largest = number;
                at = static_cast<int>(first);
            }
            ++first;
        }
    });
    __shared__ int best;
    if (threadIdx.x == 0) best = INT_MAX;
    const Exponentials all = thread.of_block();  // after which all threads see `best`
    // The minimum does not depend on the order.
    if (largest == all.largest) atomicMin(&best, at);
    __syncthreads();
    if (threadIdx.x != 0) return;
    const std::int64_t label = labels[blockIdx.x] - words.first;
    float* noted = notes + blockIdx.x * kSoftmaxNumbers;
    noted[0] = all.largest;
    noted[1] = static_cast<float>(words.first + best);
    noted[2] = static_cast<float>(all.sum);
    noted[3] = label >= 0 && label < words.count ? read(row[label]) : 0.0f;
}

// One block per row, each thread of which combines the ranks' notes in their order. Reads the logits once, writes the gradient once,
// possibly over them.
template <typename T>
__global__ void cross_entropy_of_parts_kernel(const T* logits, std::int64_t length, Shard words,
                                              const std::int32_t* labels, const float* notes,
                                              std::int64_t ranks, float scale, Part* parts, T* gradient) {
    const auto of_rank = [&](std::int64_t rank) {
        return notes + (rank * gridDim.x + blockIdx.x) * kSoftmaxNumbers;
    };
    const float* best = of_rank(0);
    for (std::int64_t rank = 1; rank < ranks; ++rank)
        if (of_rank(rank)[0] > best[0]) best = of_rank(rank);
    const float largest = best[0];
    float total = 0, own = 0;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
        total += of_rank(rank)[2] * expf(of_rank(rank)[0] - largest);
        own += of_rank(rank)[3];
    }
    const std::int32_t label = labels[blockIdx.x];
    if (threadIdx.x == 0)
        parts[blockIdx.x] = {static_cast<double>(logf(total) - (own - largest)),
                             best[1] == static_cast<float>(label) ? 1.0 : 0.0};
    if (gradient == nullptr) return;
    write_gradient(logits + blockIdx.x * length, words.count, label - words.first, own, scale, largest, total,
                   gradient + blockIdx.x * length);
}

template <typename T>
__global__ void squared_error_kernel(const T* prediction, const float* target, std::int64_t count,
                                     float columns, float scale, Part* parts, T* gradient) {
    double loss = 0;
    for (std::int64_t i = first_item(); i < count; i += stride()) {
        const float difference = read(prediction[i]) - target[i];
        loss += static_cast<double>(difference) * difference / columns;
        if (gradient != nullptr) write(gradient[i], scale * 2 * difference / columns);
    }
    loss = block_sum(loss);
    if (threadIdx.x == 0) parts[blockIdx.x] = {loss, 0};
}

// One block per image. Reads logits and targets twice, writes the gradient once, possibly over the logits.
template <typename T>
__global__ void sigmoid_dice_kernel(const T* logits, const float* target, std::int64_t columns, float scale,
                                    Part* parts, T* gradient) {
    const T* row = logits + blockIdx.x * columns;
    const float* wanted = target + blockIdx.x * columns;
    double both = 0, sides = 0, right = 0;  // Σ p t, Σ p + t, numbers on the right side of one half
    for (std::int64_t i = threadIdx.x; i < columns; i += blockDim.x) {
        const float logit = read(row[i]), p = 1 / (1 + expf(-logit));
        both += static_cast<double>(p * wanted[i]);
        sides += static_cast<double>(p + wanted[i]);
        right += (logit > 0) == (wanted[i] > 0.5f) ? 1 : 0;
    }
    both = block_sum(both);
    sides = block_sum(sides);
    right = block_sum(right);
    const double above = 2 * both + kDiceSmooth, below = sides + kDiceSmooth;
    if (threadIdx.x == 0) parts[blockIdx.x] = {1 - above / below, right / static_cast<double>(columns)};
    if (gradient == nullptr) return;
    const auto base = static_cast<float>(static_cast<double>(scale) * above / (below * below));
    const auto slope = static_cast<float>(static_cast<double>(scale) * 2 / below);
    for (std::int64_t i = threadIdx.x; i < columns; i += blockDim.x) {
        const float p = 1 / (1 + expf(-read(row[i])));
        write(gradient[blockIdx.x * columns + i], (base - slope * wanted[i]) * p * (1 - p));
    }
}

}  // namespace
}  // namespace kernels

using namespace kernels;

void CudaDevice::softmax_cross_entropy(In logits, std::int64_t classes, In labels, float scale, InOut metrics,
                                       Out d_logits) {
    constexpr const char* kWhat = "softmax cross-entropy";
    constexpr std::int64_t kFewClasses = 64;
    const std::int64_t rows = logits.rows(), length = logits.columns();
    const bool few = classes <= kFewClasses;
    const unsigned blocks = few ? blocks_for(rows) : static_cast<unsigned>(rows);
    auto* parts = workspace<Part>(blocks);
    with_number(logits.type(), [&]<typename T>(T) {
        if (few)
            launch(kWhat, softmax_cross_entropy_kernel<T>, blocks, kThreads, logits, labels, rows, classes,
                   length, scale, parts, d_logits);
        else if (const std::size_t kept = bytes_of_kept_row(classes, sizeof(T), most_shared()); kept > 0)
            launch_with(kept, kWhat, kept_cross_entropy_kernel<T>, blocks, kThreadsOfKept, logits, labels,
                        classes, length, scale, parts, d_logits);
        else
            launch(kWhat, wide_cross_entropy_kernel<T>, blocks, kThreads, logits, labels, classes, length,
                   scale, parts, d_logits);
    });
    launch(kWhat, add_parts_kernel, 1, kThreads, parts, blocks, metrics);
}

void CudaDevice::softmax_part(In logits, Shard words, In labels, Out notes) {
    with_number(logits.type(), [&]<typename T>(T) {
        launch("a part of softmax", softmax_part_kernel<T>, static_cast<unsigned>(labels.rows()), kThreads,
               logits, logits.columns(), words, labels, notes);
    });
}

void CudaDevice::softmax_cross_entropy_of_parts(In logits, Shard words, In labels, In notes, float scale,
                                                InOut metrics, Out d_logits) {
    constexpr const char* kWhat = "softmax cross-entropy of parts";
    const auto rows = static_cast<unsigned>(labels.rows());
    auto* parts = workspace<Part>(rows);
    with_number(logits.type(), [&]<typename T>(T) {
        launch(kWhat, cross_entropy_of_parts_kernel<T>, rows, kThreads, logits, logits.columns(), words,
               labels, notes, notes.elements() / rows / kSoftmaxNumbers, scale, parts, d_logits);
    });
    launch(kWhat, add_parts_kernel, 1, kThreads, parts, rows, metrics);
}

void CudaDevice::squared_error(In prediction, In target, float scale, InOut metrics, Out d_prediction) {
    constexpr const char* kWhat = "squared error";
    const unsigned blocks = blocks_for(prediction.elements());
    auto* parts = workspace<Part>(blocks);
    with_number(prediction.type(), [&]<typename T>(T) {
        launch(kWhat, squared_error_kernel<T>, blocks, kThreads, prediction, target, prediction.elements(),
               static_cast<float>(prediction.columns()), scale, parts, d_prediction);
    });
    launch(kWhat, add_parts_kernel, 1, kThreads, parts, blocks, metrics);
}

void CudaDevice::sigmoid_dice(In logits, In target, float scale, InOut metrics, Out d_logits) {
    constexpr const char* kWhat = "Dice's loss";
    const auto blocks = static_cast<unsigned>(logits.rows());
    auto* parts = workspace<Part>(blocks);
    with_number(logits.type(), [&]<typename T>(T) {
        launch(kWhat, sigmoid_dice_kernel<T>, blocks, kThreads, logits, target, logits.columns(), scale,
               parts, d_logits);
    });
    launch(kWhat, add_parts_kernel, 1, kThreads, parts, blocks, metrics);
}

}  // namespace dp::trainer
