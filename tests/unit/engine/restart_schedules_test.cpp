// SPDX-License-Identifier: Apache-2.0
//
// Restarts under any order of messages: ranks die at random, links between nodes and broker are slow or fast as it
// happens, and still no rank begins a life while one of an earlier generation is alive anywhere, and every step
// ends. Each schedule follows from its seed.
#include <gtest/gtest.h>

#include <csignal>
#include <random>

#include "simulation.hpp"

namespace dp {
namespace {

constexpr uint32_t kNodes = 3;
constexpr uint32_t kRanksPerNode = 2;
constexpr uint32_t kRanks = kNodes * kRanksPerNode;

class Schedule {
 public:
    explicit Schedule(uint64_t seed)
        : random_(seed),
          step_(kNodes, kRanksPerNode, Time(10000), false, FailureAction::restart, settings()) {
        step_.is_manual = true;
    }

    void run() {
        step_.join_all();
        for (uint32_t rank = 0; rank < kRanks; ++rank) begin(rank, 0);
        for (int move = 0; move < 400 && !ended(); ++move) {
            this->move();
            follow();
        }
        // Nobody is hurt any more: what there is ends by itself.
        for (int turn = 0; turn < 4000 && !ended(); ++turn) {
            if (turn % 7 == 0) exit_one(0);
            deliver();
            step_.pass(Time(20), Time(20));
            follow();
        }
        EXPECT_TRUE(ended()) << "the step does not end";
    }

    uint32_t generations() const { return generations_; }

 private:
    std::mt19937_64 random_;
    Simulation step_;
    std::vector<std::optional<uint32_t>> alive_ = std::vector<std::optional<uint32_t>>(kRanks);
    std::vector<bool> kept_ = std::vector<bool>(kRanks, true);  // its keeper is there
    std::vector<uint32_t> lives_ = std::vector<uint32_t>(kNodes, 0);
    std::vector<size_t> signals_ = std::vector<size_t>(kNodes, 0);
    std::vector<bool> left_ = std::vector<bool>(kNodes, false);
    uint32_t generations_ = 0;

    static Settings settings() {
        Settings more;
        more.restarts = 5;
        return more;
    }
    uint64_t below(uint64_t n) { return random_() % n; }
    bool ended() const { return std::find(left_.begin(), left_.end(), false) == left_.end(); }

    void begin(uint32_t rank, uint32_t generation) {
        for (uint32_t other = 0; other < kRanks; ++other)
            EXPECT_EQ(alive_[other].value_or(generation), generation)
                << "rank " << rank << " begins beside rank " << other;
        alive_[rank] = generation;
        step_.killed_rank.reset();
        step_.start(rank);
        if (step_.killed_rank) return end(rank, SIGKILL);
        if (below(2) == 0) {
            step_.hello(rank);
            wire::FromRank progress;  // as a training would, or three in a row end the step
            progress.mutable_progress()->set_step(generation + 1);
            step_.from_rank(rank, progress);
        }
    }
    void end(uint32_t rank, int status) {
        if (!alive_[rank]) return;
        alive_[rank].reset();
        step_.exit(rank, status);
    }
    void exit_one(int status) {
        std::vector<uint32_t> living;
        for (uint32_t rank = 0; rank < kRanks; ++rank)
            if (alive_[rank]) living.push_back(rank);
        if (!living.empty()) end(living[below(living.size())], status);
    }
    void deliver() {
        while (below(8) != 0 && step_.deliver_one(random_())) {
        }
    }
    void move() {
        switch (below(12)) {
            case 0:
                exit_one(SIGKILL);
                break;
            case 1:
                exit_one(below(3) == 0 ? 1 << 8 : SIGSEGV);
                break;
            case 2:
                if (below(20) == 0) exit_one(0);
                break;
            case 3:
                if (below(50) == 0) end_keeper(static_cast<uint32_t>(below(kRanks)), SIGKILL);
                break;
            case 4:
                step_.pass(Time(below(300)), Time(25));
                break;
            default:
                deliver();
        }
    }
    void end_keeper(uint32_t rank, int status) {
        if (!kept_[rank]) return;
        kept_[rank] = false;
        alive_[rank].reset();
        step_.end_keeper(rank, status);
    }
    // What keepers and processes do about what the daemons have said.
    void follow() {
        for (uint32_t node = 0; node < kNodes; ++node) {
            auto& sent = step_.signals[node];
            for (; signals_[node] < sent.size(); ++signals_[node])
                for (uint32_t rank = node * kRanksPerNode; rank < (node + 1) * kRanksPerNode; ++rank)
                    if (sent[signals_[node]].second == SIGKILL || below(3) != 0)
                        end(rank, sent[signals_[node]].second);
            if (const auto& life = step_.lives[node]; life && life->generation > lives_[node]) {
                lives_[node] = life->generation;
                generations_ = std::max(generations_, life->generation);
                for (uint32_t rank = node * kRanksPerNode; rank < (node + 1) * kRanksPerNode; ++rank)
                    if (kept_[rank]) begin(rank, life->generation);
            }
            if (!step_.no_other_life[node] || left_[node]) continue;
            bool gone = true;
            for (uint32_t rank = node * kRanksPerNode; rank < (node + 1) * kRanksPerNode; ++rank) {
                if (!alive_[rank]) end_keeper(rank, 0);
                gone = gone && !kept_[rank];
            }
            if (gone) {
                left_[node] = true;
                step_.end(node);
            }
        }
    }
};

TEST(RestartSchedules, NoRankLivesTwiceAndEveryStepEnds) {
    constexpr uint64_t kSchedules = 3000;
    uint64_t restarted = 0;
    for (uint64_t seed = 1; seed <= kSchedules; ++seed) {
        Schedule schedule(seed);
        schedule.run();
        restarted += schedule.generations();
        ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
    }
    EXPECT_GT(restarted, kSchedules);  // else they would show little
}

}  // namespace
}  // namespace dp
