// SPDX-License-Identifier: Apache-2.0
//
// `dpctl report --trace`: what Perfetto needs, and no half trace.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "dpctl/commands.hpp"
#include "dpctl/report.hpp"
#include "record_details.hpp"

namespace dp {
namespace {

using Json = nlohmann::json;

class TraceTest : public RecordTest {
 protected:
    // Rank 1, on another node, is waited for. Rank 0 hangs within its start, is restarted, and hangs again.
    TraceTest() {
        RecordedFile(folder, 0, 1, 2)
            .generation(0, 0, {0})
            .moment(1, record::Moment::STARTED, 0)
            .moment(400, record::Moment::STILL, 0, 0,
                    [](record::Moment& moment) { moment.set_still_ms(300); })
            .moment(600, record::Moment::MOVES, 0)
            .sample(1000, [](record::Sample& sample) { fill(sample, 100, 200); })
            .note(1500, "rank 1 is \"slow\"\n</script>")
            .end_of_generation(1600, 0, "rank 1 died", false)
            .generation(2000, 1, {0})
            .sample(3000, [](record::Sample& sample) { fill(sample, 100, 200); })
            .moment(4000, record::Moment::STILL, 0, 1,
                    [](record::Moment& moment) { moment.set_still_ms(2500); })
            .end(5000);
        RecordedFile(folder, 1, 1, 2)
            .generation(0, 0, {1})
            .sample(1000, [](record::Sample& sample) { fill(sample, 280, 20); })
            .generation(2000, 1, {1})
            .sample(3000, [](record::Sample& sample) { fill(sample, 280, 20); })
            .end(5000);
    }

    Report report() const {
        const Records all = records();
        Report report;
        for (const RecordedRun& run : all.runs) report.runs.push_back({run, *read_timeline(run)});
        return report;
    }
    std::vector<Json> events(const std::string& ph) const {
        std::ostringstream out;
        const auto written = write_trace(report(), out);
        EXPECT_TRUE(written) << written.error().message;
        EXPECT_EQ(written.value_or(std::vector<std::string>{"?"}), std::vector<std::string>());
        std::vector<Json> found;
        const Json trace = Json::parse(out.str());
        for (const Json& event : trace.at("traceEvents"))
            if (event.at("ph") == ph) found.push_back(event);
        return found;
    }
    // "→ exit code, and what is said"
    std::pair<int, std::string> traced_to(const std::string& path) const {
        ReportOptions options;
        options.places.paths = {folder};
        options.trace = path;
        testing::internal::CaptureStderr();
        const int code = show_report(options);
        return {code, testing::internal::GetCapturedStderr()};
    }
    std::pair<int, std::string> traced_where_it_does_not_fit(const std::string& path) const {
        rlimit before{};
        EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
        rlimit small = before;
        small.rlim_cur = 100;
        const auto signal_before = std::signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &small);
        const auto traced = traced_to(path);
        setrlimit(RLIMIT_FSIZE, &before);
        (void)std::signal(SIGXFSZ, signal_before);
        return traced;
    }
    std::vector<std::string> files() const {
        std::vector<std::string> names;
        for (const auto& one : std::filesystem::directory_iterator(folder))
            names.push_back(one.path().filename());
        std::ranges::sort(names);
        return names;
    }
    void write(const std::string& name, const std::string& text) const {
        std::ofstream(folder + "/" + name) << text;
    }
    std::string text_of(const std::string& name) const {
        std::ifstream file(folder + "/" + name);
        return {std::istreambuf_iterator<char>(file), {}};
    }

 private:
    static void fill(record::Sample& sample, uint32_t compute_ms, uint32_t communication_ms) {
        sample.add_compute_ms(500);
        sample.set_node_memory_mib(321);
        add_detail(sample, 0, 500, 0,
                   {{kCommunication, 10}, {kCompute, compute_ms}, {kCommunication, communication_ms}});
    }
};

TEST_F(TraceTest, APhaseIsASlice) {
    std::vector<Json> slices = events("X");
    std::erase_if(slices,
                  [](const Json& slice) { return slice.at("cat") != "phase" || slice.at("pid") != 1; });
    ASSERT_EQ(slices.size(), 6u);
    EXPECT_EQ(slices[1], Json::parse(R"({"ph": "X", "name": "compute", "cat": "phase", "pid": 1, "tid": 0,
        "ts": 510000, "dur": 100000, "args": {"step": 1, "rank": 0}})"));
}

TEST_F(TraceTest, AnArrowComesFromTheRankThatWasWaitedFor) {
    const auto begun = events("s"), ended = events("f");
    ASSERT_EQ(begun.size(), 2u);
    ASSERT_EQ(ended.size(), 2u);
    EXPECT_EQ(begun[0],
              Json::parse(R"({"name": "waited for", "cat": "wait", "id": 1, "ph": "s", "pid": 2, "tid": 0,
        "ts": 790000})"));
    EXPECT_EQ(ended[0],
              Json::parse(R"({"name": "waited for", "cat": "wait", "id": 1, "ph": "f", "bp": "e", "pid": 1,
        "tid": 0, "ts": 809999})"));
}

TEST_F(TraceTest, StartsRestartsAndHangsAreOneAfterTheOther) {
    std::vector<std::string> lives;
    for (const Json& slice : events("X"))
        if (slice.at("cat") == "life" && slice.at("pid") == 1)
            lives.push_back(slice.at("name").get<std::string>() + " " + slice.at("ts").dump() + " " +
                            slice.at("dur").dump());
    EXPECT_EQ(lives, (std::vector<std::string>{"start 0 500000", "hang 500000 100000",
                                               "restart 2000000 500000", "hang 2500000 2500000"}));
}

TEST_F(TraceTest, NoSliceOverlapsAnotherOfItsThread) {
    std::map<std::pair<int, int>, int64_t> ends;
    for (const Json& slice : events("X")) {
        int64_t& end = ends[{slice.at("pid"), slice.at("tid")}];
        EXPECT_GE(slice.at("ts").get<int64_t>(), end) << slice;
        EXPECT_GT(slice.at("dur").get<int64_t>(), 0) << slice;
        end = slice.at("ts").get<int64_t>() + slice.at("dur").get<int64_t>();
    }
    EXPECT_EQ(ends.size(), 4u) << "two threads of each task";
}

TEST_F(TraceTest, NodesAndThreadsHaveNamesMemoryAndWhatTheUserWasTold) {
    std::vector<std::string> names;
    for (const Json& name : events("M"))
        if (name.at("args").contains("name")) names.push_back(name.at("args").at("name"));
    EXPECT_EQ(names, (std::vector<std::string>{"step 12.0, node0", "rank 0", "rank 0: starts, hangs",
                                               "step 12.0, node1", "rank 1", "rank 1: starts, hangs"}));
    const auto counters = events("C");
    ASSERT_FALSE(counters.empty());
    EXPECT_EQ(counters[0].at("name"), "memory MiB");
    EXPECT_EQ(counters[0].at("args"), Json({{"value", 321.0}}));
    const auto told = events("i");
    ASSERT_EQ(told.size(), 1u);
    EXPECT_EQ(told[0].at("pid"), 1);
    EXPECT_EQ(told[0].at("ts"), 1'500'000);
    EXPECT_EQ(told[0].at("name"), "rank 1 is \"slow\"?</script>");
}

TEST_F(TraceTest, WhatIsMissingIsSaid) {
    std::filesystem::remove(folder + "/node1.dprecord");
    const auto [code, said] = traced_to(folder + "/trace.json");
    EXPECT_EQ(code, 0);
    EXPECT_NE(said.find("the records of 1 of 2 nodes are missing"), std::string::npos) << said;
    EXPECT_TRUE(Json::parse(std::ifstream(folder + "/trace.json")).contains("traceEvents"));
}

TEST_F(TraceTest, WhereNothingCanBeWrittenThePathAndTheReasonAreSaid) {
    EXPECT_EQ(traced_to(folder + "/nowhere/trace.json"),
              std::pair(1, "dpctl: " + folder + "/nowhere/trace.json: No such file or directory\n"));
    EXPECT_EQ(traced_to("/dev/full"),
              std::pair(1, std::string("dpctl: /dev/full: No space left on device\n")));
    EXPECT_TRUE(std::filesystem::exists("/dev/full"));
}

TEST_F(TraceTest, NoHalfFileIsLeft) {
    const auto traced = traced_where_it_does_not_fit(folder + "/trace.json");
    EXPECT_EQ(traced, std::pair(1, "dpctl: " + folder + "/trace.json: File too large\n"));
    EXPECT_EQ(files(), (std::vector<std::string>{"node0.dprecord", "node1.dprecord"}));
}

TEST_F(TraceTest, WhatIsThereStaysUntilTheWholeTraceIsWritten) {
    write("trace.json", "an older one");
    EXPECT_EQ(traced_where_it_does_not_fit(folder + "/trace.json").first, 1);
    EXPECT_EQ(text_of("trace.json"), "an older one");
    EXPECT_EQ(files().size(), 3u);
    EXPECT_EQ(traced_to(folder + "/trace.json").first, 0);
    EXPECT_TRUE(Json::accept(text_of("trace.json")));
    EXPECT_EQ(files().size(), 3u);
}

TEST_F(TraceTest, AFileThatIsReplacedKeepsItsRightsAndALinkToItLeadsThere) {
    std::filesystem::create_directory(folder + "/elsewhere");
    write("elsewhere/trace.json", "an older one");
    ASSERT_EQ(chmod((folder + "/elsewhere/trace.json").c_str(), 0604), 0);
    std::filesystem::create_symlink("elsewhere/trace.json", folder + "/link.json");
    EXPECT_EQ(traced_to(folder + "/link.json").first, 0);
    EXPECT_TRUE(std::filesystem::is_symlink(folder + "/link.json"));
    EXPECT_TRUE(Json::accept(text_of("elsewhere/trace.json")));
    struct stat now {};
    ASSERT_EQ(stat((folder + "/elsewhere/trace.json").c_str(), &now), 0);
    EXPECT_EQ(now.st_mode & 07777, 0604u);
}

TEST_F(TraceTest, AFileThatIsReplacedKeepsItsGroup) {
    if (getuid() != 0) GTEST_SKIP() << "only root may give a file to any group";
    write("trace.json", "an older one");
    const std::string file = folder + "/trace.json";
    ASSERT_EQ(chown(file.c_str(), 0, 1), 0);
    ASSERT_EQ(chmod(file.c_str(), 0640), 0);
    EXPECT_EQ(traced_to(file).first, 0);
    struct stat now {};
    ASSERT_EQ(stat(file.c_str(), &now), 0);
    EXPECT_EQ(now.st_gid, 1u);
    EXPECT_EQ(now.st_mode & 07777, 0640u);
}

TEST_F(TraceTest, ALinkThatLeadsNowhereYetIsKept) {
    std::filesystem::create_symlink("later.json", folder + "/link.json");
    EXPECT_EQ(traced_to(folder + "/link.json").first, 0);
    EXPECT_TRUE(std::filesystem::is_symlink(folder + "/link.json"));
    EXPECT_TRUE(Json::accept(text_of("later.json")));
}

TEST_F(TraceTest, ANewFileHasTheRightsThatTheUmaskLeaves) {
    const mode_t before = umask(027);
    EXPECT_EQ(traced_to(folder + "/trace.json").first, 0);
    umask(before);
    struct stat now {};
    ASSERT_EQ(stat((folder + "/trace.json").c_str(), &now), 0);
    EXPECT_EQ(now.st_mode & 07777, 0640u);
}

TEST_F(TraceTest, AFileThatMayNotBeWrittenIsNotReplaced) {
    if (getuid() == 0) GTEST_SKIP() << "root may write to every file";
    write("trace.json", "an older one");
    ASSERT_EQ(chmod((folder + "/trace.json").c_str(), 0400), 0);
    EXPECT_EQ(traced_to(folder + "/trace.json"),
              std::pair(1, "dpctl: " + folder + "/trace.json: Permission denied\n"));
    EXPECT_EQ(text_of("trace.json"), "an older one");
}

// As the shell's > leaves it: whoever holds it open would never see another one in its place.
TEST_F(TraceTest, AnOpenFileIsWrittenToAndNotReplaced) {
    const std::string out = folder + "/out";
    const int file = open(out.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ASSERT_GE(file, 0);
    EXPECT_EQ(traced_to("/dev/fd/" + std::to_string(file)).first, 0);
    struct stat held {
    }, named{};
    ASSERT_EQ(fstat(file, &held), 0);
    ASSERT_EQ(stat(out.c_str(), &named), 0);
    close(file);
    EXPECT_EQ(held.st_ino, named.st_ino);
    EXPECT_TRUE(Json::accept(text_of("out")));
    EXPECT_EQ(files().size(), 3u);
}

TEST_F(TraceTest, ARecordThatHasGoneEndsTheTrace) {
    const Report read = report();
    std::filesystem::remove(folder + "/node1.dprecord");
    std::ostringstream out;
    const auto written = write_trace(read, out);
    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().message, folder + "/node1.dprecord: No such file or directory");
    EXPECT_FALSE(Json::accept(out.str())) << "nobody takes it for a whole one";
}

}  // namespace
}  // namespace dp
