// SPDX-License-Identifier: Apache-2.0
#include "common/environment_list.hpp"

#include <algorithm>
#include <cstring>
#include <functional>

namespace dp {

std::vector<EnvironmentChange> empty_slots(bool tiles) {
    // DP_INJECTED alone is long.
    const int small = tiles ? 56 : 44;
    constexpr size_t kSmallSize = 96;
    constexpr size_t kLargeSize = 1500;
    std::vector<EnvironmentChange> slots;
    for (int i = 0; i <= small; ++i)
        slots.push_back(
            {std::string(kSlot) + std::to_string(i), std::string(i < small ? kSmallSize : kLargeSize, ' ')});
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

// One piece of memory, sorted by number: made in each task, where every page that is written is one to copy.
EnvironmentList::EnvironmentList(char** environment) {
    size_t count = 0;
    while (environment && environment[count]) ++count;
    entries_.reserve(count);
    for (uint32_t i = 0; i < count; ++i) {
        const char* const equals = std::strchr(environment[i], '=');
        if (!equals) continue;
        const std::string_view name(environment[i], static_cast<size_t>(equals - environment[i]));
        if (name.starts_with(kSlot))
            slots_.push_back(environment[i]);
        else
            entries_.push_back(
                {std::hash<std::string_view>()(name), i, static_cast<uint32_t>(name.size()), environment[i]});
    }
    std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
        return a.hash != b.hash ? a.hash < b.hash : a.place < b.place;
    });
}

// Of two of a name the first one counts.
char* EnvironmentList::find(std::string_view name) const {
    const size_t hash = std::hash<std::string_view>()(name);
    auto entry = std::lower_bound(entries_.begin(), entries_.end(), hash,
                                  [](const Entry& e, size_t wanted) { return e.hash < wanted; });
    for (; entry != entries_.end() && entry->hash == hash; ++entry)
        if (std::string_view(entry->text, entry->name_size) == name) return entry->text;
    return nullptr;
}

std::optional<std::string> EnvironmentList::operator()(const char* name) const {
    const std::string_view wanted(name);
    const char* const text = find(wanted);
    if (!text) return std::nullopt;
    return std::string(text + wanted.size() + 1);
}

bool EnvironmentList::write(const EnvironmentChange& change) {
    if (!change.value) return false;
    const size_t name = change.name.size();
    const size_t size = name + 1 + change.value->size();
    char* place = find(change.name);
    if (!place) {
        const auto slot = std::find_if(slots_.begin(), slots_.end(),
                                       [&](const char* text) { return std::strlen(text) >= size; });
        if (slot == slots_.end()) return false;
        place = *slot;
        slots_.erase(slot);
    }
    if (std::strlen(place) < size) return false;
    std::memcpy(place, change.name.c_str(), name);
    place[name] = '=';
    std::memcpy(place + name + 1, change.value->c_str(), change.value->size() + 1);
    return true;
}

}  // namespace dp
