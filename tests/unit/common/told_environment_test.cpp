// SPDX-License-Identifier: Apache-2.0
//
// What a rank's process tells of its environment: what slurm-dp has set, and never a secret.
#include "common/told_environment.hpp"

#include <gtest/gtest.h>

#include "common/control.hpp"
#include "common/task_environment.hpp"

namespace dp {
namespace {

TEST(ToldEnvironment, IsWhatIsSet) {
    const std::vector<EnvironmentChange> changes = {{"RANK", "3"}, {"OLD", std::nullopt}, {"FILE", "a b=c"}};
    EXPECT_EQ(told_environment(changes), std::string("\0RANK=3\0FILE=a b=c", 18));
    EXPECT_EQ(told_environment({}), "");
}

TEST(ToldEnvironment, HasNoSecretAndNothingThatTheUserHasSet) {
    TaskFacts facts;
    facts.world_size = facts.first_world_size = facts.local_world_size = facts.nodes = 1;
    facts.settings = with_defaults({});
    facts.sizes = facts.settings.sizes(1);
    const GetVariable get = [](const char* name) -> std::optional<std::string> {
        const std::string_view wanted = name;
        if (wanted == "OMP_NUM_THREADS" || wanted == "TOKEN") return "of-the-user";
        for (const char* secret : kLauncherVariables)
            if (wanted == secret) return "0123456789abcdef-secret";
        return std::nullopt;
    };
    facts.cpus = 4;  // else OMP_NUM_THREADS would be missing anyway
    auto environment = task_environment(facts, {"10.0.0.1", 29500, 29501, "10.0.0.1", "", 0}, get);
    const std::string told = told_environment(environment.changes);
    EXPECT_NE(told.find(std::string("\0MASTER_PORT=29500", 18)), std::string::npos);
    for (const char* none : {"secret", "of-the-user", kInjected})
        EXPECT_EQ(told.find(none), std::string::npos) << none;
    // Not even if somebody set it.
    for (const char* name : kLauncherVariables)
        environment.changes.push_back({name, "0123456789abcdef-secret"});
    EXPECT_EQ(told_environment(environment.changes), told);
}

TEST(ToldEnvironment, FitsIntoAPacket) {
    std::vector<EnvironmentChange> changes;
    for (int i = 0; i < 100; ++i) changes.push_back({"NAME" + std::to_string(i), std::string(200, 'x')});
    changes.push_back({"RANK", "3"});
    const ControlEvent event{ControlEvent::Kind::environment, UINT32_MAX, INT32_MAX,
                             told_environment(changes)};
    EXPECT_LE(write_control(event).size(), kMaxControl);
    EXPECT_NE(event.text.find("RANK=3"), std::string::npos) << "what is small still fits";
    EXPECT_EQ(*read_control(write_control(event)), event);
}

}  // namespace
}  // namespace dp
