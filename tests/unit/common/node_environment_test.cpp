// SPDX-License-Identifier: Apache-2.0
#include "common/node_environment.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "raw_environment.hpp"
#include "some_task.hpp"

namespace dp {
namespace {

const TilesOfTasks kNoTiles;

// What each of so many tasks is told.
class Told {
 public:
    Told(uint32_t tasks, const std::function<std::vector<TaskVariable>(uint32_t local)>& of_task) {
        for (uint32_t local = 0; local < tasks; ++local) variables_.push_back(of_task(local));
    }
    TilesOfTasks settled(bool are = true) const { return {{variables_.begin(), variables_.end()}, are}; }
    const std::vector<TaskVariable>& operator[](uint32_t local) const { return variables_[local]; }

 private:
    std::vector<std::vector<TaskVariable>> variables_;
};

TaskFacts task_of_node(uint32_t local, uint32_t cpus) {
    TaskFacts task = rank_5_of_8();
    task.local_rank = local;
    task.rank = 4 + local;
    task.cpus = cpus;
    return task;
}

// And then what is left in each task comes out as if all had been made in the task.
TEST(NodeEnvironment, ChangesNothingInWhatATaskSees) {
    const Variables befores[] = {
        {},
        {{"WORLD_SIZE", "4"}, {"NODE_RANK", "7"}, {"ROLE_NAME", "mine"}, {"PATH", "/bin"}},
        {{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29000"}, {"TORCHELASTIC_RUN_ID", ""}},
        {{"DP_INJECTED", "WORLD_SIZE=16 NODE_RANK=3 NCCL_SOCKET_IFNAME=old"},
         {"WORLD_SIZE", "16"},
         {"NODE_RANK", "3"},
         {"NCCL_SOCKET_IFNAME", "old"},
         {"DP_NODES", "4"},
         {kSecretVariable, "5ec7e7"}},
    };
    // Set by another plugin after the node's, before a task's.
    const Variables others[] = {{}, {{"OMP_NUM_THREADS", "7"}, {"DP_NODES", "77"}}};
    for (const bool torch_store : {false, true})
        for (const bool with_interface : {false, true})
            for (const Variables& before : befores)
                for (const Variables& other : others) {
                    TaskFacts any = task_of_node(0, 0);
                    any.settings.store = torch_store ? StoreKind::torch : StoreKind::hold;
                    if (with_interface) any.interface = "hsn0";
                    const NodeEnvironment node = node_environment(any, kNoTiles, reading(before));
                    EXPECT_GT(node.changes().size(), 20u);
                    Variables inherited = before;
                    change(inherited, node.changes());
                    Variables without = before;
                    for (const auto& [name, value] : other) inherited[name] = without[name] = value;
                    for (uint32_t local = 0; local < 4; ++local) {
                        TaskFacts task = task_of_node(local, local < 3 ? 2 : 0);
                        task.settings = any.settings;
                        task.interface = any.interface;
                        const auto [expected, warnings] = task_with(without, task);
                        const auto there = reading(inherited);
                        const auto out = task_environment(
                            task, kPlan, [&](const char* name) { return node.get(name, there); });
                        const auto left = node.left_of(out.changes, there);
                        // Set anew in each task: only what is too long for a blank.
                        for (const auto& c : left) {
                            const auto found = inherited.find(c.name);
                            const bool has_room = found != inherited.end() && c.value &&
                                                  c.value->size() <= found->second.size();
                            EXPECT_TRUE(has_room || !c.value || !other.empty()) << c.name;
                        }
                        Variables env = inherited;
                        change(env, left);
                        EXPECT_EQ(env, expected);
                        EXPECT_EQ(out.warnings, warnings);
                    }
                }
}

// As NVIDIA's pyxis does with a container's image and hooks: nobody's wish, and guessed.
TEST(NodeEnvironment, WhatAnotherPluginBringsForTheWorldIsNotTheUsers) {
    const Variables brought = {{"MASTER_ADDR", "node01"}, {"MASTER_PORT", "61007"},
                               {"WORLD_SIZE", "8"},       {"RANK", "4"},
                               {"LOCAL_RANK", "0"},       {"OMP_NUM_THREADS", "1"}};
    const std::pair<Variables, std::string> befores[] = {{{}, "10.0.0.1"},
                                                         {{{"MASTER_ADDR", "10.5.5.5"}}, "10.5.5.5"}};
    for (const auto& [before, address] : befores) {
        TaskFacts task = task_of_node(0, 2);
        task.settings.store = StoreKind::torch;
        const NodeEnvironment node = node_environment(task, kNoTiles, reading(before));
        Variables inherited = before;
        change(inherited, node.changes());
        for (const auto& [name, value] : brought) inherited[name] = value;
        const auto there = reading(inherited);
        const auto out =
            task_environment(task, kPlan, [&](const char* name) { return node.get(name, there); });
        Variables env = inherited;
        change(env, node.left_of(out.changes, there));
        EXPECT_EQ(env["MASTER_ADDR"], address);
        EXPECT_EQ(env["MASTER_PORT"], "29000");
        EXPECT_EQ(env["OMP_NUM_THREADS"], "1");
        EXPECT_EQ(env["TORCHELASTIC_USE_AGENT_STORE"], before.empty() ? "True" : "False");
        // About the user's own address, where there is one.
        EXPECT_EQ(out.warnings.size(), before.size());
    }
}

// Neither the node nor its tasks need to set anything anew, which costs Slurm much: see empty_slots.
TEST(NodeEnvironment, FitsIntoTheSlotsThatSrunSends) {
    std::vector<std::string> sent = {"PATH=/bin"};
    for (const auto& slot : empty_slots(true)) sent.push_back(slot.name + "=" + *slot.value);
    TaskFacts any = task_of_node(0, 0);
    any.interface = "hsn0";
    any.settings.store = StoreKind::torch;
    const Variables nothing;
    const Told tiles(8, [](uint32_t local) {
        std::vector<TaskVariable> variables;
        for (const char* name : {"DP_TILE_MASK", "DP_TILE_LIST", "DP_TILE_COUNT", "DP_TILES_PER_DEVICE",
                                 "DP_TILE_DEVICE", "DP_TILE_NUMA", "ZE_AFFINITY_MASK",
                                 "ZE_FLAT_DEVICE_HIERARCHY", "ZE_ENABLE_PCI_ID_DEVICE_ORDER"})
            variables.push_back({name, std::to_string(local)});
        return variables;
    });
    const NodeEnvironment node = node_environment(any, tiles.settled(false), reading(nothing));
    RawEnvironment environment(sent);
    for (const auto& c : node.changes()) EXPECT_TRUE(!c.value || environment.write(c)) << c.name;
    NodePlan far = kPlan;
    far.master_addr = far.node_addr = "2001:0db8:85a3:0000:0000:8a2e:0370:7334";
    far.master_port = far.coordinator_port = 65535;
    TaskFacts task = any;
    task.cpus = 1024;
    task.tiles = tiles[7];
    for (const auto& c : task_environment(task, far, reading(nothing)).changes)
        EXPECT_TRUE(!c.value || environment.write(c)) << c.name;
    const auto after = environment.entries();
    EXPECT_NE(std::find(after.begin(), after.end(), "MASTER_ADDR=" + far.master_addr), after.end());
}

// As Slurm keeps it: the variables, and room for a node's.
RawEnvironment with_slots(const Variables& variables) {
    std::vector<std::string> texts;
    for (const auto& [name, value] : variables) texts.push_back(name + "=" + value);
    for (const auto& slot : empty_slots(true)) texts.push_back(slot.name + "=" + *slot.value);
    return RawEnvironment(texts);
}

// Without the slots that nothing was written into.
Variables variables_of(const RawEnvironment& environment) {
    Variables found;
    for (const std::string& entry : environment.entries())
        if (const size_t equals = entry.find('='); equals != std::string::npos && !entry.starts_with(kSlot))
            found.emplace(entry.substr(0, equals), entry.substr(equals + 1));
    return found;
}

// A node's environment with what is made once, by the list or as Slurm does, and where it stands.
RawEnvironment make_in(const Variables& before, NodeEnvironment& node) {
    RawEnvironment environment = with_slots(before);
    for (const auto& c : node.changes()) {
        if (environment.write(c)) continue;
        std::vector<std::string> texts = environment.entries();
        std::erase_if(texts, [&](const std::string& text) { return text.starts_with(c.name + "="); });
        if (c.value) texts.push_back(c.name + "=" + *c.value);
        environment = RawEnvironment(texts);
    }
    node.find_in(environment.get());
    return environment;
}

std::vector<TaskVariable> tiles_of(uint32_t local) {
    return {{"DP_TILE_MASK", std::string(8, static_cast<char>('0' + local)), TaskVariable::Whose::ours},
            {"DP_TILE_COUNT", "1", TaskVariable::Whose::ours},  // the same in each
            {"ZE_AFFINITY_MASK", std::to_string(local) + ".0", TaskVariable::Whose::job}};
}

TEST(NodeEnvironment, IsFilledInByATaskAsItWouldWorkItOutItself) {
    const Variables befores[] = {
        {},
        {{"PATH", "/bin"}, {"OMP_NUM_THREADS", "3"}, {"SLURM_NTASKS_PER_NODE", "4"}, {"WORLD_SIZE", "8"}},
        {{"TORCHELASTIC_RUN_ID", ""}, {"DP_RANK", "77"}, {"ZE_AFFINITY_MASK", "0.1"}},
        {{"DP_INJECTED", "WORLD_SIZE=16 NODE_RANK=3"}, {"WORLD_SIZE", "16"}, {"NODE_RANK", "3"}},
    };
    const Told told(4, tiles_of);
    for (const Variables& before : befores)
        for (const bool v6 : {false, true})
            for (const bool tiles : {false, true}) {
                TaskFacts any = task_of_node(0, 0);
                any.interface = "hsn0";
                any.settings.store = v6 ? StoreKind::torch : StoreKind::hold;
                NodeEnvironment node =
                    node_environment(any, tiles ? told.settled() : kNoTiles, reading(before));
                const RawEnvironment inherited = make_in(before, node);
                const NodePlan plan = v6 ? NodePlan{"fd00::1", 1, 65535, "fd00::2", ""} : kPlan;
                for (uint32_t local = 0; local < 4; ++local) {
                    TaskFacts task = task_of_node(local, 1 + local);
                    task.interface = any.interface;
                    task.settings = any.settings;
                    if (tiles) task.tiles = told[local];
                    RawEnvironment environment(inherited.entries());
                    const auto left = node.fill(environment.get(), task, plan);
                    ASSERT_TRUE(left) << before.size() << local;
                    EXPECT_TRUE(left->empty());
                    EXPECT_EQ(variables_of(environment), task_with(before, task, plan).first);
                }
            }
}

// A GPU's: Slurm gives each task one of its own, after the node's have been made.
TEST(NodeEnvironment, LeavesToTheTaskWhatSlurmSetsForEach) {
    const Told gpus(4, [](uint32_t local) {
        const std::string number = std::to_string(local);
        return std::vector<TaskVariable>{{"DP_TILE_MASK", "0x" + number},
                                         {"DP_TILE_COUNT", "1"},
                                         {"CUDA_VISIBLE_DEVICES", number, TaskVariable::Whose::slurm},
                                         {"CUDA_DEVICE_ORDER", "PCI_BUS_ID", TaskVariable::Whose::job}};
    });
    const Variables before = {{"PATH", "/bin"}, {"CUDA_VISIBLE_DEVICES", "0,1,2,3"}};
    NodeEnvironment node = node_environment(task_of_node(0, 0), gpus.settled(false), reading(before));
    const RawEnvironment inherited = make_in(before, node);
    EXPECT_EQ(variables_of(inherited).at("CUDA_VISIBLE_DEVICES"), "0,1,2,3");
    for (uint32_t local = 0; local < 4; ++local) {
        TaskFacts task = task_of_node(local, 2);
        task.tiles = gpus[local];
        RawEnvironment environment(inherited.entries());
        const auto left = node.fill(environment.get(), task, kPlan);
        ASSERT_TRUE(left);
        Variables there = variables_of(environment);
        EXPECT_EQ(there.at("CUDA_VISIBLE_DEVICES"), "0,1,2,3");
        change(there, *left);
        EXPECT_EQ(there, task_with(before, task).first);
    }
}

// The longest need not be the first task's or the last's; where tasks may have others there is more room.
TEST(NodeEnvironment, HasRoomForTheTilesOfEachTask) {
    const std::string lists[] = {"9", "60,61,62,63,64", "7", "8"};
    const Told told(4, [&](uint32_t local) {
        return std::vector<TaskVariable>{{"DP_TILE_LIST", "listed " + lists[local]}};
    });
    const Variables before = {{"PATH", "/bin"}};
    for (const bool settled : {true, false}) {
        NodeEnvironment node = node_environment(task_of_node(0, 0), told.settled(settled), reading(before));
        const RawEnvironment inherited = make_in(before, node);
        EXPECT_EQ(variables_of(inherited).at("DP_TILE_LIST"), std::string(settled ? 21 : 64, ' '));
        for (uint32_t local = 0; local < 4; ++local) {
            TaskFacts task = task_of_node(local, 2);
            task.tiles = told[local];
            RawEnvironment environment(inherited.entries());
            ASSERT_TRUE(node.fill(environment.get(), task, kPlan));
            EXPECT_EQ(variables_of(environment).at("DP_TILE_LIST"), "listed " + lists[local]);
        }
        TaskFacts task = task_of_node(1, 2);
        const std::vector<TaskVariable> longer = {{"DP_TILE_LIST", "listed 60,61,62,63,64,65"}};
        task.tiles = longer;
        RawEnvironment environment(inherited.entries());
        EXPECT_EQ(node.fill(environment.get(), task, kPlan).has_value(), !settled);
    }
}

// As where only some devices have a NUMA node: such a task works its variables out for itself, and the others
// fill them in.
TEST(NodeEnvironment, IsFilledInByTheTasksThatHaveTheSameNames) {
    const Told told(2, [](uint32_t local) {
        std::vector<TaskVariable> variables = tiles_of(local);
        if (local == 1)
            variables.insert(variables.begin() + 1, {"DP_TILE_NUMA", "1", TaskVariable::Whose::ours});
        return variables;
    });
    const Variables before = {{"PATH", "/bin"}, {"DP_TILE_NUMA", "of an outer step"}};
    NodeEnvironment node = node_environment(task_of_node(0, 0), told.settled(), reading(before));
    const RawEnvironment inherited = make_in(before, node);
    for (uint32_t local = 0; local < 2; ++local) {
        TaskFacts task = task_of_node(local, 2);
        task.tiles = told[local];
        RawEnvironment environment(inherited.entries());
        const auto left = node.fill(environment.get(), task, kPlan);
        Variables there = variables_of(environment);
        if (!left) {
            const Variables now = there;
            const GetVariable get = [&](const char* name) { return node.get(name, reading(now)); };
            change(there, node.left_of(task_environment(task, kPlan, get).changes, reading(now)));
        }
        EXPECT_EQ(there, task_with(before, task).first) << local;
    }
}

// Whatever another plugin has done to one of the names, and what else a blank cannot hold: nothing is
// written.
TEST(NodeEnvironment, IsLeftAloneWhereItIsNotTheNodesAnyMore) {
    const Variables before = {{"OMP_NUM_THREADS", "3"}, {"WORLD_SIZE", "8"}};
    const TaskFacts task = task_of_node(1, 2);
    NodeEnvironment node = node_environment(task, kNoTiles, reading(before));
    const RawEnvironment inherited = make_in(before, node);
    const std::vector<std::string> good = inherited.entries();
    const auto is_filled = [&](const std::vector<std::string>& texts, const TaskFacts& facts,
                               const NodePlan& plan) {
        RawEnvironment environment(texts);
        const bool filled = node.fill(environment.get(), facts, plan).has_value();
        EXPECT_EQ(filled, environment.entries() != texts);
        return filled;
    };
    EXPECT_TRUE(is_filled(good, task, kPlan));
    size_t names = 0;
    for (size_t i = 0; i < good.size(); ++i) {
        if (good[i].starts_with(kSlot)) continue;
        ++names;
        std::vector<std::string> changed = good;
        changed[i] += "x";
        EXPECT_FALSE(is_filled(changed, task, kPlan)) << good[i];
        changed = good;
        changed.erase(changed.begin() + static_cast<std::ptrdiff_t>(i));
        EXPECT_FALSE(is_filled(changed, task, kPlan)) << good[i];
    }
    EXPECT_GT(names, 40u);
    NodePlan far = kPlan;
    far.master_addr = std::string(200, '1');
    EXPECT_FALSE(is_filled(good, task, far));
    EXPECT_FALSE(is_filled(good, task_of_node(1, 0), kPlan)) << "its CPUs are not known";
    TaskFacts with_tiles = task;
    const auto of_task = tiles_of(1);
    with_tiles.tiles = of_task;
    EXPECT_FALSE(is_filled(good, with_tiles, kPlan)) << "of which the node knew nothing";
    with_tiles.tiles = {};
    const Told told(4, tiles_of);
    NodeEnvironment of_tiles = node_environment(task_of_node(0, 0), told.settled(), reading(before));
    RawEnvironment theirs = make_in(before, of_tiles);
    auto other_count = of_task;
    other_count[1].value = "2";
    with_tiles.tiles = other_count;
    EXPECT_FALSE(of_tiles.fill(theirs.get(), with_tiles, kPlan)) << "which was to be the same in each";
    with_tiles.tiles = of_task;
    EXPECT_TRUE(of_tiles.fill(theirs.get(), with_tiles, kPlan));
    EXPECT_FALSE(NodeEnvironment().fill(RawEnvironment(good).get(), task, kPlan));
}

// As pyxis takes LANG away, which may have stood before them.
TEST(NodeEnvironment, IsFoundAgainWhereItHasMoved) {
    const Variables before = {{"LANG", "C.UTF-8"}, {"OMP_NUM_THREADS", "3"}, {"PATH", "/bin"}};
    const TaskFacts task = task_of_node(1, 2);
    NodeEnvironment node = node_environment(task, kNoTiles, reading(before));
    std::vector<std::string> texts = make_in(before, node).entries();
    std::erase(texts, "LANG=C.UTF-8");
    RawEnvironment environment(texts);
    EXPECT_GT(node.without_blanks(environment.get()).size(), 10u);
    ASSERT_TRUE(node.fill(environment.get(), task, kPlan));
    Variables expected = task_with(before, task).first;
    expected.erase("LANG");
    EXPECT_EQ(variables_of(environment), expected);
    EXPECT_TRUE(node.without_blanks(environment.get()).empty());
}

// Each task works it out for itself, and rank 0 says it.
TEST(NodeEnvironment, IsNotFilledInWhereThereIsSomethingToSay) {
    for (const Variables& before : {Variables{{"MASTER_ADDR", "10.9.9.9"}}, Variables{{"RANK", "3"}}}) {
        const TaskFacts task = task_of_node(1, 2);
        NodeEnvironment node = node_environment(task, kNoTiles, reading(before));
        RawEnvironment environment = make_in(before, node);
        EXPECT_EQ(task_with(before, task).second.size(), 1u);
        EXPECT_FALSE(node.fill(environment.get(), task, kPlan));
    }
}

TEST(NodeEnvironment, LeavesNoBlankBehind) {
    const Variables before = {{"RANK", "of the user"}, {"MASTER_ADDR", "10.0.0.1"}, {"PATH", "/bin"}};
    NodeEnvironment node = node_environment(task_of_node(0, 0), kNoTiles, reading(before));
    RawEnvironment environment = make_in(before, node);
    EXPECT_EQ(variables_of(environment)["RANK"].find_first_not_of(' '), std::string::npos);
    EXPECT_TRUE(environment.write({"LOCAL_RANK", "of another"}));
    Variables there = variables_of(environment);
    change(there, node.without_blanks(environment.get()));
    EXPECT_EQ(there["RANK"], "of the user");
    EXPECT_EQ(there["LOCAL_RANK"], "of another");
    EXPECT_EQ(there["WORLD_SIZE"], "8");
    EXPECT_FALSE(there.contains("MASTER_PORT"));
    for (const auto& [name, value] : there)
        EXPECT_NE(value.find_first_not_of(' '), std::string::npos) << name;
}

// Slurm may bind the tasks to other ones than the node took them for.
TEST(NodeEnvironment, TellsAnEpilogNothingOfTiles) {
    for (const Variables& before :
         {Variables{}, Variables{{"ZE_AFFINITY_MASK", "1.0"}, {"DP_TILE_COUNT", "7"}}})
        for (const uint32_t ranks : {1, 4}) {
            TaskFacts any = task_of_node(0, 0);
            any.local_world_size = ranks;
            const Told told(ranks, tiles_of);
            NodeEnvironment node = node_environment(any, told.settled(false), reading(before));
            RawEnvironment environment = make_in(before, node);
            Variables there = variables_of(environment);
            EXPECT_EQ(there.at("DP_TILE_COUNT"), "1");
            change(there, node.without_blanks(environment.get()));
            for (const auto& variable : tiles_of(0)) {
                const auto found = before.find(variable.name);
                EXPECT_EQ(there.contains(variable.name), found != before.end()) << variable.name;
                if (found != before.end()) {
                    EXPECT_EQ(there.at(variable.name), found->second);
                }
            }
        }
}

}  // namespace
}  // namespace dp
