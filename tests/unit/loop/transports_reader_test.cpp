// SPDX-License-Identifier: Apache-2.0
#include "loop/transports_reader.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>

namespace dp {
namespace {

using Files = std::vector<std::string>;

class TransportsReaderTest : public testing::Test {
 protected:
    ~TransportsReaderTest() override {
        event_base_free(base_);
        std::remove(file_.c_str());
        std::remove(runs_.c_str());
    }

    // Writes a message with $words as `local` if there are some, and counts its runs.
    TransportsReader reader() {
        return {base_,
                {"/bin/sh", "-c",
                 "echo >> " + runs_ +
                     "; words=$(cat \"$@\"); [ -z \"$words\" ] || printf '\\n\\004%s' \"$words\"",
                 "sh"},
                [this](const wire::NcclTransports& found) { told_.push_back(found.local()); }};
    }
    // Until the programs that it started have ended.
    void look(TransportsReader& reader, const Files& files, Time now, uint32_t generation = 0) {
        reader.look(files, generation, now);
        event_base_loop(base_, 0);
    }
    void write(const std::string& words) const { std::ofstream(file_) << words; }
    size_t runs() const {
        std::ifstream file(runs_);
        return static_cast<size_t>(std::count(std::istreambuf_iterator<char>(file), {}, '\n'));
    }

    event_base* base_ = event_base_new();
    std::string file_ = testing::TempDir() + "transports." + std::to_string(getpid());
    std::string runs_ = file_ + ".runs";
    std::vector<std::string> told_;
};

TEST_F(TransportsReaderTest, TellsOnceWhatDoesNotChangeAnyMore) {
    write("");
    TransportsReader reads = reader();
    look(reads, {file_, ""}, Time(0));
    EXPECT_EQ(runs(), 0u) << "the ranks have just begun";
    look(reads, {file_, ""}, Time(5000));
    write("half");
    look(reads, {file_, ""}, Time(10000));
    look(reads, {file_, ""}, Time(11000));
    EXPECT_EQ(runs(), 2u) << "pauses grow";
    write("full");
    look(reads, {file_, ""}, Time(20000));
    EXPECT_EQ(told_, Files{});
    look(reads, {file_, ""}, Time(60000));
    EXPECT_EQ(told_, Files{"full"});
    look(reads, {file_, ""}, Time(130000));
    EXPECT_EQ(told_, Files{"full"});
    write("more");
    look(reads, {file_, ""}, Time(200000));
    EXPECT_EQ(told_, Files{"full"});
    look(reads, {file_, ""}, Time(300000));
    EXPECT_EQ(told_, (Files{"full", "more"})) << "a communicator that came late";
    for (const int second : {301, 306, 311}) look(reads, {file_, ""}, Time(1000 * second), 1);
    EXPECT_EQ(told_, (Files{"full", "more", "more"}))
        << "of a rank that has survived into the next generation";
}

TEST_F(TransportsReaderTest, BeginsAnewWithOtherFiles) {
    write("full");
    TransportsReader reads = reader();
    for (const int second : {0, 5, 10, 20}) look(reads, {file_}, Time(1000 * second));
    for (const int second : {21, 26, 31}) look(reads, {"", file_}, Time(1000 * second));
    EXPECT_EQ(told_, (Files{"full", "full"}));
}

TEST_F(TransportsReaderTest, ReadsNothingWithoutFiles) {
    TransportsReader reads = reader();
    for (const int second : {0, 5, 10, 20}) look(reads, {"", ""}, Time(1000 * second));
    EXPECT_EQ(runs(), 0u);
}

TEST_F(TransportsReaderTest, AProgramThatFailsTellsNothing) {
    TransportsReader reads{base_, {"/bin/sh", "-c", "yes"}, [this](const auto&) { told_.emplace_back(); }};
    for (const int second : {0, 5, 10, 20, 60}) look(reads, {file_}, Time(1000 * second));
    EXPECT_EQ(told_, Files{});
}

}  // namespace
}  // namespace dp
