// SPDX-License-Identifier: Apache-2.0
#include "loop/examiner.hpp"

#include <sys/wait.h>

#include "engine/node_fitness.hpp"
#include "framing.hpp"

namespace dp {

Examiner::Examiner(OnFound on_found)
    : on_found_(std::move(on_found)),
      program_(
          [this](std::string& said) {
              return take_frames<wire::FromNode>(said, kMaxExamination,
                                                 [this](const wire::FromNode& message) { found(message); });
          },
          [this](HelperRun::End end) { ended(end); }) {}

void Examiner::start(event_base* base, const std::vector<std::string>& command) {
    if (const auto started = program_.start(base, command, kExaminationPatience); !started) {
        wire::NodeExamination nothing;
        nothing.set_problem(started.error().message);
        examined(std::move(nothing));
    }
}

void Examiner::measure(const wire::MeasureLink& link) {
    program_.tell(to_frame(link));
}

void Examiner::found(const wire::FromNode& message) {
    if (message.has_examination() && !is_examined_)
        examined(message.examination());
    else if (message.has_measured_link())
        on_found_(wrap(&wire::FromNode::mutable_measured_link, message.measured_link()));
}

void Examiner::examined(wire::NodeExamination examination) {
    is_examined_ = true;
    program_.relax();  // while links are measured the broker looks after the time
    on_found_(wrap(&wire::FromNode::mutable_examination, std::move(examination)));
}

void Examiner::reap() {
    if (ended_ > 0 && waitpid(ended_, nullptr, WNOHANG) != 0) ended_ = 0;
}

void Examiner::ended(HelperRun::End end) {
    ended_ = program_.end();
    if (is_examined_) return;
    wire::NodeExamination nothing;
    nothing.set_problem("`dpctl examine` has failed");
    examined(end == HelperRun::End::too_late ? not_examined_in_time() : nothing);
}

}  // namespace dp
