// SPDX-License-Identifier: Apache-2.0
#include "environment.hpp"

#include <algorithm>

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

// Sorted, not hashed: made in each task, where every piece of memory is a page to copy.
Variables::Variables(spank_t spank) {
    char** const environment = variables(spank);
    size_t count = 0;
    while (environment && environment[count]) ++count;
    values_.reserve(count);
    for (size_t i = 0; i < count; ++i) {
        const std::string_view text(environment[i]);
        if (const size_t equals = text.find('='); equals != std::string_view::npos)
            values_.emplace_back(text.substr(0, equals), text.substr(equals + 1));
    }
    // Of two of a name the first one counts.
    std::stable_sort(values_.begin(), values_.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
}

std::optional<std::string> Variables::operator()(const char* name) const {
    const std::string_view wanted(name);
    const auto found =
        std::lower_bound(values_.begin(), values_.end(), wanted,
                         [](const auto& entry, std::string_view n) { return entry.first < n; });
    if (found == values_.end() || found->first != wanted) return std::nullopt;
    return std::string(found->second);
}

// What has room is written into Slurm's own list: see empty_slots.
void change_environment(spank_t spank, const std::vector<EnvironmentChange>& changes) {
    for (const auto& change : changes) {
        // Anew each time: setting a variable may move the list.
        char** const environment = variables(spank);
        if (!environment || !write_into(environment, change)) make(spank, change);
    }
}

void remove_slots(spank_t spank) {
    std::vector<std::string> names;
    for (char** entry = variables(spank); entry && *entry; ++entry)
        if (const std::string_view text(*entry); is_slot(text))
            names.emplace_back(text.substr(0, text.find('=')));
    for (const auto& name : names) spank_unsetenv(spank, name.c_str());
}

}  // namespace dp::plugin
