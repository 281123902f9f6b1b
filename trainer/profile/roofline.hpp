// SPDX-License-Identifier: Apache-2.0
//
// What a step must take on a GPU, and what it will take there: for each operation of a recorded step the floor that the GPU's peaks
// set (Williams, Waterman and Patterson 2009), and a prediction by what the kernels of devices/cuda are known to reach. Pure.
// `trainer info --roofline` shows them of a step on paper, `measure-performance --per-operation` beside what is measured.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/compile/peaks.hpp"
#include "trainer/profile/recorder.hpp"

namespace dp::trainer {

// A GPU by NVIDIA's data sheet of its SXM or passive board; FLOP and bytes a second. Products are dense, with sums in fp32.
struct DeviceModel {
    std::string_view name, product;
    double bf16;      // of tensor cores
    double mma_sync;  // what of that the instruction mma.sync reaches, by which attention's kernels multiply
    double fp32;      // without tensor cores: fp32 is not rounded to TF32 here
    double memory;
    double
        shared;  // bytes that a block may have, by the CUDA Programming Guide's table of compute capabilities
    int sms;
};
// On Hopper mma.sync reaches 62 % of the tensor cores' peak, for which wgmma is needed (Luo et al. 2024, "Benchmarking and
// Dissecting the Nvidia Hopper GPU Architecture via Microbenchmarking"). On Blackwell as much for each SM and clock is assumed.
inline constexpr std::array<DeviceModel, 5> kDeviceModels{{
    {"h100", "H100 SXM", 989e12, 613e12, 67e12, 3.35e12, 227 << 10, 132},
    {"h200", "H200 SXM", 989e12, 613e12, 67e12, 4.8e12, 227 << 10, 132},
    {"a100", "A100 SXM 80GB", 312e12, 312e12, 19.5e12, 2.039e12, 163 << 10, 108},
    {"b200", "B200 SXM", 2250e12, 700e12, 75e12, 8e12, 227 << 10, 148},
    {"l40s", "L40S", 362e12, 362e12, 91.6e12, 0.864e12, 99 << 10, 142},
}};
// Of a device that describes itself so (Device::description()); null: it is another, or a part of one.
const DeviceModel* device_model_of(std::string_view description);

// What the model reaches of them at most: 3.0 of the H100's 3.35 TB/s can be had.
Peaks peaks_of(const DeviceModel& model, Type type);

// What sets the time.
enum class Limit : std::uint8_t { nothing, arithmetic, memory, launches };
std::string_view name_of(Limit limit);
struct Bound {
    double seconds = 0;
    Limit by = Limit::nothing;
};

// What a call asks for. `again`: the bytes that devices/cuda reads once more than the shapes ask for where a block's shared memory does
// not hold `row` bytes. `heads` of all sequences of so many tokens, and the size of a head: of attention's backward pass in bf16.
struct Work {
    Operation operation;
    double flops = 0, bytes = 0, again = 0, row = 0;
    std::int64_t heads = 0, sequence = 0, size = 0;
};
Work work_of(const LoggedOperation& one, const OperationLog& log);

// No device with these peaks is faster, but for what is in its caches. Nothing where the device does not do the work: of collectives, and copies to the host.
Bound floor_of(const Work& work, const Peaks& peaks);
// `type`: of activations.
Bound prediction_of(const Work& work, const DeviceModel& model, Type type);

// An operation with all its calls of a step; seconds.
struct RooflineRow {
    std::string name;
    double calls = 0, flops = 0, bytes = 0;
    Bound floor, predicted;  // `by`: of the longest call
    double measured = 0;
};
struct Roofline {
    std::vector<RooflineRow> rows;  // the longest first
    RooflineRow sum;
};
// The mean of the steps that were recorded. Without peaks there is no floor, and without a model no prediction.
Roofline roofline_of(const ProfileRecorder& recorder, const std::optional<Peaks>& peaks,
                     const DeviceModel* model, Type type);

// The table, without a line's end behind it. `is_measured`: the times of the recorded steps are a device's.
std::string roofline_text(const Roofline& roofline, bool is_measured);
nlohmann::ordered_json roofline_json(const Roofline& roofline, bool is_measured);

}  // namespace dp::trainer
