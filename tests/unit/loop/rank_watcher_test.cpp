// SPDX-License-Identifier: Apache-2.0
//
// The daemon watches its ranks through another program: it hears of each news once, and no process is left.
#include "loop/rank_watcher.hpp"

#include <sys/wait.h>

#include "common/read_file.hpp"
#include "server_test.hpp"

namespace dp {
namespace {

class RankWatcherTest : public ServerTest {
 protected:
    std::vector<std::pair<uint32_t, wire::Watched>> told;

    // A program that does what the script says; its arguments are pids.
    RankWatcher watcher(const std::string& text) {
        return RankWatcher(
            base.get(), {"/bin/sh", "-c", text, "watcher"},
            [this](uint32_t local_rank, const wire::Watched& news) { told.emplace_back(local_rank, news); });
    }
    static std::string children() {
        return read_file("/proc/self/task/" + std::to_string(getpid()) + "/children");
    }
};

// A frame that says that process 101 moves: its length, then field 1.
const std::string kMoves = "printf '\\000\\000\\000\\002\\010\\145'";

TEST_F(RankWatcherTest, TellsWhichRankEachIs) {
    const std::string before = children();
    {
        auto one = watcher(kMoves + "; " + kMoves + "; sleep 1000");
        ASSERT_TRUE(one.watch({100, 0, 101}));
        ASSERT_TRUE(run([&] { return told.size() == 2; }));
        EXPECT_EQ(told[0].first, 2u);
        EXPECT_FALSE(told[0].second.has_still());
    }
    EXPECT_EQ(children(), before) << "it ends with the daemon";
}

TEST_F(RankWatcherTest, OneThatBeginsLaterIsWatchedToo) {
    auto one = watcher("[ $# -ne 2 ] || " + kMoves + "; sleep 1000");
    ASSERT_TRUE(one.watch({100, 0}));
    ASSERT_TRUE(one.watch({100, 0}));
    ASSERT_TRUE(one.watch({100, 101}));
    ASSERT_TRUE(run([&] { return !told.empty(); }));
    EXPECT_EQ(told[0].first, 1u);
    ASSERT_TRUE(one.watch({100, 0}));  // that it has ended, the program sees itself
    EXPECT_FALSE(run([&] { return told.size() > 1; }, std::chrono::milliseconds(100)));
}

// A frame that says that process 101 is still.
const std::string kStill = "printf '\\000\\000\\000\\004\\010\\145\\022\\000'";

TEST_F(RankWatcherTest, WhoWasStillMovesOnceNobodyWatchesIt) {
    auto one = watcher("[ $# -ne 1 ] || " + kStill + "; sleep 1000");
    ASSERT_TRUE(one.watch({101, 0}));
    ASSERT_TRUE(run([&] { return !told.empty(); }));
    EXPECT_TRUE(told[0].second.has_still());
    ASSERT_TRUE(one.watch({101, 102}));  // by another program from now on
    ASSERT_EQ(told.size(), 2u);
    EXPECT_EQ(told[1].first, 0u);
    EXPECT_FALSE(told[1].second.has_still());
}

TEST_F(RankWatcherTest, NoZombieIsLeftOnceAllTasksHaveEnded) {
    const std::string before = children();
    auto one = watcher(kStill);
    ASSERT_TRUE(one.watch({101}));
    EXPECT_TRUE(run([&] { return told.size() == 2 && children() == before; }));
}

TEST_F(RankWatcherTest, NonsenseEndsIt) {
    const std::string before = children();
    auto one = watcher("printf 'nonsense'; sleep 1000");
    ASSERT_TRUE(one.watch({100}));
    EXPECT_TRUE(run([&] { return children() == before; }));
    EXPECT_TRUE(told.empty());
}

TEST_F(RankWatcherTest, AProgramThatIsNotThereIsToldOnce) {
    RankWatcher one(base.get(), {"/nowhere/dpctl", "watch-ranks"}, [](uint32_t, const wire::Watched&) {});
    EXPECT_FALSE(one.watch({100}));
    EXPECT_TRUE(one.watch({100, 101}));
}

}  // namespace
}  // namespace dp
