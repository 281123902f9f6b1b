// SPDX-License-Identifier: Apache-2.0
#include "common/options.hpp"

#include <gtest/gtest.h>

#include <map>

#include "site.hpp"

namespace dp {
namespace {

TEST(Options, TakeWhatIsDocumented) {
    Settings s;
    EXPECT_TRUE(set_option(s, "dp-world", "auto"));
    EXPECT_EQ(s.world, 0u);
    EXPECT_TRUE(set_option(s, "dp-world", "8"));
    EXPECT_EQ(s.world, 8u);
    EXPECT_TRUE(set_option(s, "dp-timeout", "20"));
    EXPECT_EQ(s.timeout_seconds, 20u);
    EXPECT_TRUE(set_option(s, "dp-verbose", ""));
    EXPECT_TRUE(set_option(s, "dp-dry-run", "1"));
    EXPECT_EQ(s.verbose, true);
    EXPECT_EQ(s.dry_run, true);
}

TEST(Options, RefuseTheRestWithTheValueAndARemedy) {
    struct {
        const char* option;
        const char* value;
    } const cases[] = {
        {"dp-world", "0"},    {"dp-world", "-1"},   {"dp-world", "abc"},         {"dp-world", ""},
        {"dp-world", "8x"},   {"dp-world", " 8"},   {"dp-world", "99999999999"}, {"dp-timeout", "0"},
        {"dp-timeout", "1h"}, {"dp-timeout", "-5"}, {"dp-timeout", "1e3"},       {"dp-verbose", "x"}};
    for (const auto& c : cases) {
        Settings s;
        auto set = set_option(s, c.option, c.value);
        ASSERT_FALSE(set) << c.option << "=" << c.value;
        EXPECT_NE(set.error().message.find(std::string("--") + c.option + "=" + c.value), std::string::npos);
        EXPECT_NE(set.error().message.find("give"), std::string::npos) << set.error().message;
        EXPECT_FALSE(s.any());
    }
}

TEST(Options, AHostileValueStaysOnOneShortLine) {
    Settings s;
    auto set = set_option(s, "dp-world", std::string(5000, 'a') + "\n\x1b[31m");
    ASSERT_FALSE(set);
    EXPECT_LT(set.error().message.size(), 300u);
    EXPECT_EQ(set.error().message.find('\n'), std::string::npos);
}

TEST(Options, SurviveTheEnvironment) {
    Settings s;
    s.world = 0;
    s.timeout_seconds = 7;
    s.verbose = true;
    std::map<std::string, std::string> variables;
    for (const auto& [name, value] : settings_to_environment(s)) variables[name] = value;
    auto back = settings_from_environment([&](const char* name) -> std::optional<std::string> {
        auto found = variables.find(name);
        return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
    });
    ASSERT_TRUE(back);
    EXPECT_EQ(*back, s);
}

TEST(Options, AMalformedVariableIsNamed) {
    auto read = settings_from_environment([](const char* name) -> std::optional<std::string> {
        return std::string(name) == "SLURM_DP_WORLD" ? std::optional<std::string>("many") : std::nullopt;
    });
    ASSERT_FALSE(read);
    EXPECT_NE(read.error().message.find("SLURM_DP_WORLD=many"), std::string::npos);
}

TEST(Options, TheStrongerSourceWins) {
    Settings line;
    line.world = 4;
    Settings environment;
    environment.world = 8;
    environment.timeout_seconds = 9;
    const Settings merged = merge(line, environment);
    EXPECT_EQ(merged.world, 4u);
    EXPECT_EQ(merged.timeout_seconds, 9u);
    EXPECT_EQ(merged.verbose, std::nullopt);
}

TEST(Options, AWorldOfNInsistsOnlyWhereItWasGiven) {
    EXPECT_EQ(decide_world(0, 8, true), WorldDecision::apply);
    EXPECT_EQ(decide_world(8, 8, true), WorldDecision::apply);
    EXPECT_EQ(decide_world(9, 8, true), WorldDecision::refuse);
    EXPECT_EQ(decide_world(9, 8, false), WorldDecision::leave_alone);
    EXPECT_EQ(world_refusal(9, 8),
              "--dp-world=9, but this step has 8 tasks; give -n 9 (or --dp-world=auto for 8)");
}

TEST(Site, ReadsItsSettings) {
    char daemon[] = "daemon=/opt/dp";
    char timeout[] = "timeout=600";
    char* words[] = {daemon, timeout};
    const auto site = plugin::read_site(words, "/default");
    EXPECT_EQ(site.daemon, "/opt/dp");
    EXPECT_EQ(site.defaults.timeout_seconds, 600u);
    EXPECT_TRUE(site.mistakes.empty());
    EXPECT_EQ(plugin::read_site({}, "/default").daemon, "/default");
}

TEST(Site, NamesAMistakeAndKeepsTheRest) {
    for (std::string word : {"colour=green", "daemon=relative/path", "timeout=long", "daemon"}) {
        char good[] = "daemon=/opt/dp";
        char* words[] = {word.data(), good};
        const auto site = plugin::read_site(words, "/default");
        ASSERT_EQ(site.mistakes.size(), 1u) << word;
        EXPECT_NE(site.mistakes[0].find("plugstack.conf: "), std::string::npos);
        EXPECT_EQ(site.daemon, "/opt/dp");  // the other words hold
    }
}

}  // namespace
}  // namespace dp
