// SPDX-License-Identifier: Apache-2.0
//
// Event files against the published values of their checksum, and read back by read_events.py, which shares
// nothing with what wrote them.
#include "trainer/reports/tensorboard.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

#include "scratch.hpp"

namespace dp::trainer {
namespace {

using ::testing::HasSubstr;

const Schedule kSchedule{100, 150, 2, 8};

// What read_events.py prints of a file, and its exit code.
struct ReadBack {
    std::vector<nlohmann::json> events;
    int code;
};
ReadBack read_back(const std::filesystem::path& file) {
    const std::string command = "python3 " DP_TEST_SOURCES "/read_events.py '" + file.string() + "' 2>&1";
    std::FILE* output = popen(command.c_str(), "r");
    std::string text;
    for (int c = 0; (c = std::fgetc(output)) != EOF;) text.push_back(static_cast<char>(c));
    const int status = pclose(output);
    ReadBack back{{}, WIFEXITED(status) ? WEXITSTATUS(status) : -1};
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
        back.events.push_back(nlohmann::json::parse(line, nullptr, false));
    return back;
}

std::filesystem::path only_file_in(const std::filesystem::path& directory) {
    const std::vector<std::filesystem::directory_entry> files(std::filesystem::directory_iterator{directory},
                                                              {});
    EXPECT_EQ(files.size(), 1u);
    return files.empty() ? "" : files[0].path();
}

// RFC 3720, appendix B.4, and the polynomial's customary check value.
TEST(Crc32c, IsThatOfIscsi) {
    EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
    EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
    EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
    EXPECT_EQ(crc32c(""), 0u);
}

TEST(TensorBoard, IsReadByAReaderOfItsOwn) {
    const Scratch directory;
    {
        auto board = TensorBoard::open(directory / "a" / "b", 2e9, 4);
        ASSERT_TRUE(board) << board.error().message;
        (*board)->on_log({{1, 50, 50}, 7.5, 0.5, 6e-5, 1.25, 2}, kSchedule);
        (*board)->on_epoch({2, 0.5, 0.25, 0.875, 2.0, 400.0}, kSchedule);
        (*board)->on_test({{1, 75, 75}, 2, {}, 8, 0.1}, kSchedule);
    }
    const auto file = only_file_in(directory / "a" / "b");
    EXPECT_THAT(file.filename().string(), HasSubstr("tfevents"));
    const ReadBack back = read_back(file);
    ASSERT_EQ(back.code, 0);
    ASSERT_EQ(back.events.size(), 4u);
    EXPECT_EQ(back.events[0]["file_version"], "brain.Event:2");
    EXPECT_GT(back.events[0]["wall_time"], 1.6e9);
    EXPECT_EQ(back.events[1]["step"], 50);
    const auto& scalars = back.events[1]["scalars"];
    EXPECT_EQ(scalars["lm loss"], 7.5);
    EXPECT_FLOAT_EQ(scalars["learning-rate"], 6e-5f);
    EXPECT_EQ(scalars["grad-norm"], 1.25);
    EXPECT_EQ(scalars["batch-size"], 8);
    EXPECT_EQ(scalars["iteration-time"], 0.5);
    EXPECT_EQ(scalars["samples-per-second"], 16);
    EXPECT_FLOAT_EQ(scalars["throughput"], 0.008f);  // TFLOP/s of each of 4 ranks
    EXPECT_EQ(scalars["skipped-iterations"], 2);
    EXPECT_EQ(back.events[2]["step"], 150);
    EXPECT_EQ(back.events[2]["scalars"]["lm loss validation"], 0.25);
    EXPECT_EQ(back.events[2]["scalars"]["accuracy validation"], 0.875);
    EXPECT_EQ(back.events[3]["step"], 75);
    EXPECT_EQ(back.events[3]["scalars"]["lm loss validation"], 2);
    EXPECT_EQ(back.events[3]["scalars"]["lm loss validation ppl"], 8);
}

// So that the reader proves something.
TEST(TensorBoard, AWrongByteIsFoundByTheReader) {
    const Scratch directory;
    ASSERT_TRUE(TensorBoard::open(directory.path(), 1, 1));
    const auto file = only_file_in(directory.path());
    const std::string good = contents_of(file);
    for (std::size_t byte = 0; byte < good.size(); byte += 5) {
        std::string bad = good;
        bad[byte] ^= 4;
        std::ofstream(file, std::ios::trunc) << bad;
        EXPECT_EQ(read_back(file).code, 1) << "byte " << byte;
    }
}

TEST(TensorBoard, ADirectoryThatCannotBeWrittenIsTheUsersToMend) {
    const auto opened = TensorBoard::open("/dev/null/events", 1, 1);
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().fault, Fault::usage);
    EXPECT_THAT(opened.error().message, HasSubstr("/dev/null/events"));
}

}  // namespace
}  // namespace dp::trainer
