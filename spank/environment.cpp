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

char** raw_environment(spank_t spank) {
    char** environment = nullptr;
    return spank_get_item(spank, S_JOB_ENV, &environment) == ESPANK_SUCCESS ? environment : nullptr;
}

EnvironmentList environment_list(spank_t spank) {
    return EnvironmentList(raw_environment(spank));
}

void change_environment(spank_t spank, EnvironmentList list, const std::vector<EnvironmentChange>& changes) {
    std::vector<const EnvironmentChange*> left;
    for (const auto& change : changes)
        if (!list.write(change)) left.push_back(&change);
    // From here on, Slurm moves the memory that `list` points to.
    for (const EnvironmentChange* change : left) {
        if (change->value)
            spank_setenv(spank, change->name.c_str(), change->value->c_str(), 1);
        else
            spank_unsetenv(spank, change->name.c_str());
    }
}

void remove_slots(spank_t spank) {
    for (const auto& name : slots_of(raw_environment(spank))) spank_unsetenv(spank, name.c_str());
}

}  // namespace dp::plugin
