// SPDX-License-Identifier: Apache-2.0
//
// Something that srun need not wait for at once, done in a child process. Not on a thread: Slurm reads the
// environment where it asks slurmctld, and srun changes it meanwhile.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

#include "common/fd.hpp"
#include "common/result.hpp"

namespace dp::plugin {

class ChildWork {
 public:
    // Runs `work` in a copy of this process, which prints nothing and ends with this process at the latest.
    static Try<ChildWork> start(const std::function<Try<std::string>()>& work);

    // Waits for it; once. Fails as `work` does, or where the child was ended before it had answered.
    Try<std::string> finish();

 private:
    pid_t child_ = -1;
    Fd answer_;
};

}  // namespace dp::plugin
