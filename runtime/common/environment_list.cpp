// SPDX-License-Identifier: Apache-2.0
#include "common/environment_list.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace dp {

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

namespace {

constexpr size_t kMostEntries = 40000;  // places_ have 16 bits

// FNV-1a (Fowler, Noll, Vo). A user who chooses names that collide only slows himself down.
constexpr uint32_t kHashOfNothing = 2166136261U;
uint32_t hash_on(uint32_t hash, char next) {
    return (hash ^ static_cast<unsigned char>(next)) * 16777619U;
}

}  // namespace

size_t EnvironmentList::place_of(std::string_view name, uint32_t hash) const {
    size_t place = hash & (places_.size() - 1);
    while (places_[place] != 0) {
        const Entry& entry = entries_[places_[place] - 1U];
        if (entry.hash == hash && std::string_view(environment_[entry.place], entry.name_size) == name) break;
        place = (place + 1) & (places_.size() - 1);
    }
    return place;
}

// Some tasks make one, where every written page must be copied first: so it is small, and made in one pass.
EnvironmentList::EnvironmentList(char** environment) : environment_(environment) {
    size_t count = 0;
    while (environment && environment[count] && count < kMostEntries) ++count;
    entries_.reserve(count);
    places_.resize(std::bit_ceil(count + count / 4 + 1));
    for (size_t i = 0; i < count; ++i) {
        uint32_t hash = kHashOfNothing;
        const char* end = environment[i];
        for (; *end != '=' && *end != '\0'; ++end) hash = hash_on(hash, *end);
        if (*end == '\0') continue;
        const std::string_view name(environment[i], static_cast<size_t>(end - environment[i]));
        if (name.starts_with(kSlot)) {
            slots_.push_back(environment[i]);
            continue;
        }
        const size_t place = place_of(name, hash);
        if (places_[place] != 0) continue;
        entries_.push_back({hash, static_cast<uint32_t>(name.size()), static_cast<uint32_t>(i)});
        places_[place] = static_cast<uint16_t>(entries_.size());
    }
}

char* EnvironmentList::find(std::string_view name) const {
    uint32_t hash = kHashOfNothing;
    for (char c : name) hash = hash_on(hash, c);
    const uint16_t found = places_[place_of(name, hash)];
    return found == 0 ? nullptr : environment_[entries_[found - 1U].place];
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
