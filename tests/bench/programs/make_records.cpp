// SPDX-License-Identifier: Apache-2.0
//
// The record of a long step that nobody has run: bench-records DIR NODES RANKS_PER_NODE SECONDS. Each rank trains; rank 1 is slow, and in the
// middle all begin again.
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>

#include "record/entries.hpp"

namespace {

using namespace dp;

constexpr int64_t kRestartMs = 20'000;

struct Shape {
    uint32_t nodes = 0, ranks_per_node = 0;
    int64_t seconds = 0;
};

class NodeFile {
 public:
    NodeFile(const std::string& folder, const Shape& shape, uint32_t node)
        : shape_(shape), node_(node), random_(node), out_(path_in(folder), std::ios::binary) {}

    bool write() {
        out_ << kRecordMagic;
        record::Entry begin;
        begin.mutable_begin()->set_run("00000000000000be");
        begin.mutable_begin()->set_host(host());
        begin.mutable_begin()->set_node_rank(node_);
        begin.mutable_begin()->set_node_count(shape_.nodes);
        begin.mutable_begin()->set_tasks(shape_.ranks_per_node);
        begin.mutable_begin()->set_unix_ms(1'795'000'000'000);
        add(0, begin);
        const int64_t half = shape_.seconds * 500;
        live(0, 100, half);
        record::Entry end;
        end.mutable_generation_end()->set_reason("rank 3 on bench0 was killed by signal 9 (SIGKILL)");
        add(half, end);
        live(1, half + kRestartMs, shape_.seconds * 1000);
        record::Entry last;
        last.mutable_end();
        add(shape_.seconds * 1000, last);
        return static_cast<bool>(out_.flush());
    }

 private:
    Shape shape_;
    uint32_t node_;
    std::mt19937 random_;
    std::ofstream out_;

    std::string host() const { return "bench" + std::to_string(node_); }
    std::string path_in(const std::string& folder) const {
        return folder + "/" + host() + std::string(kRecordSuffix);
    }
    uint32_t rank(uint32_t local) const { return node_ * shape_.ranks_per_node + local; }

    void add(int64_t at_ms, record::Entry entry) {
        entry.set_at_ms(at_ms);
        out_ << bytes_of(entry);
    }

    void live(uint32_t number, int64_t from_ms, int64_t until_ms) {
        record::Entry begin;
        begin.mutable_generation()->set_number(number);
        begin.mutable_generation()->set_world_size(shape_.nodes * shape_.ranks_per_node);
        for (uint32_t local = 0; local < shape_.ranks_per_node; ++local)
            begin.mutable_generation()->add_ranks(rank(local));
        add(from_ms, begin);
        for (uint32_t local = 0; local < shape_.ranks_per_node; ++local) {
            record::Entry started;
            started.mutable_moment()->set_kind(record::Moment::STARTED);
            started.mutable_moment()->set_rank(rank(local));
            started.mutable_moment()->set_generation(number);
            add(from_ms, started);
        }
        for (int64_t at = from_ms + 1000; at <= until_ms; at += 1000) add(at, sample());
    }

    record::Entry sample() {
        record::Entry entry;
        auto& sample = *entry.mutable_sample();
        for (uint32_t local = 0; local < shape_.ranks_per_node; ++local) {
            const uint32_t compute = (rank(local) == 1 ? 850 : 600) + random_() % 100;
            const uint32_t load = random_() % 20;
            sample.add_compute_ms(compute);
            sample.add_load_ms(load);
            sample.add_communication_ms(1000 - compute - load);
            sample.add_steps(3 + random_() % 2);
            sample.add_step_count(3);
            sample.add_cpu_ms(900 + random_() % 200);
            sample.add_memory_mib(40'000 + random_() % 500);
        }
        sample.set_node_memory_mib(400'000 + random_() % 1000);
        sample.set_sent_kib(1'000'000 + random_() % 100'000);
        sample.set_received_kib(1'000'000 + random_() % 100'000);
        return entry;
    }
};

}  // namespace

int main(int argc, char** argv) {
    if (argc != 5) {
        std::fprintf(stderr, "usage: bench-records DIR NODES RANKS_PER_NODE SECONDS\n");
        return 2;
    }
    const std::string folder = argv[1];
    const Shape shape{static_cast<uint32_t>(std::atoi(argv[2])), static_cast<uint32_t>(std::atoi(argv[3])),
                      std::atoll(argv[4])};
    mkdir(folder.c_str(), 0777);
    for (uint32_t node = 0; node < shape.nodes; ++node)
        if (!NodeFile(folder, shape, node).write()) {
            std::perror(folder.c_str());
            return 1;
        }
    return 0;
}
