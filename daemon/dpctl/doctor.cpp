// SPDX-License-Identifier: Apache-2.0
//
// `dpctl doctor`.
#include <algorithm>
#include <cstdlib>

#include "dpctl/commands.hpp"
#include "dpctl/query.hpp"

namespace dp {
namespace {

bool has_fault(const doctor::Findings& findings) {
    return std::ranges::any_of(findings,
                               [](const doctor::Finding& one) { return one.level == doctor::Level::fault; });
}

bool has_fault(const doctor::Examination& node) {
    return std::ranges::any_of(node.topics,
                               [](const doctor::Topic& topic) { return has_fault(topic.findings); });
}

// Whether this is one of several ranks of a step of ours.
bool is_rank_of_several() {
    const char* const size = std::getenv("DP_WORLD_SIZE");
    return std::getenv("DP_SOCKET") && size && std::string_view(size) != "1";
}

}  // namespace

int examine(const DoctorOptions& options) {
    doctor::Machine machine;
    machine.version = DP_VERSION;
    if (!options.command.empty()) machine.program = options.command.front();
    if (options.local || !is_rank_of_several()) {
        const auto found = examine_machine(machine);
        const int printed = print(options.json ? doctor_json(found) : doctor_text(found));
        return has_fault(found) ? 1 : printed;
    }
    const auto found = examine_step(machine);
    if (!found) return complain(found.error().message);
    if (!*found) return 0;
    const int printed = print(options.json ? doctor_json(**found) : doctor_text(**found));
    return has_fault((*found)->between) ||
                   std::ranges::any_of((*found)->nodes, [](const auto& node) { return has_fault(node); })
               ? 1
               : printed;
}

}  // namespace dp
