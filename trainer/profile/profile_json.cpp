// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "trainer/profile/views.hpp"

namespace dp::trainer {
namespace {

using Json = nlohmann::ordered_json;

template <typename Numbers, typename Names>
Json by_name(const Numbers& numbers, const Names& names) {
    Json json = Json::object();
    for (std::size_t i = 0; i < numbers.size(); ++i) json[std::string(name_of(names[i]))] = numbers[i];
    return json;
}

Json json_of(const ProfileRow& row) {
    const auto share = row.share_of_peak();
    return {{"name", row.name},   {"calls", row.calls}, {"seconds", by_name(row.seconds, kParts)},
            {"flops", row.flops}, {"bytes", row.bytes}, {"share_of_peak", share ? Json(*share) : Json()}};
}

Json json_of(const ProfiledMemory& one) {
    return {{"bytes", one.bytes},
            {"kind", name_of(one.kind)},
            {"layer", one.layer},
            {"first", one.first},
            {"last", one.last}};
}

Json json_of(const RankTimes& rank) {
    return {{"step", rank.step}, {"communication", rank.communication}, {"load", rank.load}};
}

Json json_of(const Advice& advice) {
    return {{"text", advice.text},
            {"options", advice.options},
            {"leave_out", advice.leave_out},
            {"gain", advice.gain}};
}

template <typename All>
Json json_of_each(const All& all) {
    Json json = Json::array();
    for (const auto& one : all) json.push_back(json_of(one));
    return json;
}

Json json_of(const MemoryProfile& memory) {
    Json curve = Json::array();
    for (const auto& now : memory.curve) curve.push_back(now);
    return {{"held_bytes", memory.held},
            {"kinds", by_name(memory.kinds, kMemoryKinds)},
            {"peak",
             {{"operation", memory.peak},
              {"name", memory.peak_operation},
              {"layer", memory.peak_layer},
              {"bytes", memory.peak_bytes()}}},
            {"largest_at_peak", json_of_each(memory.largest)},
            {"curve", curve}};
}

Json json_of(const Peaks& peaks) {
    return {{"flops_per_second", peaks.flops}, {"bytes_per_second", peaks.bytes}};
}

}  // namespace

Json profile_json(const Profile& profile) {
    return {{"profile", 1},
            {"what", profile.what},
            {"version", profile.version},
            {"steps", {profile.steps.first, profile.steps.last}},
            {"seconds", profile.seconds},
            {"median_seconds", profile.median},
            {"median_seconds_without", profile.median_without > 0 ? Json(profile.median_without) : Json()},
            {"overhead", profile.overhead ? Json(*profile.overhead) : Json()},
            {"parts", by_name(profile.parts, kParts)},
            {"other", profile.other},
            {"hidden_communication", profile.hidden ? Json(*profile.hidden) : Json()},
            {"peaks", profile.peaks ? json_of(*profile.peaks) : Json()},
            {"operations", json_of_each(profile.operations)},
            {"layers", json_of_each(profile.layers)},
            {"memory", json_of(profile.memory)},
            {"ranks", json_of_each(profile.ranks)},
            {"advice", json_of_each(profile.advice)},
            {"untried", profile.untried}};
}

}  // namespace dp::trainer
