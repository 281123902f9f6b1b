// SPDX-License-Identifier: Apache-2.0
#include "common/environment_list.hpp"

#include <algorithm>
#include <cstring>

namespace dp {
namespace {

bool write_into(char* place, const EnvironmentChange& change) {
    const size_t name = change.name.size();
    if (std::strlen(place) < name + 1 + change.value->size()) return false;
    std::memcpy(place, change.name.c_str(), name);
    place[name] = '=';
    std::memcpy(place + name + 1, change.value->c_str(), change.value->size() + 1);
    return true;
}

}  // namespace

std::vector<EnvironmentChange> empty_slots(bool tiles) {
    struct {
        int count;
        size_t size;
    } const kinds[] = {
        {34, 40},
        {tiles ? 19 : 10, 96},  // addresses, lists of tiles
        {1, 1500},              // DP_INJECTED
    };
    std::vector<EnvironmentChange> slots;
    for (const auto& kind : kinds)
        for (int i = 0; i < kind.count; ++i)
            slots.push_back({std::string(kSlot) + std::to_string(slots.size()), std::string(kind.size, ' ')});
    return slots;
}

std::vector<std::string> slots_of(const char* const* environment) {
    std::vector<std::string> names;
    for (; environment && *environment; ++environment)
        if (std::string_view(*environment).starts_with(kSlot))
            if (const char* const equals = std::strchr(*environment, '='))
                names.emplace_back(*environment, equals);
    return names;
}

bool overwrite(char** environment, const EnvironmentChange& change) {
    if (!change.value) return false;
    for (const std::string start = change.name + "="; environment && *environment; ++environment)
        if (std::string_view(*environment).starts_with(start)) return write_into(*environment, change);
    return false;
}

EnvironmentList::EnvironmentList(char** environment) {
    variables_.reserve(256);
    for (; environment && *environment; ++environment) {
        const std::string_view text(*environment);
        if (const size_t equals = text.find('='); equals == text.npos)
            continue;
        else if (text.starts_with(kSlot))
            slots_.push_back(*environment);
        else
            variables_.emplace(text.substr(0, equals), *environment);
    }
}

char* EnvironmentList::find(std::string_view name) const {
    const auto found = variables_.find(name);
    return found == variables_.end() ? nullptr : found->second;
}

std::optional<std::string> EnvironmentList::operator()(const char* name) const {
    const char* const text = find(name);
    if (!text) return std::nullopt;
    return std::string(text + std::strlen(name) + 1);
}

bool EnvironmentList::write(const EnvironmentChange& change) {
    if (!change.value) return false;
    const size_t size = change.name.size() + 1 + change.value->size();
    char* place = find(change.name);
    if (!place) {
        const auto slot = std::find_if(slots_.begin(), slots_.end(),
                                       [&](const char* text) { return std::strlen(text) >= size; });
        if (slot == slots_.end()) return false;
        place = *slot;
        slots_.erase(slot);
    }
    return write_into(place, change);
}

}  // namespace dp
