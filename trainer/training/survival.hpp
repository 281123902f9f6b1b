// SPDX-License-Identifier: Apache-2.0
//
// A training that survives its dead (--dp-on-failure=restart): the processes that are left keep its state, and in the
// next generation one of them gives it to all. run.cpp has one for a process; train() uses it.
//
//   train() fails because a peer has died         it leaves what it holds here (keep)
//   the next generation's train() begins          the ranks say what they hold; the first of those that hold the
//                                                 newest whole state is the source, and copies it to host memory (ask)
//   its parameters and optimizer have been made   every rank takes the source's numbers (give)
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "trainer/base/communicator.hpp"
#include "trainer/checkpoint/manifest.hpp"
#include "trainer/devices/device.hpp"
#include "trainer/training/observer.hpp"

namespace dp::trainer {

// What a training of the last generation holds.
class Remains {
 public:
    virtual ~Remains() = default;
    // At the end of its last step; nullopt if not all of it is whole.
    virtual std::optional<Progress> progress() = 0;
    // Ranks that trained.
    virtual std::int64_t world() const = 0;
    // The step that this rank has come to, whole or not.
    virtual std::int64_t reached() const = 0;
    // Parameters, the optimizer's state and buffers, in the order of give().
    virtual std::vector<std::vector<float>> state() = 0;
};

class Survival {
 public:
    struct Totals {
        std::int64_t recoveries = 0;
        double seconds = 0;
        std::int64_t repeated = 0;  // steps
    };

    // Of the world. In a later one than 0, all ranks ask each other.
    void enter(std::int64_t generation) { generation_ = generation; }
    bool is_restart() const { return generation_ > 0; }
    // The state of a training that has failed, with what must live as long (its communicator).
    void keep(std::unique_ptr<Remains> remains) { remains_ = std::move(remains); }
    bool has_remains() const { return remains_ != nullptr || !copy_.empty(); }
    // The first one counts, until the next generation has asked: a later one was made for a training that did not begin.
    void keep(std::unique_ptr<Communicator> communicator) {
        if (remains_ && !communicator_) communicator_ = std::move(communicator);
    }
    // When this process heard of the death.
    void begin(std::chrono::steady_clock::time_point now) { began_ = now; }

    // Who has the newest whole state; nullopt if nobody has. Frees what is left of the last generation, except for the
    // source's copy. Every rank calls.
    struct Source {
        std::int64_t rank;
        // Loss and correct are this rank's, or the mean of those who have theirs; all together stand for the last world.
        Progress progress;
    };
    Result<std::optional<Source>> ask(Device& device, Communicator& communicator);

    // Fills part of a tensor of f32 numbers: `part` of the `all` of the next vector of the source's state. Every rank
    // calls, for the same vectors in the same order.
    struct Part {
        Tensor tensor;              // receives them
        std::int64_t first, count;  // of the vector
    };
    Result<void> give(const Source& source, std::span<const Part> parts, std::span<const std::int64_t> sizes,
                      Device& device, Communicator& communicator);

    // The training stands at `step` again. What to tell, the same on all ranks.
    RecoveryReport done(std::int64_t step, const std::optional<Source>& source);
    const Totals& totals() const { return totals_; }

 private:
    std::int64_t generation_ = 0;
    // Destroyed in this order: the remains first.
    std::unique_ptr<Communicator> communicator_;
    std::unique_ptr<Remains> remains_;
    std::optional<Progress> copied_;  // the source's, until all have it
    std::int64_t last_world_ = 0;     // of the remains or the copy
    // What travels. Where that has failed it stays until all have left give(): others of the node may still read it, and
    // pass on what they read.
    Tensor room_;
    std::vector<std::vector<float>> copy_;
    std::optional<std::chrono::steady_clock::time_point> began_;
    std::chrono::steady_clock::time_point asked_;
    double seconds_ = 0;        // of the one who heard first, until it asked
    std::int64_t reached_ = 0;  // by any survivor
    Totals totals_;
};

}  // namespace dp::trainer
