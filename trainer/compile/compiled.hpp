// SPDX-License-Identifier: Apache-2.0
//
// Looks up the entries that `trainer compile` cached. Never fails because of the cache: what is missing,
// stale or damaged is computed again, and one line says so. run.cpp calls it on each rank.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "trainer/compile/plan.hpp"
#include "trainer/compile/stored_data.hpp"

namespace dp::trainer {

class Compiled {
 public:
    // Without a directory, finds nothing.
    Compiled(const std::optional<std::filesystem::path>& directory, DataRequest data);

    // What the model's training is known to need and what was fastest; the device is given its choices, so it
    // must not have worked yet. Null where nothing is known.
    // `options`: what of a training's options a plan depends on.
    const Plan* plan(const Facts& options, bool threads_given, Device& device);
    // As load().
    Result<Dataset> load();

    // After both, a line for people: what was used, and what was not and why; nothing if there were no
    // entries. `now`: seconds since 1970.
    std::optional<std::string> line(double now) const;

 private:
    struct Part {
        std::optional<std::int64_t> written;  // of what was used
        std::string why_not;
    };
    std::optional<Cache> cache_;
    DataRequest request_;
    std::string build_;
    CacheKey data_key_;
    std::optional<Plan> plan_;
    Part plan_part_, data_part_;

    // Finds an entry, and records the outcome in `part`.
    std::optional<Entry> find(const CacheKey& key, Part& part) const;
};

}  // namespace dp::trainer
