// SPDX-License-Identifier: Apache-2.0
#include "stacks/stillness.hpp"

namespace dp::stacks {
namespace {

double share(std::chrono::nanoseconds used, std::chrono::nanoseconds of) {
    return of.count() > 0 ? static_cast<double>(used.count()) / static_cast<double>(of.count()) : 0;
}

}  // namespace

void StillnessDetector::note(const Look& look) {
    last_ = look;
    if (look.is_counted && wants_counts(look)) counted_ = look;
    if (begun_ && is_where_it_was()) return;
    begun_ = look;
    counted_ = look.is_counted ? begun_ : std::nullopt;
    strays_ = 0;
    strays_since_ = look.at;
    lines_ = {look.line};
}

bool StillnessDetector::is_where_it_was() {
    if (last_.at - strays_since_ > timeout_) {
        strays_ = 0;
        strays_since_ = last_.at;
    }
    if (last_.place == 0 || last_.place != begun_->place)
        ++strays_;
    else
        lines_.insert(last_.line);
    if (strays_ > kStrayLooks || lines_.size() > kLinesOfALoop) return false;
    if (!counted_) return true;
    const auto timeouts = static_cast<uint64_t>(stood() / timeout_) + 1;
    if (last_.calls != counted_->calls ||
        last_.transferred - counted_->transferred >= timeouts * kTransferOfWork)
        return false;
    // At the first looks a tick of the kernel's clock would be much.
    const auto time = last_.at - counted_->at;
    return time < std::min<std::chrono::nanoseconds>(std::chrono::seconds(1), timeout_ / 2) ||
           share(last_.children_cpu - counted_->children_cpu, time) < kBusy;
}

std::optional<SteadyTime> StillnessDetector::still_since() const {
    if (!begun_ || stood() < timeout_) return std::nullopt;
    return begun_->at;
}

bool StillnessDetector::is_busy() const {
    return counted_ && share(last_.cpu - counted_->cpu, last_.at - counted_->at) >= kBusy;
}

}  // namespace dp::stacks
