// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "trainer/profile/views.hpp"

namespace dp::trainer {
namespace {

using Json = nlohmann::ordered_json;

// A row of the trace: what the steps consist of, and what goes on beside.
enum class Row { steps, aside };

// Microseconds since the first step.
Json slice(std::int64_t rank, std::string_view name, std::int64_t begin, std::int64_t end, std::int64_t zero,
           Row row = Row::steps) {
    return {{"ph", "X"},
            {"pid", rank},
            {"tid", static_cast<int>(row)},
            {"name", name},
            {"ts", 1e-3 * static_cast<double>(begin - zero)},
            {"dur", 1e-3 * static_cast<double>(end - begin)}};
}

}  // namespace

std::string profile_trace(const ProfileRecorder& recorder, std::int64_t rank) {
    Json events = Json::array();
    events.push_back({{"ph", "M"},
                      {"pid", rank},
                      {"name", "process_name"},
                      {"args", {{"name", "rank " + std::to_string(rank)}}}});
    const OperationLog& log = recorder.log();
    std::int64_t number = recorder.range().first;
    for (const RecordedStep& step : recorder.steps()) {
        const std::int64_t zero = recorder.steps().front().begin;
        events.push_back(slice(rank, "step " + std::to_string(number++), step.begin, step.end, zero));
        const std::span<const LoggedOperation> all =
            std::span(log.operations()).subspan(step.first, step.operations);
        const auto parts = parts_of(all);
        for (std::size_t first = 0, end = 0; first < all.size(); first = end) {
            while (end < all.size() && parts[end] == parts[first]) ++end;
            events.push_back(slice(rank, name_of(parts[first]), all[first].begin, all[end - 1].end, zero));
            for (std::size_t i = first; i < end; ++i) {
                Json event = slice(rank, name_of(all[i].operation), all[i].begin, all[i].end, zero);
                event["args"] = {
                    {"layer", log.owners()[all[i].owner]}, {"flop", all[i].flops}, {"bytes", all[i].bytes}};
                events.push_back(std::move(event));
            }
        }
    }
    if (!recorder.steps().empty())
        for (const DeviceWork& one : log.aside())
            events.push_back(slice(rank, name_of(log.operations()[one.operation].operation), one.begin,
                                   one.end, recorder.steps().front().begin, Row::aside));
    return Json{{"displayTimeUnit", "ms"}, {"traceEvents", events}}.dump(-1, ' ', false,
                                                                         Json::error_handler_t::replace) +
           "\n";
}

}  // namespace dp::trainer
