// SPDX-License-Identifier: Apache-2.0
#include "stacks/stillness.hpp"

namespace dp::stacks {
namespace {

// While nobody looked for so long, it was stopped with the step (scontrol suspend), or the machine was.
constexpr auto kPause = std::chrono::seconds(3);

double share(std::chrono::nanoseconds used, std::chrono::nanoseconds of) {
    return of.count() > 0 ? static_cast<double>(used.count()) / static_cast<double>(of.count()) : 0;
}

}  // namespace

void StillnessDetector::note(const Look& look) {
    const bool is_stray = begun_ && (look.place == 0 || look.place != begun_->place);
    if (is_stray) ++strays_;
    if (!is_stray) lines_.insert(look.line);
    const bool moved = !begun_ || strays_ > kStrayLooks || lines_.size() > kLinesOfALoop ||
                       look.at - last_.at > kPause ||
                       look.transferred - begun_->transferred >= kTransferOfWork;
    // Over a second: at the first looks a tick of the kernel's clock would be much.
    const bool has_busy_children =
        !moved && look.at - begun_->at >= std::chrono::seconds(1) &&
        share(look.children_cpu - begun_->children_cpu, look.at - begun_->at) >= kBusy;
    last_ = look;
    if (!moved && !has_busy_children) return;
    begun_ = look;
    strays_ = 0;
    lines_ = {look.line};
}

std::optional<SteadyTime> StillnessDetector::still_since() const {
    if (!begun_ || stood() < timeout_) return std::nullopt;
    return begun_->at;
}

bool StillnessDetector::is_busy() const {
    return begun_ && share(last_.cpu - begun_->cpu, stood()) >= kBusy;
}

}  // namespace dp::stacks
