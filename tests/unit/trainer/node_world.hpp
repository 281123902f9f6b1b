// SPDX-License-Identifier: Apache-2.0
//
// Worlds of ranks on several nodes, all of them in this process (threads) or children of it, connected by
// Gloo: for the tests of what ranks of a node do together.
#pragma once

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/hash_store.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "devices.hpp"
#include "full_mesh.hpp"
#include "trainer/parallel/gloo.hpp"
#include "trainer/parallel/node_communicator.hpp"

namespace dp::trainer {

// Comes back when all are connected: who left before would close on one that is not.
inline std::shared_ptr<::gloo::Context> connect(::gloo::rendezvous::Store& store, const std::string& name,
                                                int rank, std::size_t size) {
    auto named = prefixed(name, store);
    auto mesh = std::make_shared<::gloo::rendezvous::Context>(rank, static_cast<int>(size));
    connect_full_mesh(*mesh, named);
    std::vector<std::string> connected;
    for (std::size_t other = 0; other < size; ++other)
        connected.push_back("connected-" + std::to_string(other));
    named.set(connected[static_cast<std::size_t>(rank)], {1});
    named.wait(connected, mesh->getTimeout());
    return mesh;
}

// Of a rank of a world in which each has this node.
inline NodeSetting setting_of(::gloo::rendezvous::Store& store, const std::vector<int>& nodes, int rank,
                              NodeSetting setting) {
    setting.node = nodes[static_cast<std::size_t>(rank)];
    setting.connect =
        [&store, rank](const std::string& what,
                       const std::vector<std::uint32_t>& ranks) -> Result<std::shared_ptr<::gloo::Context>> {
        std::string name = what;
        for (const auto member : ranks) name += "-" + std::to_string(member);
        const auto place = std::find(ranks.begin(), ranks.end(), static_cast<std::uint32_t>(rank));
        return connect(store, name, static_cast<int>(place - ranks.begin()), ranks.size());
    };
    setting.gather = [&store, &nodes, rank, round = 0](const std::string& mine) mutable {
        const std::string place = "gather-" + std::to_string(++round) + "-";
        const std::string line = mine + "\n";  // a FileStore takes no empty value
        prefixed(place, store).set(std::to_string(rank), std::vector<char>(line.begin(), line.end()));
        std::vector<std::string> all;
        for (std::size_t other = 0; other < nodes.size(); ++other) {
            prefixed(place, store).wait({std::to_string(other)}, std::chrono::minutes(1));
            const auto text = prefixed(place, store).get(std::to_string(other));
            all.emplace_back(text.begin(), text.end() - 1);
        }
        return Result<std::vector<std::string>>(std::move(all));
    };
    return setting;
}

inline Result<SharedNodes> join_nodes(::gloo::rendezvous::Store& store, const std::vector<int>& nodes,
                                      int rank, Device& device, NodeSetting setting = {}) {
    setting = setting_of(store, nodes, rank, std::move(setting));
    auto shared = share_nodes(make_gloo(connect(store, "world", rank, nodes.size())), setting);
    if (shared && shared->memory.of_rank) device.set_shared_memory(shared->memory);
    return shared;
}

// Runs `rank_main(store, rank)` as each rank, a thread each.
template <typename Main>
void as_threads(std::size_t ranks, Main rank_main) {
    ::gloo::rendezvous::HashStore store;
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&store, &rank_main, rank] { rank_main(store, static_cast<int>(rank)); });
    for (auto& thread : threads) thread.join();
}

// Runs `rank_main(store, rank)`, which returns an exit code, in a process for each rank. `directory`
// must be new.
template <typename Main>
std::vector<pid_t> start_processes(std::size_t ranks, const std::string& directory, Main rank_main) {
    std::vector<pid_t> started;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        const pid_t child = fork();
        if (child == 0) {
            int code = 100;
            try {
                ::gloo::rendezvous::FileStore store(directory);
                code = rank_main(store, static_cast<int>(rank));
            } catch (const std::exception& error) {
                std::fprintf(stderr, "rank %zu: %s\n", rank, error.what());
            }
            _exit(code);
        }
        started.push_back(child);
    }
    return started;
}

// The exit code of a child, or minus its signal.
inline int code_of(pid_t child) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0) continue;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace dp::trainer
