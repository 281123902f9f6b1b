// SPDX-License-Identifier: Apache-2.0
#include "loop/gpu_sampler.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "framing.hpp"
#include "loop/gpu_probe.hpp"
#include "record/gpus.hpp"

namespace dp {

void GpuSampler::start(event_base* base) {
    if (command_.empty()) return;
    program_.emplace(
        [this](std::string& said) {
            return take_frames<wire::NodeUsage>(said, kMaxGpuUse,
                                                [this](const wire::NodeUsage& usage) { note(usage); });
        },
        [this](HelperRun::End end) {
            // Where there is nothing to look at it ends at once.
            if (end == HelperRun::End::wrong || has_found_)
                note_problem("the program that looked at them has ended");
            program_->end();
        });
    if (const auto started = program_->start(base, command_); !started) note_problem(started.error().message);
}

void GpuSampler::note(const wire::NodeUsage& said) {
    // Of some of them, perhaps.
    if (!said.problem().empty()) note_problem(printable(said.problem(), kMaxGpuProblem));
    if (said.gpus_size() == 0) return;
    has_found_ = true;
    found_ = said;
}

void GpuSampler::note_problem(const std::string& problem) {
    constexpr size_t kMostTold = 10;
    if (told_.size() < kMostTold && told_.insert(problem).second) problem_ = problem;
}

std::vector<std::string> every(std::vector<std::string> command, std::chrono::milliseconds interval) {
    if (!command.empty()) {
        command.emplace_back("--every");
        command.push_back(std::to_string(std::max(interval, kGpusLookedAtMostEvery).count()));
    }
    return command;
}

}  // namespace dp
