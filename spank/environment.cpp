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

// Slurm's own list, "NAME=value" each and then null.
char** variables(spank_t spank) {
    char** environment = nullptr;
    return spank_get_item(spank, S_JOB_ENV, &environment) == ESPANK_SUCCESS ? environment : nullptr;
}

void make(spank_t spank, const EnvironmentChange& change) {
    if (change.value)
        spank_setenv(spank, change.name.c_str(), change.value->c_str(), 1);
    else
        spank_unsetenv(spank, change.name.c_str());
}

}  // namespace

Variables::Variables(spank_t spank) {
    char** const environment = variables(spank);
    for (char** entry = environment; entry && *entry; ++entry) {
        const std::string_view text(*entry);
        if (const size_t equals = text.find('='); equals != std::string_view::npos)
            values_.emplace(text.substr(0, equals), text.substr(equals + 1));  // the first one counts
    }
}

std::optional<std::string> Variables::operator()(const char* name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? std::nullopt : std::optional<std::string>(found->second);
}

void change_environment(spank_t spank, const std::vector<EnvironmentChange>& changes) {
    for (const auto& change : changes) make(spank, change);
}

// Slurm allocates and clears 256 KiB for each variable that it sets (setenvf). The task has its environment,
// a copy of slurmstepd's, to itself: what fits is written into it.
void change_task_environment(spank_t spank, const std::vector<EnvironmentChange>& changes) {
    for (const auto& change : changes) {
        // Anew each time: setting a variable may move the list.
        char** const environment = variables(spank);
        if (!environment || !write_over(environment, change)) make(spank, change);
    }
}

}  // namespace dp::plugin
