// SPDX-License-Identifier: Apache-2.0
//
// The ranks that train together: libdp's world, or this process alone. run.cpp joins and connects it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/model_parallel.hpp"
#include "dp/dp.hpp"
#include "trainer/devices/device.hpp"
#include "trainer/devices/nccl_group.hpp"
#include "trainer/parallel/groups.hpp"
#include "trainer/parallel/node_communicator.hpp"

namespace dp::trainer {

class World {
 public:
    static World alone() { return World(std::nullopt); }
    // Says hello to the world of this step.
    static Result<World> join();

    std::int64_t size() const { return context_ ? context_->world().size : 1; }
    // Null if this process is alone.
    const dp_world* facts() const { return context_ ? &context_->world() : nullptr; }

    // Reports this rank's step (dp_at_step); cheap.
    void at_step(std::int64_t step) {
        if (context_) context_->at_step(static_cast<std::uint64_t>(step));
    }

    // Reports this rank's phase for dpctl top (dp_phase); cheaper still.
    void phase(dp_phase_kind phase) {
        if (context_) (void)context_->phase(phase);
    }

    // Logs a number of the training for dpctl report (dp_log_scalar); as cheap.
    void log_scalar(const char* name, double value) {
        if (context_) (void)context_->log_scalar(name, value);
    }

    // Whether this rank checks the files that all ranks of its node see.
    bool is_first_of_node() const { return !context_ || context_->world().local_rank == 0; }

    // Before there is a communicator: whether every rank has the same `found` for `what`. If not, all ranks
    // get an error of this fault that names the ranks, their hosts and what they found. Every rank calls.
    Result<void> agree(const std::string& what, const std::string& found, const std::string& remedy,
                       Fault fault = Fault::usage);

    // Elects the rank that reports an error: rank 0 if it claims that, else the first that does.
    void claim_reporter();
    std::optional<std::uint32_t> reporter();
    void resign_as_reporter();  // if this rank is it, and ranks are missing in leave_together()
    // Whether ranks begin again (--dp-on-failure=restart).
    bool can_restart() const;
    // Declares that this process will rejoin when others die.
    void enable_rejoin() {
        if (context_) context_->enable_rejoin();
    }
    // After a failure: waits until a peer's death is known, then for the next generation, in which this process may have
    // another rank. False: no rank died, the step is ending, or ranks do not begin again.
    bool rejoin();
    // How many ranks there were before nodes were lost.
    std::int64_t first_size() const;

    // Clears the election. Every rank calls, and none continues before all have called.
    void leave_together();

    // The communicators of this rank for tensors of this device; World and device must outlive them. Every rank
    // calls. Fails if the devices differ in kind. `shares_gpu` excludes NCCL, which wants one GPU per rank; GPUs with the same PCI
    // address (MIG instances) do so, too. `parallel`: of this world; `messages`: what the stages of a pipeline will send.
    Result<Groups> connect(Device& device, bool shares_gpu, const ModelParallel& parallel,
                           StageMessages messages = StageMessages::in_a_row);
    // Why it connected in a slower way, in one line for the user.
    const std::optional<std::string>& note() const { return note_; }

 private:
    std::optional<Context> context_;
    std::optional<std::string> note_;

    explicit World(std::optional<Context> context) : context_(std::move(context)) {}
    Result<std::optional<std::int64_t>> peer_elsewhere();
    std::unique_ptr<Communicator> mesh(const Group& group);
    Result<NodeSetting> setting_of(const Group& group);
    void note_why(const SharedNodes& shared);
    Result<SharedNodes> share_memory(const Group& group);
    Result<std::unique_ptr<Communicator>> send_in_memory(const Group& group);
    Result<Groups> divide(Device& device, const ModelParallel& parallel);
    Result<Groups> divide_on_gpus(Device& device, bool shares_gpu, const ModelParallel& parallel,
                                  StageMessages messages);
};

}  // namespace dp::trainer
