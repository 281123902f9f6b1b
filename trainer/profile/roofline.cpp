// SPDX-License-Identifier: Apache-2.0
#include "trainer/profile/roofline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "trainer/devices/attention_passes.hpp"

namespace dp::trainer {
namespace {

constexpr double kAttainable = 3.0 / 3.35;  // of a GPU's memory bandwidth
// Seconds from a kernel to the next, and of a kernel that has next to nothing to do.
constexpr double kGap = 1.5e-6, kLeastKernel = 2e-6;

// What an operation reaches of a peak, 0..1. A review of devices/cuda derived it, without a GPU, for GPT-2 124M in bf16 with 64 x
// 1024 tokens on an H100 SXM, but for what is assumed. To be replaced once it is measured.
struct Reached {
    Operation operation;
    double of_products;  // of the units' peak
    double of_memory;    // of what is attainable
    int kernels;         // of a call
};
// cuBLASLt: 620 of 989 TFLOP/s (580 to 690), for inner dimensions of 768, epilogues and power.
constexpr double kLibrary = 620.0 / 989, kMemory = 0.92;
constexpr std::array kReached{
    Reached{Operation::attention, 0.288, kMemory, 1},           // 1.24 TFLOP in 7 ms
    Reached{Operation::attention_backward, 0.194, kMemory, 2},  // 3.1 TFLOP in 26 ms: two products twice
    Reached{Operation::convolve, 0.4, kMemory, 1},              // cuDNN: assumed, as the next two
    Reached{Operation::convolve_backward_input, 0.4, kMemory, 1},
    Reached{Operation::convolve_backward_parameters, 0.4, kMemory, 3},
    Reached{Operation::layer_norm, 0, 0.9, 1},
    Reached{Operation::layer_norm_backward, 0, kMemory, 2},
    Reached{Operation::softmax_cross_entropy, 0, 0.73,
            2},  // with the row in shared memory 6 ms, bound by instructions
    Reached{Operation::embed_backward, 0, 0.1,
            5},  // assumed: several blocks add the rows of the commonest token
    Reached{Operation::adam, 0, 0.95, 1},
};
// In one pass (devices/attention_passes.hpp): five products as fast as those seven, 3.1 TFLOP in 19 ms.
constexpr Reached kOnePass{Operation::attention_backward, 0.27, kMemory, 1};
// In fp32, of the units' peak: assumed.
constexpr double kLibraryFp32 = 0.8, kAttentionFp32 = 0.25;

bool is_in_one_pass(const Work& work, const DeviceModel& model, Type type) {
    return type == Type::bf16 && work.heads > 0 &&
           takes_one_pass(
               {work.heads, work.sequence, work.size, model.sms, static_cast<std::int64_t>(model.shared)});
}

Reached reached_by(const Work& work, const DeviceModel& model, Type type) {
    if (is_in_one_pass(work, model, type)) return kOnePass;
    const auto* row = std::ranges::find(kReached, work.operation, &Reached::operation);
    return row != kReached.end() ? *row : Reached{work.operation, kLibrary, kMemory, 1};
}

// Seconds of products at what is reached of the peak.
double product_seconds(const Work& work, const Reached& reached, const DeviceModel& model, Type type) {
    if (work.flops == 0) return 0;
    const bool is_attention =
        work.operation == Operation::attention || work.operation == Operation::attention_backward;
    if (type != Type::bf16) return work.flops / (model.fp32 * (is_attention ? kAttentionFp32 : kLibraryFp32));
    return work.flops / ((is_attention ? model.mma_sync : model.bf16) * reached.of_products);
}

// Other hardware sets the time of collectives and of copies from and to the host.
bool is_work(Operation operation) {
    return operation != Operation::upload && operation != Operation::download &&
           operation < Operation::all_reduce;
}

Bound larger(std::initializer_list<Bound> bounds) {
    const Bound most = std::max(bounds, [](const Bound& a, const Bound& b) { return a.seconds < b.seconds; });
    return most.seconds > 0 ? most : Bound{};
}

// Adds a call's time; the longest call says what sets it.
void add(Bound& sum, Bound& longest, const Bound& one) {
    sum.seconds += one.seconds;
    if (one.seconds <= longest.seconds) return;
    longest = one;
    sum.by = one.by;
}

void divide(RooflineRow& row, double steps) {
    for (double* number :
         {&row.calls, &row.flops, &row.bytes, &row.floor.seconds, &row.predicted.seconds, &row.measured})
        *number /= steps;
}

std::string number(double value, double unit) {
    return value > 0 ? fmt::format("{:.3g}", value / unit) : std::string("-");
}

}  // namespace

const DeviceModel* device_model_of(std::string_view description) {
    std::vector<std::string> words{""};
    for (const char c : description)
        if (std::isalnum(static_cast<unsigned char>(c)) != 0)
            words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
        else
            words.emplace_back();
    const auto has = [&](std::string_view word) { return std::ranges::find(words, word) != words.end(); };
    // Boards with other clocks and memories, and instances of a GPU.
    for (const std::string_view other : {"pcie", "nvl", "40gb", "mig", "sms"})
        if (has(other)) return nullptr;
    const auto* found = std::ranges::find_if(kDeviceModels, has, &DeviceModel::name);
    return found == kDeviceModels.end() ? nullptr : found;
}

Peaks peaks_of(const DeviceModel& model, Type type) {
    return {type == Type::bf16 ? model.bf16 : model.fp32, kAttainable * model.memory};
}

std::string_view name_of(Limit limit) {
    constexpr std::array<std::string_view, 4> kNames{"-", "arithmetic", "memory", "launches"};
    return kNames[static_cast<std::size_t>(limit)];
}

Work work_of(const LoggedOperation& one, const OperationLog& log) {
    const auto use = [&](std::uint32_t i) { return i < one.uses ? log.uses()[one.first_use + i].bytes : 0; };
    Work work{one.operation, one.flops, one.bytes, 0};
    // All columns of the narrower tensor, in our models.
    if (one.operation == Operation::copy_columns) work.bytes = 2 * std::min(use(0), use(1));
    // The logits once for the sums, and once for the gradient. There is an int32 label for each row.
    if (one.operation == Operation::softmax_cross_entropy) {
        work.again = use(0);
        work.row = use(0) / (use(1) / sizeof(std::int32_t));
    }
    // qkv, y, sums: a row of y has so many numbers, and there is a sum for each head of a row. The FLOPs are five products of the
    // scores that a token sees: (sequence + 1) / 2 on average.
    if (one.operation == Operation::attention_backward && use(2) > 0) {
        const double numbers = use(1) / sizeof(std::uint16_t), sums = use(2) / sizeof(float);
        work.sequence = std::llround(work.flops / (5 * numbers)) - 1;
        work.size = std::llround(numbers / sums);
        if (work.sequence > 0) work.heads = std::llround(sums / static_cast<double>(work.sequence));
    }
    return work;
}

Bound floor_of(const Work& work, const Peaks& peaks) {
    if (!is_work(work.operation)) return {};
    return larger({{work.flops / peaks.flops, Limit::arithmetic}, {work.bytes / peaks.bytes, Limit::memory}});
}

Bound prediction_of(const Work& work, const DeviceModel& model, Type type) {
    if (!is_work(work.operation)) return {};
    const Reached reached = reached_by(work, model, type);
    const double rate = reached.of_memory * peaks_of(model, type).bytes,
                 products = product_seconds(work, reached, model, type);
    const double again = work.row > model.shared ? work.again : 0;
    Bound bound = larger({{products, Limit::arithmetic},
                          {(work.bytes + again) / rate, Limit::memory},
                          {kLeastKernel * reached.kernels, Limit::launches}});
    bound.seconds += kGap * reached.kernels;
    return bound;
}

Roofline roofline_of(const ProfileRecorder& recorder, const std::optional<Peaks>& peaks,
                     const DeviceModel* model, Type type) {
    const OperationLog& log = recorder.log();
    struct Found {
        RooflineRow row;
        Bound longest_floor, longest_prediction;  // of a call
    };
    std::map<Operation, Found> found;
    Roofline roofline;
    RooflineRow& sum = roofline.sum;
    sum.name = "sum";
    for (const RecordedStep& step : recorder.steps())
        for (std::size_t i = step.first; i < step.first + step.operations; ++i) {
            const LoggedOperation& one = log.operations()[i];
            const Work work = work_of(one, log);
            const Bound floor = peaks ? floor_of(work, *peaks) : Bound{},
                        predicted = model != nullptr ? prediction_of(work, *model, type) : Bound{};
            auto& [row, longest_floor, longest_prediction] = found[one.operation];
            add(row.floor, longest_floor, floor);
            add(row.predicted, longest_prediction, predicted);
            sum.floor.seconds += floor.seconds;
            sum.predicted.seconds += predicted.seconds;
            for (RooflineRow* of : {&row, &sum}) {
                of->calls += 1;
                of->flops += work.flops;
                of->bytes += work.bytes;
                of->measured += 1e-9 * static_cast<double>(one.end - one.begin);
            }
        }
    const auto steps = static_cast<double>(std::max<std::size_t>(recorder.steps().size(), 1));
    divide(sum, steps);
    for (auto& [operation, one] : found) {
        one.row.name = name_of(operation);
        divide(one.row, steps);
        roofline.rows.push_back(std::move(one.row));
    }
    std::ranges::stable_sort(roofline.rows, std::greater(), [&](const RooflineRow& row) {
        return model != nullptr ? row.predicted.seconds : row.measured;
    });
    return roofline;
}

std::string roofline_text(const Roofline& roofline, bool is_measured) {
    constexpr double kMilli = 1e-3, kGiga = 1e9, kTera = 1e12;
    const bool is_predicted = roofline.sum.predicted.seconds > 0;
    std::string text = fmt::format("  {:<28}{:>6}{:>10}{:>10}{:>11}  {:<10}", "operation", "calls", "TFLOP",
                                   "GB", "floor, ms", "limited by");
    if (is_predicted) text += fmt::format("{:>15}", "predicted, ms");
    if (is_measured) text += fmt::format("{:>14}", "measured, ms");
    text += fmt::format("{:>9}", "share");
    const auto seconds_of = [&](const RooflineRow& row) {
        return is_measured ? row.measured : row.predicted.seconds;
    };
    const double whole = seconds_of(roofline.sum);
    const auto add_row = [&](const RooflineRow& row) {
        const Limit by = is_predicted ? row.predicted.by : row.floor.by;
        text += fmt::format("\n  {:<28}{:>6.4g}{:>10}{:>10}{:>11}  {:<10}", row.name, row.calls,
                            number(row.flops, kTera), number(row.bytes, kGiga),
                            number(row.floor.seconds, kMilli), name_of(by));
        if (is_predicted) text += fmt::format("{:>15}", number(row.predicted.seconds, kMilli));
        if (is_measured) text += fmt::format("{:>14}", number(row.measured, kMilli));
        text +=
            fmt::format("{:>9}", whole > 0 ? fmt::format("{:.1f} %", 100 * seconds_of(row) / whole) : "-");
    };
    for (const RooflineRow& row : roofline.rows) add_row(row);
    add_row(roofline.sum);
    return text;
}

nlohmann::ordered_json roofline_json(const Roofline& roofline, bool is_measured) {
    auto rows = nlohmann::ordered_json::array();
    const auto seconds_of = [](const Bound& bound) {
        return bound.by == Limit::nothing ? nlohmann::ordered_json() : nlohmann::ordered_json(bound.seconds);
    };
    for (const RooflineRow& row : roofline.rows) {
        rows.push_back({{"operation", row.name},
                        {"calls", row.calls},
                        {"flops", row.flops},
                        {"bytes", row.bytes},
                        {"floor_seconds", seconds_of(row.floor)},
                        {"predicted_seconds", seconds_of(row.predicted)}});
        if (is_measured) rows.back()["measured_seconds"] = row.measured;
    }
    return rows;
}

}  // namespace dp::trainer
