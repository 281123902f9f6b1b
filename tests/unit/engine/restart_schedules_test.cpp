// SPDX-License-Identifier: Apache-2.0
//
// Restarts under any order of messages: ranks, keepers, daemons and nodes die at random, networks are cut, links
// between nodes and broker are slow or fast as it happens, brokers are lost and others elected, and still no rank begins
// a life while one of another generation, or of another broker, is alive anywhere, and every step ends. Each schedule
// follows from its seed.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "base/text.hpp"
#include "simulation.hpp"

namespace dp {
namespace {

constexpr uint32_t kNodes = 5;
constexpr uint32_t kTasksPerNode = 2;

class Schedule {
 public:
    explicit Schedule(uint64_t seed)
        : random_(seed),
          dead_after_(below(4) == 0 ? 10 : 3),
          step_(kNodes, kTasksPerNode, Time(60000), false, FailureAction::restart, settings(), dead_after_) {
        step_.is_manual = true;
        step_.clears_late = true;
    }

    void run() {
        step_.join_all();
        while (step_.deliver_one(0)) {
        }
        if (is_examined_) examine_nodes();
        follow();
        for (int move = 0; move < 400 && !ended(); ++move) {
            this->move();
            follow();
        }
        // Nobody is hurt any more: what there is ends by itself.
        for (int turn = 0; turn < 4000 && !ended(); ++turn) {
            if (turn % 7 == 0) exit_one(0);
            deliver();
            pass(Time(20));
        }
        EXPECT_TRUE(ended()) << "the step does not end";
        check_first_steps();
    }

    uint32_t generations() const { return generations_; }
    bool has_moved() const { return has_moved_; }
    bool began_without_unfit() const { return has_unfit_ && step_.plans[0]; }
    size_t survivors() const { return survivors_; }
    size_t elections() const { return step_.elected.size(); }
    size_t survivors_of_brokers() const { return survivors_of_brokers_; }
    size_t first_steps() const { return first_steps_; }

 private:
    struct Task {
        std::optional<uint32_t> alive;  // its rank's generation
        uint32_t rank = 0;
        bool is_kept = true;  // its keeper is there
        bool rejoins = false;
        std::optional<Time> rejoins_at;  // it knows that its generation ends
        bool is_between = false;         // it has left that
    };
    std::mt19937_64 random_;
    bool is_examined_ = false;
    uint32_t dead_after_;  // s
    Simulation step_;
    std::array<std::array<Task, kTasksPerNode>, kNodes> tasks_;
    std::array<std::optional<uint32_t>, kNodes> lives_{};
    std::array<size_t, kNodes> signals_{};
    std::array<bool, kNodes> left_{};
    bool has_unfit_ = false;
    uint32_t generations_ = 0;
    size_t survivors_ = 0;
    size_t survivors_of_brokers_ = 0;          // the broker of their last generation was lost
    std::map<uint32_t, size_t> elections_of_;  // by generation: how many there had been
    size_t first_steps_ = 0;                   // lines that name one
    bool has_moved_ = false;                   // ranks have begun on another node
    std::map<uint32_t, uint32_t> node_of_;

    Settings settings() {
        Settings more;
        more.restarts = 5;
        more.spares = below(3);
        if (below(2) == 0) more.min_nodes = 1;
        is_examined_ = below(3) == 0;
        if (is_examined_) more.preflight = Preflight::quick;
        if (below(3) == 0) more.nccl_debug = NcclDebug{"on"};
        constexpr uint32_t kGraces[] = {0, 2, 2, 10};
        more.grace_seconds = kGraces[below(4)];
        return more;
    }
    uint64_t below(uint64_t n) { return random_() % n; }
    // --dp-preflight: one after another says that it is fit, or not, and meanwhile one may be lost.
    void examine_nodes() {
        for (uint32_t node = 0; node < kNodes; ++node) {
            wire::NodeExamination said;
            auto& finding = *said.add_topics()->add_findings();
            finding.set_check("temporary files");
            if (node > 0 && below(5) == 0) finding.set_level(wire::NodeExamination::FAULT);
            has_unfit_ |= finding.level() == wire::NodeExamination::FAULT;
            if (below(60) == 0) lose_node(static_cast<uint32_t>(below(kNodes)));
            step_.answer(node, wrap(&wire::FromNode::mutable_examination, std::move(said)));
            deliver();
        }
    }
    bool ended() const { return std::ranges::count(left_, false) == 0; }

    // `survives`: its process was a rank of the last generation.
    void begin(uint32_t node, uint32_t number, uint32_t rank, uint32_t generation, bool survives = false) {
        for (uint32_t other = 0; other < kNodes; ++other)
            for (const Task& task : tasks_[other])
                EXPECT_TRUE(!task.alive || task.is_between ||
                            (*task.alive == generation && task.rank != rank))
                    << "rank " << rank << " of generation " << generation << " begins on node " << node
                    << " beside rank " << task.rank << " of generation " << *task.alive << " on node "
                    << other;
        Task& task = tasks_[node][number];
        // A node may have been lost before its ranks began.
        has_moved_ |= generation > 0 && node_of_.try_emplace(rank, node).first->second != node;
        node_of_[rank] = node;
        EXPECT_TRUE(!task.alive || survives);
        task.rank = rank;
        task.alive = generation;
        task.is_between = false;
        survivors_ += survives;
        elections_of_.try_emplace(generation, elections());
        survivors_of_brokers_ += survives && elections_of_.at(generation) > elections_of_.at(generation - 1);
        if (!survives) {
            task.rejoins = false;
            step_.ranks[rank] = {};  // what its last process was told
            step_.start(rank);
            if (std::erase(step_.to_kill, std::pair(node, number)) > 0) return end(node, number, SIGKILL);
        }
        if (survives || below(4) != 0) {
            if (!survives) step_.hello(rank);
            if (!survives && (task.rejoins = below(3) != 0)) step_.enable_rejoin(rank);
            step_.progress(rank, generation + 1);  // as a training would, or three in a row end the step
        }
    }
    void end(uint32_t node, uint32_t number, int status) {
        Task& task = tasks_[node][number];
        if (!task.alive) return;
        task.alive.reset();
        task.rejoins_at.reset();
        task.is_between = false;
        step_.exit_of_task(node, number, status);
    }
    // What a process that can rejoin does about what it was told.
    void rejoin(uint32_t node, uint32_t number) {
        Task& task = tasks_[node][number];
        Simulation::RankView* rank = step_.view_of(step_.connection_of(node, number));
        if (!task.alive || !task.rejoins || !rank) return;
        if (!rank->peer_lost.empty()) {
            rank->peer_lost.clear();
            // Some die of it, some say goodbye, and some are late.
            if (below(12) == 0) return end(node, number, SIGSEGV);
            task.rejoins_at = step_.now + Time(below(8) == 0 ? 500 + below(8000) : below(200));
        }
        if (task.rejoins_at && step_.now >= *task.rejoins_at && !task.is_between) {
            task.rejoins_at.reset();
            task.is_between = true;
            step_.rejoin(task.rank, *task.alive);
            if (below(20) == 0) step_.vanish(task.rank);
        }
        if (rank->next_world) {
            const wire::NextWorld next = *std::exchange(rank->next_world, std::nullopt);
            EXPECT_EQ(next.local_rank(), number);
            begin(node, number, next.plan().place().ranks(static_cast<int>(number)), next.plan().generation(),
                  true);
        }
    }
    void exit_one(int status) {
        std::vector<std::pair<uint32_t, uint32_t>> living;
        for (uint32_t node = 0; node < kNodes; ++node)
            for (uint32_t number = 0; number < kTasksPerNode; ++number)
                if (tasks_[node][number].alive) living.emplace_back(node, number);
        if (living.empty()) return;
        const auto [node, number] = living[below(living.size())];
        end(node, number, status);
    }
    void deliver() {
        while (below(8) != 0 && step_.deliver_one(random_())) {
        }
    }
    void pass(Time time) {
        // Signals are followed at once: a rank lives on for no more than a tick.
        for (Time passed{}; passed < time; passed += Time(50)) {
            step_.pass(Time(50), Time(50));
            follow();
        }
    }
    void move() {
        switch (below(16)) {
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
                if (below(50) == 0)
                    end_keeper(static_cast<uint32_t>(below(kNodes)),
                               static_cast<uint32_t>(below(kTasksPerNode)), SIGKILL);
                break;
            case 4:
                pass(Time(below(300)));
                break;
            case 5:
                if (below(30) == 0)
                    lose_node(below(3) == 0 ? broker() : static_cast<uint32_t>(below(kNodes)));
                break;
            case 6:
                if (below(40) == 0) cut_or_heal();
                break;
            default:
                deliver();
        }
    }
    uint32_t broker() const {
        for (uint32_t node = kNodes; node-- > 1;)
            if (step_.nodes[node]->config().broker && !left_[node]) return node;
        return 0;
    }
    void lose_node(uint32_t node) {
        if (left_[node] || step_.cut_off.contains(node)) return;
        switch (below(3)) {
            case 0:  // its power is gone, and with it everything
                crash(node);
                break;
            case 1:  // its daemon is killed: keepers kill their ranks
                crash(node);
                step_.kill_daemon(node);
                break;
            default:  // its network is cut
                step_.cut_off.insert(node);
        }
        pass(Time(below(2) * below(1500 * dead_after_)));
    }
    // The network falls into two parts, or is whole again.
    // A generation's ranks report one step more than those of the last one, and never one again. (A broker that is cut
    // off and the elected one may both begin the same number.)
    void check_first_steps() {
        for (const std::string& line : step_.log) {
            unsigned generation = 0;
            unsigned step = 0;
            unsigned repeated = 0;
            if (std::sscanf(line.c_str(),
                            "generation %u took its first step, %u, %*f s after the failure; %u", &generation,
                            &step, &repeated) != 3)
                continue;
            ++first_steps_;
            EXPECT_EQ(step, generation + 1) << line;
            EXPECT_EQ(repeated, 0u) << line;
        }
    }
    void cut_or_heal() {
        if (step_.other_part.empty()) {
            for (uint32_t node = 0; node < kNodes; ++node)
                if (below(2) == 0) step_.other_part.insert(node);
        } else {
            step_.other_part.clear();
        }
        pass(Time(below(2) * below(1500 * dead_after_)));
    }
    void crash(uint32_t node) {
        step_.frozen.insert(node);
        tasks_[node].fill({std::nullopt, 0, false, false, {}, false});
        left_[node] = true;
    }
    void end_keeper(uint32_t node, uint32_t number, int status) {
        Task& task = tasks_[node][number];
        if (!task.is_kept) return;
        task.is_kept = false;
        task.alive.reset();
        step_.end_task(node, number, status);
    }
    // What keepers and processes do about what the daemons have said.
    void follow() {
        if (const size_t asked = step_.nccl_to_read.size(); asked > 0)
            step_.warn(std::vector<std::string>(asked, below(2) == 0 ? "" : "why"));
        for (uint32_t node = 0; node < kNodes; ++node) {
            if (left_[node]) continue;
            auto& sent = step_.signals[node];
            for (; signals_[node] < sent.size(); ++signals_[node])
                for (uint32_t number = 0; number < kTasksPerNode; ++number)
                    if (!step_.spared[node][signals_[node]].contains(number) &&
                        (sent[signals_[node]].second == SIGKILL || below(3) != 0))
                        end(node, number, sent[signals_[node]].second);
            const auto& life = step_.lives[node] ? step_.lives[node] : step_.plans[node];
            if (life && life->place && (!lives_[node] || life->generation > *lives_[node])) {
                lives_[node] = life->generation;
                generations_ = std::max(generations_, life->generation);
                for (uint32_t number = 0; number < life->place->ranks.size(); ++number)
                    if (tasks_[node][number].is_kept && !step_.survivors[node].contains(number))
                        begin(node, number, life->place->ranks[number], life->generation);
            }
            for (uint32_t number = 0; number < kTasksPerNode; ++number) rejoin(node, number);
            for (const auto& [where, number] : std::vector(step_.to_kill))
                if (where == node) end(node, number, SIGKILL);
            std::erase_if(step_.to_kill, [&](const auto& one) { return one.first == node; });
            if (step_.keepers_killed[node])
                for (uint32_t number = 0; number < kTasksPerNode; ++number) end_keeper(node, number, SIGKILL);
            bool gone = true;
            // Without a plan the tasks end by themselves.
            if (step_.no_plans[node] && !step_.plans[node])
                for (uint32_t number = 0; number < kTasksPerNode; ++number) end_keeper(node, number, 1 << 8);
            for (uint32_t number = 0; number < kTasksPerNode; ++number) {
                if (step_.no_other_life[node] && !tasks_[node][number].alive) end_keeper(node, number, 0);
                gone = gone && !tasks_[node][number].is_kept;
            }
            if (gone) {
                left_[node] = true;
                step_.end(node);
            }
        }
    }
};

// In parts, so that each keeps far within a test's time also where the sanitizers slow it twentyfold.
constexpr uint64_t kParts = 6;
class RestartSchedules : public testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Part, RestartSchedules, testing::Range<uint64_t>(0, kParts));

TEST_P(RestartSchedules, NoRankLivesTwiceAndEveryStepEnds) {
    // DP_SCHEDULES=1000000-2000000 runs others.
    const char* wanted = std::getenv("DP_SCHEDULES");
    const auto [begin, end] = parse_range<uint64_t>(wanted ? wanted : "1-3000").value_or(std::pair(1, 0));
    ASSERT_GE(end - begin + 1, kParts) << "DP_SCHEDULES is a range of at least " << kParts;
    const uint64_t all = end - begin + 1;
    const uint64_t first = begin + all * GetParam() / kParts;
    const uint64_t last = begin + all * (GetParam() + 1) / kParts - 1;
    const uint64_t schedules = last - first + 1;
    uint64_t restarted = 0;
    uint64_t moved = 0;
    uint64_t without_unfit = 0;
    uint64_t elected = 0;
    uint64_t survived = 0;
    uint64_t survived_brokers = 0;
    uint64_t first_steps = 0;
    for (uint64_t seed = first; seed <= last; ++seed) {
        Schedule schedule(seed);
        schedule.run();
        restarted += schedule.generations();
        moved += schedule.has_moved();
        without_unfit += schedule.began_without_unfit();
        elected += schedule.elections();
        survived += schedule.survivors();
        survived_brokers += schedule.survivors_of_brokers();
        first_steps += schedule.first_steps();
        ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
    }
    // Else they would show little.
    EXPECT_GT(restarted, schedules);
    EXPECT_GT(moved, schedules / 20);
    EXPECT_GT(without_unfit, schedules / 20);
    EXPECT_GT(elected, schedules / 20);
    EXPECT_GT(survived, schedules / 4);
    EXPECT_GT(survived_brokers, 0u);
    EXPECT_GT(first_steps, schedules / 4);
    std::printf(
        "%lu schedules: %lu generations, %lu with ranks that moved, %lu elections, %lu survivors, %lu of "
        "brokers\n",
        static_cast<unsigned long>(schedules), static_cast<unsigned long>(restarted),
        static_cast<unsigned long>(moved), static_cast<unsigned long>(elected),
        static_cast<unsigned long>(survived), static_cast<unsigned long>(survived_brokers));
}

}  // namespace
}  // namespace dp
