// SPDX-License-Identifier: Apache-2.0
//
// This process's place among the ranks: alone, or a rank of libdp's world. run.cpp joins it, then connects
// it.
#ifndef TRAINER_PARALLEL_WORLD_HPP
#define TRAINER_PARALLEL_WORLD_HPP

#include <memory>
#include <optional>
#include <string>

#include "dp/dp.hpp"
#include "trainer/base/communicator.hpp"
#include "trainer/base/result.hpp"
#include "trainer/devices/device.hpp"

namespace dp::trainer {

class World {
 public:
    static World alone() { return World(std::nullopt); }
    // Says hello to the world of this step.
    static Result<World> join();

    std::int64_t size() const { return context_ ? context_->world().size : 1; }
    // Null where this process is alone.
    const dp_world* facts() const { return context_ ? &context_->world() : nullptr; }

    // Tells the world how far this rank is; cheap.
    void at_step(std::int64_t step) {
        if (context_) context_->at_step(static_cast<std::uint64_t>(step));
    }

    // What it does from now on, for dpctl top; cheaper still.
    void phase(dp_phase_kind phase) {
        if (context_) (void)context_->phase(phase);
    }

    // Whether files that all ranks of a node see are this rank's to check, once for all.
    bool is_first_of_node() const { return !context_ || context_->world().local_rank == 0; }

    // Before there is a communicator: whether every rank has found the same, "the model", say. An error, the
    // same on all of them, names the ranks, their hosts and what they found. Every rank calls.
    Result<void> agree(const std::string& what, const std::string& found, const std::string& remedy);
    // For findings.cpp, in a world. Of the ranks that ask for it before they agree one has the word
    // afterwards: rank 0, or else the first.
    void ask_for_the_word();
    std::optional<std::uint32_t> who_has_the_word();
    void give_the_word_back();  // if this rank has it: where the ranks never come to leave_together
    // Nobody has it any more. Every rank calls, and none goes on before all have called.
    void leave_together();

    // The communicator between all ranks for tensors of this device; every rank calls. Refuses worlds whose
    // ranks have opened devices of different kinds. World and device must outlive it. With `shares_gpu` NCCL,
    // which wants a GPU a rank, is left out.
    Result<std::unique_ptr<Communicator>> connect(Device& device, bool shares_gpu);
    // What a person should know of how it connected, in one line.
    const std::optional<std::string>& note() const { return note_; }

 private:
    std::optional<Context> context_;
    std::optional<std::string> note_;

    explicit World(std::optional<Context> context) : context_(std::move(context)) {}
    Result<void> compare(const std::string& group, const Fact& fact, Fault fault);
    Result<std::unique_ptr<Communicator>> share_memory(std::unique_ptr<Communicator> gloo, Device& device);
};

}  // namespace dp::trainer

#endif
