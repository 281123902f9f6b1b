// SPDX-License-Identifier: Apache-2.0
//
// The record's bytes reach another program in order, and whatever that does, the daemon goes on.
#include "loop/record_writer.hpp"

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "common/read_file.hpp"
#include "loop/write_record.hpp"
#include "record/entries.hpp"
#include "record/packing.hpp"
#include "server_test.hpp"

namespace dp {
namespace {

class RecordWriterTest : public ServerTest {
 protected:
    std::vector<std::string> failures;
    std::string file = testing::TempDir() + "/record-" + std::to_string(getpid());
    static constexpr Time kLong{30'000};
    RecordWriterTest() { signal(SIGPIPE, SIG_IGN); }  // as in the daemon
    ~RecordWriterTest() override { unlink(file.c_str()); }

    std::vector<std::string> shell(const std::string& text) const {
        return {"/bin/sh", "-c", text, "writer", file};
    }
    std::function<void(const std::string&)> on_failure() {
        return [this](const std::string& why) { failures.push_back(why); };
    }
    static double seconds_of(const std::function<void()>& what) {
        const auto begin = std::chrono::steady_clock::now();
        what();
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }
};

TEST_F(RecordWriterTest, WhatWasAddedBeforeAndAfterIsWritten) {
    RecordWriter writer(shell("cat > $1"), on_failure(), kLong);
    writer.add("before ");
    writer.start(base.get());
    // More than a pipe takes at once.
    const std::string many(size_t{300} << 10, 'x');
    writer.add(many);
    writer.add(" last");
    writer.finish();
    EXPECT_EQ(read_file(file), "before " + many + " last");
    EXPECT_TRUE(failures.empty());
}

TEST_F(RecordWriterTest, ItsReasonIsToldOnce) {
    RecordWriter writer(shell("echo 'FILE: No space left on device'; exec sleep 0"), on_failure());
    writer.start(base.get());
    ASSERT_TRUE(run([&] { return !failures.empty(); }));
    for (int i = 0; i < 3; ++i) writer.add("more");
    writer.finish();
    EXPECT_EQ(failures, std::vector<std::string>{"FILE: No space left on device"});
}

// A short step is over before its daemon has heard that.
TEST_F(RecordWriterTest, ItsReasonIsToldAtTheEnd) {
    RecordWriter writer(shell("cat > /dev/null; sleep 0.1; echo no"), on_failure());
    writer.start(base.get());
    writer.finish();
    EXPECT_EQ(failures, std::vector<std::string>{"no"});
}

TEST_F(RecordWriterTest, OneThatCannotStartIsTold) {
    RecordWriter writer({"/nonexistent/dpctl", "write-record"}, on_failure(), kLong);
    writer.start(base.get());
    writer.add("more");
    writer.finish();
    ASSERT_EQ(failures.size(), 1u);
    EXPECT_NE(failures[0].find("cannot be started"), std::string::npos);
}

TEST_F(RecordWriterTest, AFileSystemThatHangsHoldsUpNobody) {
    RecordWriter writer(shell("exec sleep 1000"), on_failure(), Time(2000));
    writer.start(base.get());
    const std::string some(size_t{256} << 10, 'x');
    EXPECT_LT(seconds_of([&] {
                  for (int i = 0; i < 8; ++i) writer.add(some);
              }),
              1);
    EXPECT_TRUE(failures.empty()) << "it may come back";
    const double waited = seconds_of([&] { writer.finish(); });
    EXPECT_GE(waited, 1.9);
    EXPECT_LT(waited, 20);
    EXPECT_EQ(failures, std::vector<std::string>{"its end could not be written within 2 s"});
}

TEST_F(RecordWriterTest, WhatWaitsIsBounded) {
    RecordWriter writer(shell("exec sleep 1000"), on_failure(), Time(2000));
    writer.start(base.get());
    const std::string some(size_t{1} << 20, 'x');
    for (int i = 0; i < 6; ++i) writer.add(some);
    EXPECT_EQ(failures, std::vector<std::string>{"the file system has taken nothing for a long time"});
    EXPECT_LT(seconds_of([&] { writer.finish(); }), 1);
}

// The daemon's own program.
class WriteRecordTest : public RecordWriterTest {
 protected:
    std::vector<std::string> writing(const std::string& path) const {
        return {DP_TEST_DAEMON, "write-record", path};
    }
    // What it has written, unpacked; "" if there is nothing yet.
    static std::string unpacked(const std::string& path) {
        const std::string written = read_file(path);
        if (!written.starts_with(kRecordMagic)) return "";
        std::string bytes(10'000, '\0');
        std::string_view packed = std::string_view(written).substr(kRecordMagic.size());
        bytes.resize(RecordUnpacker().unpack(packed, bytes));
        return bytes;
    }
    void write(const std::string& path, const std::string& bytes) {
        RecordWriter writer(writing(path), on_failure(), kLong);
        writer.add(bytes);
        writer.start(base.get());
        writer.finish();
    }
};

TEST_F(WriteRecordTest, MakesItsFolders) {
    const std::string folder = file + ".d";
    write(folder + "/one/two/record", "all of it");
    EXPECT_EQ(unpacked(folder + "/one/two/record"), "all of it");
    // The end of a whole stream of gzip: how much it unpacks to.
    EXPECT_TRUE(read_file(folder + "/one/two/record").ends_with(std::string("\x09\0\0\0", 4)));
    EXPECT_TRUE(failures.empty());
    std::filesystem::remove_all(folder);
}

TEST_F(WriteRecordTest, NeverWritesToWhatIsThere) {
    std::ofstream(file) << "precious";
    const std::string link = file + ".link", dangling = file + ".dangling";
    std::filesystem::create_symlink(file, link);
    std::filesystem::create_symlink(file + ".nowhere", dangling);
    for (const auto& path : {file, link, dangling}) write(path, "a record");
    EXPECT_EQ(read_file(file), "precious");
    EXPECT_FALSE(std::filesystem::exists(file + ".nowhere"));
    ASSERT_EQ(failures.size(), 3u);
    EXPECT_EQ(failures[0], file + ": File exists");
    for (const auto& path : {link, dangling}) std::filesystem::remove(path);
}

TEST_F(WriteRecordTest, WhyItCannotBeMadeIsSaid) {
    RecordWriter writer(shell(std::string("exec ") + DP_TEST_DAEMON + " write-record $1/record"),
                        on_failure(), kLong);
    std::ofstream(file) << "no directory";
    writer.start(base.get());
    writer.add("more");
    writer.finish();
    EXPECT_EQ(failures, std::vector<std::string>{file + "/record: Not a directory"});
}

TEST_F(WriteRecordTest, GoesOnWhenItsStepIsToldToEnd) {
    RecordWriter writer(writing(file), on_failure(), kLong);
    writer.start(base.get());
    writer.add("before ");
    ASSERT_TRUE(run([&] { return unpacked(file) == "before "; }));
    for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) kill(writer.pid(), signal);
    writer.add("after");
    writer.finish();
    EXPECT_EQ(unpacked(file), "before after");
}

TEST(SyncTimes, AtOnceButNotTwiceWithinHalfASecond) {
    using std::chrono::milliseconds;
    const auto at = [](int ms) { return SyncTimes::Time(milliseconds(ms)); };
    SyncTimes times;
    EXPECT_EQ(times.wait(at(1000)), std::nullopt) << "nothing was written";
    times.written(at(502));
    EXPECT_EQ(times.wait(at(502)), milliseconds(500)) << "the ranks start";
    times.written(at(600));
    EXPECT_EQ(times.wait(at(1002)), milliseconds(0));
    times.synced(at(1003));
    EXPECT_EQ(times.wait(at(1003)), std::nullopt);
    // A sample that comes a little less than a second after the last one is not left until the next.
    times.written(at(1999));
    EXPECT_EQ(times.wait(at(1999)), milliseconds(0));
    times.synced(at(2000));
    times.written(at(2100));
    EXPECT_EQ(times.wait(at(2100)), milliseconds(400));
    times.written(at(2300));
    EXPECT_EQ(times.wait(at(2300)), milliseconds(200)) << "the first of what is not there yet counts";
    EXPECT_EQ(times.wait(at(2600)), milliseconds(0));
}

}  // namespace
}  // namespace dp
