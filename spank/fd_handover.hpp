// SPDX-License-Identifier: Apache-2.0
//
// With SlurmdParameters=contain_spank (Slurm 24.05 and later) slurmstepd runs user_init, task_post_fork and
// task_exit each in a process of its own that shares its memory but not its descriptors (mgr.c: clone with
// only CLONE_VM). What user_init opens would be gone with it, and its numbers would soon mean something else.
//
// So user_init sends its descriptors through a socket pair that slurmstepd opened before, in init_post_opt.
// Later call-backs and tasks receive copies from there. Without contain_spank none of this happens.
#pragma once

#include <sys/types.h>

#include "common/node_setup.hpp"

namespace dp::plugin {

class FdHandover {
 public:
    // In slurmstepd itself, before user_init.
    Try<void> build();

    // In user_init, if there is nothing to keep: slurmstepd gets its two descriptors back.
    void abandon();

    // In user_init: in slurmstepd itself, like abandon(); in its own process, sends everything into the pair.
    Try<void> put(NodeSetup& node);

    // If there is a pair: gives `node` what slurmstepd and its tasks use (the launcher's end of the control
    // channel, the plan file, the end to wait on); it also stays there.
    Try<void> lend(NodeSetup& node) const;
    // Closes what was lent, at the end of the call-back.
    void take_back(NodeSetup& node) const;

    // If there is a pair: gives `node`, once, what belongs to the daemon. For the task that starts it.
    Try<void> hand_over(NodeSetup& node) const;

 private:
    pid_t builder_ = 0;
    // One packet waits at each end: what is lent at the first, what belongs to the daemon at the second.
    Fd lent_;
    Fd daemons_;
};

}  // namespace dp::plugin
