// SPDX-License-Identifier: Apache-2.0
//
// Records that tests make up: a directory, and files in it whose entries are written one after the other.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "record/entries.hpp"
#include "record/packing.hpp"
#include "record/run.hpp"
#include "record/timeline.hpp"

namespace dp {

class RecordedFile {
 public:
    // Those that are written now, and older ones, which begin with another line.
    enum class Format { packed, plain };
    // The file of a node with so many tasks.
    RecordedFile(const std::string& folder, uint32_t node, uint32_t tasks, uint32_t nodes = 1,
                 int64_t unix_ms = 1'000'000'000'000, const std::string& run = "0123456789abcdef",
                 Format format = Format::packed)
        : path_(folder + "/node" + std::to_string(node) + std::string(kRecordSuffix)),
          out_(path_, std::ios::binary) {
        if (format == Format::packed) packer_.emplace();
        out_ << (packer_ ? kRecordMagic : kPlainRecordMagic);
        record::Entry entry;
        auto& begin = *entry.mutable_begin();
        begin.set_run(run);
        begin.set_job_id(12);
        begin.set_host("node" + std::to_string(node));
        begin.set_node_rank(node);
        begin.set_tasks(tasks);
        begin.set_node_count(nodes);
        begin.set_unix_ms(unix_ms);
        add(0, std::move(entry));
    }

    RecordedFile(const std::string& folder, uint32_t node, uint32_t tasks, Format format)
        : RecordedFile(folder, node, tasks, 1, 1'000'000'000'000, "0123456789abcdef", format) {}

    const std::string& path() const { return path_; }

    RecordedFile& add(int64_t at_ms, record::Entry entry) {
        entry.set_at_ms(at_ms);
        return raw(bytes_of(entry));
    }
    RecordedFile& generation(int64_t at_ms, uint32_t number, const std::vector<uint32_t>& ranks,
                             uint32_t world_size = 2) {
        record::Entry entry;
        auto& generation = *entry.mutable_generation();
        generation.set_number(number);
        generation.set_world_size(world_size);
        for (const uint32_t rank : ranks) generation.add_ranks(rank);
        return add(at_ms, std::move(entry));
    }
    RecordedFile& end_of_generation(int64_t at_ms, uint32_t number, const std::string& reason, bool is_last) {
        record::Entry entry;
        auto& end = *entry.mutable_generation_end();
        end.set_generation(number);
        end.set_reason(reason);
        end.set_is_last(is_last);
        return add(at_ms, std::move(entry));
    }
    RecordedFile& moment(int64_t at_ms, record::Moment::Kind kind, uint32_t rank, uint32_t generation = 0,
                         const std::function<void(record::Moment&)>& fill = {}) {
        record::Entry entry;
        auto& moment = *entry.mutable_moment();
        moment.set_kind(kind);
        moment.set_rank(rank);
        moment.set_generation(generation);
        if (fill) fill(moment);
        return add(at_ms, std::move(entry));
    }
    RecordedFile& sample(int64_t at_ms, const std::function<void(record::Sample&)>& fill) {
        record::Entry entry;
        fill(*entry.mutable_sample());
        return add(at_ms, std::move(entry));
    }
    RecordedFile& note(int64_t at_ms, const std::string& text) {
        record::Entry entry;
        entry.mutable_note()->set_text(text);
        return add(at_ms, std::move(entry));
    }
    RecordedFile& end(int64_t at_ms) {
        record::Entry entry;
        entry.mutable_end();
        return add(at_ms, std::move(entry));
    }
    // As a writer ends it that was not killed.
    void finish() {
        out_ << packer_->finish();
        out_.flush();
    }
    RecordedFile& raw(const std::string& bytes) {
        out_ << (packer_ ? packer_->pack(bytes) : bytes);
        out_.flush();
        return *this;
    }

 private:
    std::string path_;
    std::ofstream out_;
    std::optional<RecordPacker> packer_;
};

class RecordTest : public testing::Test {
 protected:
    std::string folder = [] {
        std::string name = (std::filesystem::temp_directory_path() / "dp-record-XXXXXX").string();
        return std::string(mkdtemp(name.data()));
    }();
    ~RecordTest() override { std::filesystem::remove_all(folder); }

    Records records() const {
        auto read = read_records({folder});
        EXPECT_TRUE(read) << read.error().message;
        return read ? std::move(*read) : Records();
    }
    // Of the only run, with what holds for all of them.
    Timeline timeline() const {
        const Records all = records();
        EXPECT_EQ(all.runs.size(), 1u);
        auto read = read_timeline(all.runs.at(0));
        EXPECT_TRUE(read) << read.error().message;
        expect_nothing_lost(*read);
        return std::move(*read);
    }
    static void expect_nothing_lost(const Timeline& timeline) {
        double sum = 0;
        for (const double one : timeline.ledger) {
            EXPECT_GE(one, -1e-3);
            sum += one;
        }
        EXPECT_NEAR(sum, timeline.allocated, 1e-3 * (1 + timeline.allocated));
        for (const auto& node : timeline.nodes)
            for (const auto& task : node.tasks)
                for (const auto& window : task.windows) {
                    double all = 0;
                    for (const float one : window.spent) {
                        EXPECT_GE(one, -1e-3 * (1 + timeline.window));
                        all += static_cast<double>(one);
                    }
                    EXPECT_NEAR(all, timeline.window, 1e-3 * (1 + timeline.window));
                }
    }
};

}  // namespace dp
