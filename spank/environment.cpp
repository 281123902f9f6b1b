// SPDX-License-Identifier: Apache-2.0
#include "environment.hpp"

namespace dp::plugin {

std::optional<std::string> environment_value(spank_t spank, const char* name) {
    std::string value(256, '\0');
    for (;;) {
        spank_err_t rc = spank_getenv(spank, name, value.data(), static_cast<int>(value.size()));
        if (rc == ESPANK_NOSPACE && value.size() < (size_t{1} << 22)) {
            value.resize(value.size() * 4);
            continue;
        }
        if (rc != ESPANK_SUCCESS) return std::nullopt;
        value.resize(value.find('\0'));
        return value;
    }
}

namespace {

void make(spank_t spank, const EnvironmentChange& change) {
    if (change.value)
        spank_setenv(spank, change.name.c_str(), change.value->c_str(), 1);
    else
        spank_unsetenv(spank, change.name.c_str());
}

}  // namespace

void change_environment(spank_t spank, const std::vector<EnvironmentChange>& changes) {
    for (const auto& change : changes) make(spank, change);
}

// Slurm allocates and clears 256 KiB for each variable that it sets (setenvf). The task has its environment,
// a copy of slurmstepd's, to itself: what fits is written into it.
void change_task_environment(spank_t spank, const std::vector<EnvironmentChange>& changes) {
    char** environment = nullptr;
    for (const auto& change : changes) {
        // Anew each time: setting a variable may move the list.
        const bool readable = spank_get_item(spank, S_JOB_ENV, &environment) == ESPANK_SUCCESS && environment;
        if (!readable || !write_over(environment, change)) make(spank, change);
    }
}

}  // namespace dp::plugin
