// SPDX-License-Identifier: Apache-2.0
//
// With SlurmdParameters=contain_spank (Slurm 24.05 and later) slurmstepd runs user_init, task_post_fork and
// task_exit each in a process of its own that shares its memory but not its table of descriptors (mgr.c:
// clone with CLONE_VM alone). What user_init opens would be gone with it, and its numbers would soon mean
// something else.
//
// So there, what user_init has made is sent to ourselves through a socket pair that
// slurmstepd opened before, in init_post_opt. Whoever needs it later, in one of these processes or in a task,
// gets descriptors of its own from there. Nothing of this happens without contain_spank.
#pragma once

#include <sys/types.h>

#include "base/fd.hpp"
#include "base/result.hpp"
#include "common/node_setup.hpp"

namespace dp::plugin {

class FdHandover {
 public:
    // In slurmstepd itself, before user_init.
    Try<void> build();

    // In user_init, where there is nothing to keep: slurmstepd gets its two descriptors back.
    void abandon();

    // In user_init: in slurmstepd itself the socket pair is closed and `node` stays as it is; in a process
    // that will be gone, everything is sent into the pair.
    Try<void> put(NodeSetup& node);

    // Where there is a pair: gives `node` what slurmstepd and its tasks use (the control channel's
    // launcher's end, the plan file, the end to wait on); it stays there, too.
    Try<void> lend(NodeSetup& node) const;
    // Takes away what was lent, when the call-back that has it ends.
    void take_back(NodeSetup& node) const;

    // Where there is a pair: gives `node`, once, what belongs to the daemon. For the task that starts it.
    Try<void> hand_over(NodeSetup& node) const;

 private:
    pid_t builder_ = 0;
    // A packet waits at each end: what is lent at the first, what is the daemon's at the second.
    Fd lent_;
    Fd daemons_;
};

}  // namespace dp::plugin
