// SPDX-License-Identifier: Apache-2.0
//
// Tells a recorder of a training.
#pragma once

#include "trainer/profile/recorder.hpp"
#include "trainer/training/training.hpp"

namespace dp::trainer {

class Recording final : public Observer {
 public:
    explicit Recording(ProfileRecorder& recorder) : recorder_(recorder) {}
    void on_step_begin() override { recorder_.on_step_begin(); }
    void on_step(std::int64_t, std::int64_t, const Schedule&) override { recorder_.on_step(); }

 private:
    ProfileRecorder& recorder_;
};

}  // namespace dp::trainer
