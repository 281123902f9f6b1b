// SPDX-License-Identifier: Apache-2.0
//
// What `trainer compile` measured for a model, a batch and a device, as a cache entry: the memory it needs,
// the time of a step, and the fastest choices. compile.cpp makes it, compiled.cpp hands it to a run.
#pragma once

#include <optional>

#include "trainer/compile/entry.hpp"
#include "trainer/compile/peaks.hpp"
#include "trainer/devices/device.hpp"
#include "trainer/memory/estimate.hpp"

namespace dp::trainer {

// For a rank that trains alone; with others it needs no more.
struct Plan {
    MemoryNeeds needs;         // worked out, by part
    std::int64_t peak = 0;     // bytes of the device that a training took, measured
    double plain_seconds = 0;  // of a step, without any choice
    double step_seconds = 0;   // with these
    TunedChoices choices;
    Peaks peaks;  // of the device with them; 0: not measured
};

// The fact of a plan's key that says for which device it is: DeviceFacts::model.
inline constexpr const char* kDeviceFact = "device";

// `options`: what changes a step. `threads_given`: by OMP_NUM_THREADS, so no choice. `data`: data_key().
CacheKey plan_key(const Facts& options, const Device& device, bool threads_given, const CacheKey& data,
                  const std::string& build);

// Pure. Nothing if the JSON is not a plan.
nlohmann::json json_of(const Plan& plan);
std::optional<Plan> plan_of(const nlohmann::json& json);

// Pure: memory_problem() for the measured peak of a rank that shared nothing.
std::optional<std::string> planned_problem(std::string_view model, const MemoryCase& the_case,
                                           std::int64_t peak, std::string_view device,
                                           std::int64_t available);

}  // namespace dp::trainer
