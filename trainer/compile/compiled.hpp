// SPDX-License-Identifier: Apache-2.0
//
// Looks up the entries that `trainer compile` cached. Never fails because of the cache: what is missing,
// stale or damaged is computed again, and one line says so. run.cpp calls it on each rank.
#pragma once

#include "trainer/compile/plan.hpp"
#include "trainer/compile/stored_data.hpp"

namespace dp::trainer {

class Compiled {
 public:
    // Without a directory, finds nothing.
    Compiled(const std::optional<std::filesystem::path>& directory, DataRequest data);

    // The plan of a training with these options, or null. Gives its choices to the device, unused so far.
    const Plan* plan(const Facts& options, bool threads_given, Device& device);
    // As load().
    Result<Dataset> load();

    // After both, a line for people: what was used, and what was not and why; also if all that there is was made for another GPU.
    // `now`: seconds since 1970.
    std::optional<std::string> line(double now) const;

 private:
    std::optional<Cache> cache_;
    DataRequest request_;
    std::string build_;
    CacheKey data_key_, plan_key_;
    std::optional<Plan> plan_;
    Lookup found_plan_, found_data_;

    std::string of_another_gpu() const;
};

}  // namespace dp::trainer
