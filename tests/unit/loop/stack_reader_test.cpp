// SPDX-License-Identifier: Apache-2.0
//
// The daemon reads its ranks' stacks through another program: it is told once for each question, whatever that program does, and
// no process is left.
#include "loop/stack_reader.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "base/text.hpp"
#include "common/read_file.hpp"
#include "engine/stack_questions.hpp"
#include "server_test.hpp"

namespace dp {
namespace {

class StackReaderTest : public ServerTest {
 protected:
    std::vector<wire::NodeStacks> told;

    // A program that does what the script says; its arguments are those that follow, --threads and pids.
    std::vector<std::string> script(const std::string& text) { return {"/bin/sh", "-c", text, "reader"}; }
    StackReader reader(std::vector<std::string> command) {
        return StackReader(base.get(), std::move(command),
                           [this](wire::NodeStacks stacks) { told.push_back(std::move(stacks)); });
    }
    static wire::ReadStacks question(uint64_t number, bool threads = false) {
        wire::ReadStacks asked;
        asked.set_question(number);
        asked.mutable_wanted()->set_threads(threads);
        return asked;
    }
    // The bytes of a NodeStacks with so many empty ranks: field 4, of no length.
    static std::string printf_of_ranks(int count) {
        std::string out = "printf '";
        for (int i = 0; i < count; ++i) out += "\\042\\000";
        return out + "'";
    }
    // Other tests of this process may have left some.
    static std::set<std::string> children() {
        const std::string text = read_file("/proc/self/task/" + std::to_string(getpid()) + "/children");
        std::set<std::string> out;
        for (const std::string_view child : split(text, ' ')) out.emplace(child);
        return out;
    }
    const std::set<std::string> before = children();
    bool has_left_none() {
        return run([&] {
            const auto now = children();
            return std::includes(before.begin(), before.end(), now.begin(), now.end());
        });
    }
    // What was killed and not waited for, because that might take long, init takes when the daemon ends.
    void reap() {
        run([] { return waitpid(-1, nullptr, WNOHANG) < 0; }, std::chrono::milliseconds(200));
    }
};

TEST_F(StackReaderTest, TellsWhichRankEachIs) {
    auto one = reader(script(printf_of_ranks(2)));
    one.read(question(7), {{4, 100}, {5, 0}, {6, 101}});
    ASSERT_TRUE(run([&] { return !told.empty(); }));
    ASSERT_EQ(told.size(), 1u);
    EXPECT_EQ(told[0].question(), 7u);
    EXPECT_EQ(told[0].problem(), "");
    ASSERT_EQ(told[0].ranks_size(), 3);
    EXPECT_EQ(told[0].ranks(0).rank(), 4u);
    EXPECT_EQ(told[0].ranks(1).rank(), 5u);
    EXPECT_EQ(told[0].ranks(1).unknown(), "it has no process");
    EXPECT_EQ(told[0].ranks(2).rank(), 6u);
    EXPECT_TRUE(has_left_none());
}

TEST_F(StackReaderTest, GivesTheProgramThePidsOfLivingRanks) {
    auto one = reader(script("[ \"$*\" = '--threads 100 101' ] && " + printf_of_ranks(2)));
    one.read(question(1, true), {{0, 100}, {1, 0}, {2, 101}});
    ASSERT_TRUE(run([&] { return !told.empty(); }));
    EXPECT_EQ(told[0].problem(), "");
}

TEST_F(StackReaderTest, NeedsNoProgramWhereNoRankLives) {
    auto one = reader({"/nonexistent"});
    one.read(question(2), {{3, 0}});
    ASSERT_EQ(told.size(), 1u);
    EXPECT_EQ(told[0].problem(), "");
    EXPECT_EQ(told[0].ranks(0).unknown(), "it has no process");
}

TEST_F(StackReaderTest, AProgramThatFailsIsAProblemOfTheNode) {
    const struct {
        std::string script;
        std::string problem;
    } cases[] = {
        {"exit 1", "the program that reads it has failed"},
        {"echo nonsense", "the program that reads it has failed"},
        {printf_of_ranks(3), "the program that reads it has failed"},  // one too many
        {"head -c 300000 /dev/zero",
         "its stacks are too large for one answer; ask for some of its ranks with --rank"},
        {"exec sleep 60", "reading them takes too long"},
    };
    for (const auto& c : cases) {
        told.clear();
        {
            auto one = reader(script(c.script));
            one.read(question(3), {{0, 100}, {1, 101}});
            ASSERT_TRUE(run([&] { return !told.empty(); })) << c.script;
            EXPECT_EQ(told[0].problem(), c.problem) << c.script;
            EXPECT_EQ(told[0].ranks_size(), 0) << c.script;
        }
        reap();
        EXPECT_TRUE(has_left_none()) << c.script;
    }
    told.clear();
    auto one = reader({"/nonexistent"});
    one.read(question(4), {{0, 100}});
    ASSERT_EQ(told.size(), 1u);
    EXPECT_EQ(told[0].problem(),
              "/nonexistent cannot be started; in a container, slurm-dp must be installed there, too");
}

TEST_F(StackReaderTest, WhatWasReadBeforeARankThatHangsIsTold) {
    for (const auto& [end, why] : {std::pair("exec sleep 60", "reading them takes too long"),
                                   {"exit 1", "the program that reads it has failed"}}) {
        told.clear();
        auto one = reader(script(printf_of_ranks(1) + "; " + end));
        one.read(question(5), {{6, 100}, {7, 101}});
        ASSERT_TRUE(run([&] { return !told.empty(); }));
        EXPECT_EQ(told[0].problem(), "");
        ASSERT_EQ(told[0].ranks_size(), 2);
        EXPECT_EQ(told[0].ranks(0).unknown(), "");
        EXPECT_EQ(told[0].ranks(1).rank(), 7u);
        EXPECT_EQ(told[0].ranks(1).unknown(), why);
    }
    reap();
}

TEST_F(StackReaderTest, SeveralQuestionsAtOnce) {
    auto one = reader(script("sleep 0.0$1; " + printf_of_ranks(1)));
    one.read(question(1), {{0, 9}});
    one.read(question(2), {{0, 1}});
    ASSERT_TRUE(run([&] { return told.size() == 2; }));
    EXPECT_EQ(told[0].question(), 2u);
    EXPECT_EQ(told[1].question(), 1u);
    EXPECT_TRUE(has_left_none());
}

TEST_F(StackReaderTest, EndsItsProgramWhenItGoes) {
    {
        auto one = reader(script("exec sleep 60"));
        one.read(question(1), {{0, 100}});
    }
    reap();
    EXPECT_TRUE(has_left_none());
    EXPECT_TRUE(told.empty());
}

}  // namespace
}  // namespace dp
