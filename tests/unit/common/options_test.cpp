// SPDX-License-Identifier: Apache-2.0
#include "common/options.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "common/address.hpp"
#include "site.hpp"
#include "slurm_versions.hpp"

namespace dp {
namespace {

TEST(Options, TakeWhatIsDocumented) {
    struct {
        const char* option;
        const char* value;
        const char* kept;
    } const cases[] = {{"dp-world", "auto", "auto"},
                       {"dp-world", "8", "8"},
                       {"dp-port", "auto", "auto"},
                       {"dp-port", "29500", "29500"},
                       {"dp-interface", "ib0", "ib0"},
                       {"dp-interface", "bond0.100", "bond0.100"},
                       {"dp-interface", "10.1.0.0/16", "10.1.0.0/16"},
                       {"dp-interface", "fd00:1::/64", "fd00:1::/64"},
                       {"dp-store", "hold", "hold"},
                       {"dp-store", "torch", "torch"},
                       {"dp-timeout", "20", "20"},
                       {"dp-on-failure", "abort", "abort"},
                       {"dp-on-failure", "report", "report"},
                       {"dp-on-failure", "restart", "restart"},
                       {"dp-hang-timeout", "0", "0"},
                       {"dp-hang-timeout", "600", "600"},
                       {"dp-slow", "0", "0"},
                       {"dp-slow", "35", "35"},
                       {"dp-preflight", "quick", "quick"},
                       {"dp-preflight", "full", "full"},
                       {"dp-preflight", "off", "off"},
                       {"dp-nccl-debug", "on", "on"},
                       {"dp-nccl-debug", "off", "off"},
                       {"dp-nccl-debug", "/scratch/%j/%t", "/scratch/%j/%t"},
                       {"dp-record", "off", "off"},
                       {"dp-record", "/scratch/%j/%s/%N", "/scratch/%j/%s/%N"},
                       {"dp-record-interval", "0.1", "0.1"},
                       {"dp-record-interval", "2.50", "2.5"},
                       {"dp-record-interval", "0.125", "0.125"},
                       {"dp-record-interval", "60", "60"},
                       {"dp-restarts", "3", "3"},
                       {"dp-restarts", "0", "0"},
                       {"dp-grace", "0", "0"},
                       {"dp-grace", "120", "120"},
                       {"dp-final-exit", "2", "2"},
                       {"dp-final-exit", "64-66,3,65", "3,64,65,66"},
                       {"dp-spares", "2", "2"},
                       {"dp-spares", "0", "0"},
                       {"dp-min-nodes", "1", "1"},
                       {"dp-tensor", "2", "2"},
                       {"dp-pipeline", "4", "4"},
                       {"dp-tiles", "4", "4"},
                       {"dp-tiles", "auto", "auto"},
                       {"dp-visible", "node", "node"},
                       {"dp-visible", "own", "own"},
                       {"dp-verbose", "", "1"},
                       {"dp-dry-run", "1", "1"}};
    for (const auto& c : cases) {
        Settings s;
        ASSERT_TRUE(set_option(s, c.option, c.value)) << c.option << "=" << c.value;
        const auto kept = settings_to_environment(s);
        ASSERT_EQ(kept.size(), 1u) << c.option;
        EXPECT_EQ(kept[0].second, c.kept) << c.option;
    }
}

TEST(Options, RefuseTheRestWithTheValueAndARemedy) {
    const std::map<std::string, std::vector<std::string>> cases = {
        {"dp-world", {"", "0", "-1", "abc", "8x", " 8", "1e3", "1048577", "99999999999"}},
        {"dp-port", {"", "0", "-1", "abc", "80", "1023", "65536", "99999999999", "29500,29501"}},
        {"dp-interface",
         {"", "-1/", "10.0.0.0/33", "10.0.0/8", "fd00::/129", "/8", "10.0.0.0/", "10.0.0.0/-1", "a b",
          "eth0;ls", "sixteen_letters_", "10.1.0.0/16/8"}},
        {"dp-store", {"", "0", "-1", "Torch", "redis", "99999999999"}},
        {"dp-timeout", {"", "0", "-5", "1h", "1e3", "86401", "99999999999"}},
        {"dp-on-failure", {"", "0", "-1", "ignore", "99999999999"}},
        {"dp-hang-timeout", {"", "-1", "10m", "1.5", "86401", "99999999999"}},
        {"dp-slow", {"", "-1", "20%", "1.5", "10001", "off"}},
        {"dp-preflight", {"", "0", "yes", "Quick", "99999999999"}},
        {"dp-nccl-debug", {"", "a b"}},
        {"dp-record", {"", "a b"}},
        {"dp-record-interval", {"", "0", "0.09", "60.001", "1s", "1.", ".5", "-1", "1.2345", "1e1", "nan"}},
        {"dp-restarts", {"", "-1", "many", "1.5", "100001", "99999999999"}},
        {"dp-grace", {"", "-1", "x", "1s", "99999999999"}},
        {"dp-final-exit", {"", "-1", "256", "2;3", "x", "3-2", "0-256", "99999999999"}},
        {"dp-spares", {"", "-1", "auto", "1.5", "65537", "99999999999"}},
        {"dp-min-nodes", {"", "0", "-1", "all", "65537", "99999999999"}},
        {"dp-tensor", {"", "0", "-2", "two", "1.5", "99999999999"}},
        {"dp-pipeline", {"", "0", "-2", "two", "1.5", "99999999999"}},
        {"dp-tiles", {"", "0", "-1", "all", "4097", "1.5", "99999999999"}},
        {"dp-visible", {"", "0", "all", "Own", "99999999999"}},
        {"dp-verbose", {"x", "2", "-1", "99999999999"}},
        {"dp-dry-run", {"x", "2", "-1", "99999999999"}}};
    for (const auto& spec : option_specs())
        EXPECT_TRUE(cases.contains(spec.name)) << spec.name << " is not tested";
    for (const auto& [option, values] : cases)
        for (const auto& value : values) {
            Settings s;
            auto set = set_option(s, option, value);
            ASSERT_FALSE(set) << option << "=" << value;
            EXPECT_NE(set.error().message.find("--" + option + "=" + value + ": "), std::string::npos);
            EXPECT_NE(set.error().message.find("give "), std::string::npos) << set.error().message;
            EXPECT_FALSE(s.any());
        }
}

TEST(Options, NamesOfFilesAndDirectoriesHaveAtMost200Bytes) {
    for (const char* option : {"dp-nccl-debug", "dp-record"}) {
        Settings s;
        EXPECT_FALSE(set_option(s, option, std::string(201, 'a'))) << option;
        EXPECT_FALSE(s.any()) << option;
        EXPECT_TRUE(set_option(s, option, std::string(200, 'a'))) << option;
    }
}

TEST(Options, EveryHelpTextFitsSrunsHelp) {
    for (const auto& spec : option_specs()) {
        // srun --help puts a long "--name=argument" on a line of its own, and wraps the text, not that.
        EXPECT_LT(std::string(spec.name).size() + (spec.argument ? std::string(spec.argument).size() : 0),
                  70u);
        EXPECT_LT(std::string(spec.usage).size(), 100u) << spec.name;
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
    s.port = 0;
    s.interface = "10.0.0.0/8";
    s.store = StoreKind::torch;
    s.timeout_seconds = 7;
    s.on_failure = FailureAction::report;
    s.tensor = 2;
    s.pipeline = 3;
    s.verbose = true;
    s.dry_run = false;
    std::map<std::string, std::string> variables;
    for (const auto& [name, value] : settings_to_environment(s)) variables[name] = value;
    auto back = settings_from_environment([&](const char* name) -> std::optional<std::string> {
        auto found = variables.find(name);
        return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
    });
    ASSERT_TRUE(back);
    EXPECT_EQ(*back, s);
}

TEST(Options, GoToTheNodesAsOneText) {
    Settings s;
    s.interface = "10.0.0.0/8";
    s.store = StoreKind::torch;
    s.verbose = true;
    EXPECT_EQ(write_settings(s), "SLURM_DP_INTERFACE=10.0.0.0/8 SLURM_DP_STORE=torch SLURM_DP_VERBOSE=1");
    // Beside words that are others', as they may be another version's.
    EXPECT_EQ(*read_settings(write_settings(s) + " own=1 bound=1 SLURM_DP_NEXT=x"), s);
    EXPECT_EQ(*read_settings(""), Settings{});
    EXPECT_FALSE(read_settings("SLURM_DP_STORE=redis"));
}

TEST(Options, WhatNobodySaysIsTheDefault) {
    const Settings defaults = with_defaults({});
    EXPECT_EQ(defaults.world, 0u);
    EXPECT_EQ(defaults.port, 0u);
    EXPECT_EQ(defaults.timeout(), std::chrono::seconds(300));
    EXPECT_FALSE(defaults.reports_failures() || defaults.serves_torch() || defaults.wants_table());
    EXPECT_EQ(defaults.visible, Visible::node);
    // Left open: these ask for something.
    EXPECT_FALSE(defaults.interface || defaults.tensor || defaults.pipeline || defaults.tiles);
    for (const auto& spec : option_specs()) EXPECT_EQ(spec.get(defaults).has_value(), spec.preset != nullptr);
    Settings given;
    given.timeout_seconds = 7;
    given.dry_run = true;
    EXPECT_EQ(with_defaults(given).timeout(), std::chrono::seconds(7));
    EXPECT_TRUE(with_defaults(given).wants_table());
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

TEST(Options, WhatWasGivenToTheStepInsistsAndWhatWasInheritedLeavesOtherStepsAlone) {
    struct {
        uint32_t world, tensor, pipeline;  // 0: not given
        uint32_t tasks;
        StepVerdict::Decision given, inherited;
    } const cases[] = {{0, 0, 0, 8, StepVerdict::apply, StepVerdict::apply},
                       {8, 0, 0, 8, StepVerdict::apply, StepVerdict::apply},
                       {9, 0, 0, 8, StepVerdict::refuse, StepVerdict::leave_alone},
                       {0, 2, 0, 8, StepVerdict::apply, StepVerdict::apply},
                       {0, 2, 2, 8, StepVerdict::apply, StepVerdict::apply},
                       {0, 3, 0, 8, StepVerdict::refuse, StepVerdict::leave_alone},
                       {0, 0, 3, 8, StepVerdict::refuse, StepVerdict::leave_alone},
                       {0, 4, 4, 8, StepVerdict::refuse, StepVerdict::leave_alone},
                       {0, 1u << 20, 1u << 20, 8, StepVerdict::refuse, StepVerdict::leave_alone},
                       {8, 4, 2, 8, StepVerdict::apply, StepVerdict::apply}};
    for (const auto& c : cases) {
        Settings s;
        if (c.world) s.world = c.world;
        if (c.tensor) s.tensor = c.tensor;
        if (c.pipeline) s.pipeline = c.pipeline;
        const StepVerdict given = judge_step(s, s, c.tasks, 1);
        EXPECT_EQ(given.decision, c.given) << c.world << " " << c.tensor << " " << c.pipeline;
        EXPECT_EQ(judge_step(s, {}, c.tasks, 1).decision, c.inherited);
        EXPECT_EQ(given.why.find("give ") != std::string::npos, given.decision == StepVerdict::refuse)
            << given.why;
    }
    // Nodes: spares without ranks, and the fewest that may be left.
    const struct {
        uint32_t spares, min_nodes, tasks, nodes, world;  // world 0: refused
    } worlds[] = {{2, 0, 80, 10, 64}, {1, 1, 2, 2, 1},    {1, 9, 10, 10, 9},
                  {1, 10, 10, 10, 0}, {0, 11, 10, 10, 0}, {2, 0, 4, 2, 0},
                  {3, 0, 2, 2, 0},    {1, 0, 7, 2, 0},    {0, 2, 7, 2, 7}};
    for (const auto& c : worlds) {
        Settings s;
        s.spares = c.spares;
        if (c.min_nodes) s.min_nodes = c.min_nodes;
        EXPECT_EQ(judge_step(s, s, c.tasks, c.nodes).decision, StepVerdict::apply) << "they mean nothing yet";
        s.on_failure = FailureAction::restart;
        const StepVerdict given = judge_step(s, s, c.tasks, c.nodes);
        ASSERT_EQ(given.decision, c.world ? StepVerdict::apply : StepVerdict::refuse) << given.why;
        EXPECT_EQ(judge_step(s, {}, c.tasks, c.nodes).decision,
                  c.world ? StepVerdict::apply : StepVerdict::leave_alone);
        if (c.world) {
            EXPECT_EQ(world_size(s, c.tasks, c.nodes), c.world);
        }
        EXPECT_EQ(given.why.find("give ") != std::string::npos, c.world == 0) << given.why;
    }
    // If this srun was given an option of its own, the step wants a world: inherited options are no reason
    // to run without.
    Settings own;
    own.timeout_seconds = 20;
    Settings inherited = own;
    inherited.tensor = 3;
    StepVerdict mixed = judge_step(inherited, own, 4, 1);
    EXPECT_EQ(mixed.decision, StepVerdict::refuse);
    EXPECT_NE(mixed.why.find("--dp-tensor=3 (inherited: SLURM_DP_TENSOR)"), std::string::npos) << mixed.why;
    inherited = own;
    inherited.world = 8;
    mixed = judge_step(inherited, own, 4, 1);
    EXPECT_EQ(mixed.decision, StepVerdict::refuse);
    EXPECT_NE(mixed.why.find("--dp-world=8 (inherited: SLURM_DP_WORLD), but this step has 4 tasks"),
              std::string::npos);

    Settings nine;
    nine.world = 9;
    EXPECT_EQ(judge_step(nine, nine, 8, 1).why,
              "--dp-world=9, but this step has 8 tasks; give -n 9 (or --dp-world=auto for 8)");
}

TEST(Options, SizesThatDoNotDivideTheAskedWorldContradictIt) {
    Settings s;
    s.tensor = 3;
    EXPECT_FALSE(contradiction(s));  // the number of tasks is not known yet
    s.world = 8;
    ASSERT_TRUE(contradiction(s));
    EXPECT_NE(contradiction(s)->find("--dp-tensor=3"), std::string::npos);
    s.tensor = 2;
    s.pipeline = 4;
    EXPECT_FALSE(contradiction(s));
}

TEST(Options, OnlyOnesOwnOptionsNeedAnother) {
    Settings interval;
    interval.record_interval = std::chrono::milliseconds(500);
    Settings recorded = interval;
    recorded.record = RecordDirectory{"records"};
    Settings not_recorded = interval;
    not_recorded.record = RecordDirectory{"off"};
    ASSERT_TRUE(missing_option(interval, interval));
    EXPECT_NE(missing_option(interval, interval)->find("--dp-record-interval needs --dp-record=DIR"),
              std::string::npos);
    EXPECT_TRUE(missing_option(interval, not_recorded));
    EXPECT_FALSE(missing_option(interval, recorded)) << "whoever said where";
    EXPECT_FALSE(missing_option(Settings{}, interval)) << "inherited: nobody has to take it back";
}

TEST(Cidr, ContainsWhatLiesInTheNetwork) {
    struct {
        const char* network;
        const char* address;
        bool inside;
    } const cases[] = {{"10.1.0.0/16", "10.1.255.9", true}, {"10.1.0.0/16", "10.2.0.1", false},
                       {"10.1.2.3/16", "10.1.0.1", true},   {"0.0.0.0/0", "192.168.0.1", true},
                       {"10.0.0.4/31", "10.0.0.5", true},   {"10.0.0.4/31", "10.0.0.6", false},
                       {"10.0.0.4/32", "10.0.0.4", true},   {"fd00:1::/64", "fd00:1::7", true},
                       {"fd00:1::/64", "fd00:2::7", false}, {"10.0.0.0/8", "fd00::1", false},
                       {"::/0", "10.0.0.1", false},         {"10.0.0.0/8", "node01", false}};
    for (const auto& c : cases) {
        auto network = parse_cidr(c.network);
        ASSERT_TRUE(network) << c.network;
        EXPECT_EQ(network->contains(c.address), c.inside) << c.network << " " << c.address;
    }
}

TEST(Site, ReadsItsSettings) {
    char daemon[] = "daemon=/opt/dp";
    char timeout[] = "timeout=600";
    char interface[] = "interface=10.1.0.0/16";
    char store[] = "store=torch";
    char failure[] = "on-failure=report";
    char suffix[] = "host-suffix=-ib0";
    char* words[] = {daemon, timeout, interface, store, failure, suffix};
    const auto site = plugin::read_site(words, "/default");
    EXPECT_EQ(site.daemon, "/opt/dp");
    EXPECT_EQ(site.defaults.timeout_seconds, 600u);
    EXPECT_EQ(site.defaults.interface, "10.1.0.0/16");
    EXPECT_EQ(site.defaults.store, StoreKind::torch);
    EXPECT_EQ(site.defaults.on_failure, FailureAction::report);
    EXPECT_EQ(site.host_suffix, "-ib0");
    EXPECT_TRUE(site.mistakes.empty());
    EXPECT_EQ(plugin::read_site({}, "/default").daemon, "/default");
}

TEST(Site, NamesAMistakeAndKeepsTheRest) {
    for (std::string word :
         {"colour=green", "daemon=relative/path", "timeout=long", "daemon", "host-suffix=", "host-suffix=a b",
          "interface=10.0.0.0/99", "store=redis", "on-failure", "world=4"}) {
        char good[] = "daemon=/opt/dp";
        char* words[] = {word.data(), good};
        const auto site = plugin::read_site(words, "/default");
        ASSERT_EQ(site.mistakes.size(), 1u) << word;
        EXPECT_NE(site.mistakes[0].find("plugstack.conf: "), std::string::npos);
        EXPECT_EQ(site.daemon, "/opt/dp");  // the other words hold
    }
}

TEST(Site, ASlurmNewerThanAnyTestedIsMentioned) {
    for (uint32_t tested :
         {SLURM_VERSION_NUM(22, 5, 8), SLURM_VERSION_NUM(25, 11, 0), SLURM_VERSION_NUM(26, 5, 9)})
        EXPECT_EQ(plugin::untested_slurm(tested), "");
    const std::string said = plugin::untested_slurm(SLURM_VERSION_NUM(26, 11, 1));
    EXPECT_TRUE(said.starts_with("built for Slurm 26.11, newer than the newest tested (26.05); ")) << said;
    EXPECT_TRUE(plugin::untested_slurm(SLURM_VERSION_NUM(27, 5, 0)).starts_with("built for Slurm 27.05, "));
}

}  // namespace
}  // namespace dp
