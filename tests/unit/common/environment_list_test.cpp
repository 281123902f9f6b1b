// SPDX-License-Identifier: Apache-2.0
#include "common/environment_list.hpp"

#include <gtest/gtest.h>

#include "raw_environment.hpp"

namespace dp {
namespace {

TEST(EnvironmentList, LooksUpWhatIsThere) {
    RawEnvironment environment(
        {"B=2", "A=1", "AB=", "C=x=y", "A=again", "no variable", "SLURM_DP_SLOT_0=   "});
    const EnvironmentList list(environment.get());
    EXPECT_EQ(list("A"), "1") << "the first one counts";
    EXPECT_EQ(list("AB"), "");
    EXPECT_EQ(list("B"), "2");
    EXPECT_EQ(list("C"), "x=y");
    for (const char* name : {"", "a", "BC", "no variable", "SLURM_DP_SLOT_0"})
        EXPECT_FALSE(list(name)) << name;
    EXPECT_EQ(slots_of(environment.get()), std::vector<std::string>{"SLURM_DP_SLOT_0"});
    EXPECT_FALSE(EnvironmentList(nullptr)("A"));
}

TEST(EnvironmentList, WritesWhereThereIsRoomAndNowhereElse) {
    struct {
        EnvironmentChange change;
        bool written;
        std::vector<std::string> after;
    } const cases[] = {
        {{"RANK", "12"}, true, {"RANKS=xxxx", "RANK=12", "PATH=/bin", "EMPTY="}},
        {{"RANK", "1234"}, true, {"RANKS=xxxx", "RANK=1234", "PATH=/bin", "EMPTY="}},
        {{"RANK", ""}, true, {"RANKS=xxxx", "RANK=", "PATH=/bin", "EMPTY="}},
        {{"RANK", "12345"}, false, {}},
        {{"RANK", std::nullopt}, false, {}},
        {{"RAN", "1"}, false, {}},
        {{"EMPTY", ""}, true, {"RANKS=xxxx", "RANK=    ", "PATH=/bin", "EMPTY="}},
        {{"EMPTY", "1"}, false, {}},
        {{"WORLD_SIZE", "1"}, false, {}},
    };
    const std::vector<std::string> before = {"RANKS=xxxx", "RANK=    ", "PATH=/bin", "EMPTY="};
    for (const auto& c : cases) {
        RawEnvironment environment(before);
        EXPECT_EQ(environment.write(c.change), c.written) << c.change.name;
        EXPECT_EQ(environment.entries(), c.written ? c.after : before) << c.change.name;
    }
}

TEST(EnvironmentList, OverwritesOneWithoutAnIndex) {
    struct {
        EnvironmentChange change;
        bool written;
        std::vector<std::string> after;
    } const cases[] = {
        {{"RANK", "12"}, true, {"RANKS=xxxx", "RANK=12", "RANK=7"}},
        {{"RANK", "12345"}, false, {}},
        {{"RANK", std::nullopt}, false, {}},
        {{"RAN", "1"}, false, {}},
    };
    const std::vector<std::string> before = {"RANKS=xxxx", "RANK=    ", "RANK=7"};
    for (const auto& c : cases) {
        RawEnvironment environment(before);
        EXPECT_EQ(overwrite(environment.get(), c.change), c.written) << c.change.name;
        EXPECT_EQ(environment.entries(), c.written ? c.after : before) << c.change.name;
    }
    EXPECT_FALSE(overwrite(nullptr, {"RANK", "1"}));
}

TEST(EnvironmentList, TakesASlotForWhatIsNotThere) {
    const std::string slot = std::string(kSlot) + "0=" + std::string(4, ' ');
    const std::string long_slot = std::string(kSlot) + "1=" + std::string(8, ' ');
    const std::vector<std::string> before = {"RANK=1", slot, long_slot};
    const size_t room = slot.size() - 2;  // of a value, under a name of one letter
    struct {
        EnvironmentChange change;
        bool written;
        std::vector<std::string> after;
    } const cases[] = {
        {{"A", std::string(room, 'x')}, true, {"RANK=1", "A=" + std::string(room, 'x'), long_slot}},
        {{"A", std::string(room + 1, 'x')}, true, {"RANK=1", slot, "A=" + std::string(room + 1, 'x')}},
        {{"A", std::string(room + 5, 'x')}, false, {}},
        {{"A", std::nullopt}, false, {}},
        // Never a second one of a name.
        {{"RANK", "12"}, false, {}},
    };
    for (const auto& c : cases) {
        RawEnvironment environment(before);
        EXPECT_EQ(environment.write(c.change), c.written);
        EXPECT_EQ(environment.entries(), c.written ? c.after : before);
    }
}

TEST(EnvironmentList, GivesASlotToOneVariableOnly) {
    const std::string slot = std::string(kSlot) + "0=" + std::string(8, ' ');
    RawEnvironment environment({slot, "B=2"});
    EnvironmentList list(environment.get());
    EXPECT_TRUE(list.write({"A", "1"}));
    EXPECT_FALSE(list.write({"C", "1"}));
    EXPECT_TRUE(slots_of(environment.get()).empty());
    EXPECT_EQ(environment.entries(), (std::vector<std::string>{"A=1", "B=2"}));
}

}  // namespace
}  // namespace dp
