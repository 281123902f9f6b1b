// SPDX-License-Identifier: Apache-2.0
//
// A training that survives its dead (--dp-on-failure=restart): the processes that are left keep its state, and in the
// next generation they give it to all. run.cpp has one for a process; train() uses it.
//
//   train() fails because a peer has died         it leaves what it holds here (keep)
//   the next generation's train() begins          the ranks say what they hold: all of the state, or with a sharded
//                                                 optimizer their own part and a copy of another's. Of the newest whole
//                                                 state (holdings.hpp), its holders copy theirs to host memory (ask)
//   its parameters and optimizer have been made   every rank takes the givers' numbers (give)
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
#include "trainer/training/holdings.hpp"
#include "trainer/training/observer.hpp"

namespace dp::trainer {

// What a training of the last generation holds.
class Remains {
 public:
    virtual ~Remains() = default;
    // At the end of its last step; nullopt if what it should hold is not whole.
    virtual std::optional<Progress> progress() = 0;
    // Ranks that trained.
    virtual std::int64_t world() const = 0;
    // The step that this rank has come to, whole or not.
    virtual std::int64_t reached() const = 0;
    // Of parameters and optimizer, at most kMostParts. A single part is all of it; otherwise this rank's own comes first.
    virtual std::vector<Shard> parts() const = 0;
    static constexpr std::size_t kMostParts = 2;
    // The numbers of a part: parameters and the optimizer's state, in the order of give().
    virtual std::vector<std::vector<float>> state(std::size_t part) = 0;
    virtual std::vector<float>
    buffers() = 0;  // with all else that no step of the optimizer changes, one behind the other
    // Whether state() has to finish the last step first, with sums that another rank of the node may hold.
    virtual bool has_to_complete() = 0;
    // Where other ranks have come a step further (holdings.hpp).
    virtual bool can_follow() = 0;
    virtual std::vector<float> sums() = 0;
    virtual void follow(const std::vector<float>& sums) = 0;
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
    bool has_remains() const { return remains_ != nullptr || copy_; }
    // The first one counts, until the next generation has asked: a later one was made for a training that did not begin.
    void keep(std::unique_ptr<Communicator> communicator) {
        if (remains_ && !communicator_) communicator_ = std::move(communicator);
    }
    // When this process heard of the death.
    void begin(std::chrono::steady_clock::time_point now) { began_ = now; }

    // Who has the newest whole state; nullopt if it is nowhere. Frees what is left of the last generation, except for
    // copies of what is given, and of what may exist only here.
    struct Source {
        std::int64_t rank;  // the first giver, which also gives the buffers
        std::vector<Piece> pieces;
        // Loss and correct are this rank's, or the mean of those who have theirs; all together stand for the last world.
        Progress progress;
    };
    // `values`: parameters that are learnt, with padding. Every rank calls.
    Result<std::optional<Source>> ask(std::int64_t values, Device& device, Communicator& communicator);

    // Where this rank wants numbers of a vector that is given, f32.
    struct Part {
        Tensor tensor;              // receives them
        std::int64_t first, count;  // of the vector
    };
    // `state`: what it wants of each vector of state(), `buffers`: where it wants all of buffers(). Every rank calls, for
    // as many vectors.
    Result<void> give(const Source& source, std::span<const std::vector<Part>> state,
                      const std::vector<Tensor>& buffers, Device& device, Communicator& communicator);

    // The training stands at `step` again. What to tell, the same on all ranks.
    RecoveryReport done(std::int64_t step, const std::optional<Source>& source);
    const Totals& totals() const { return totals_; }

 private:
    // Of what this rank held, until all have it: it may be needed again.
    struct Copy {
        Progress progress;
        std::vector<Shard> parts;
        std::vector<std::vector<std::vector<float>>> state;  // by part
        std::vector<float> buffers;
    };

    std::int64_t generation_ = 0;
    // Destroyed in this order: the remains first.
    std::unique_ptr<Communicator> communicator_;
    std::unique_ptr<Remains> remains_;
    std::optional<Copy> copy_;
    std::int64_t last_world_ = 0;  // of the remains or the copy
    // What travels. Where that has failed it stays until all have left give(): others of the node may still read it, and
    // pass on what they read.
    Tensor room_;
    std::optional<std::chrono::steady_clock::time_point> began_;
    std::chrono::steady_clock::time_point asked_;
    double seconds_ = 0;        // of the one who heard first, until it asked
    std::int64_t reached_ = 0;  // by any survivor
    Totals totals_;

    Result<void> send(const Shard& piece, std::int64_t rank, const std::vector<float>* numbers,
                      std::span<const Part> wanted, Device& device, Communicator& communicator);
    Result<void> follow(std::int64_t leader, bool follows, std::int64_t values, Device& device,
                        Communicator& communicator);
};

}  // namespace dp::trainer
