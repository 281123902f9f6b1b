// SPDX-License-Identifier: Apache-2.0
//
// `dpctl collect` without Slurm: what nodes send is taken whole or not at all, and in which job they are asked.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/text.hpp"
#include "dpctl/collect_srun.hpp"
#include "dpctl/collected_records.hpp"
#include "dpctl/record_lines.hpp"

namespace dp {
namespace {

namespace fs = std::filesystem;
using Kind = RecordLine::Kind;
constexpr const char* kName = "12.0-0123456789abcdef-node01.dprecord";

std::string all_bytes(size_t size) {
    std::string bytes(size, '\0');
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 7 + i / 256);
    return bytes;
}

TEST(RecordLines, AnyBytesComeBackFromLinesThatSlurmKeepsWhole) {
    const std::string node(200, 'n');
    for (const std::string& bytes :
         {std::string(), std::string("\\\n\\"), all_bytes(5000), std::string(3000, '\n')}) {
        std::string lines = text_of({node, Kind::data, bytes});
        ASSERT_EQ(lines.back(), '\n');
        lines.pop_back();
        std::string back;
        for (std::string_view line : split(lines, '\n')) {
            EXPECT_LT(line.size() + 1, kMaxRecordLine);
            const auto read = read_record_line(line);
            ASSERT_TRUE(read);
            EXPECT_EQ(read->node, node);
            EXPECT_EQ(read->kind, Kind::data);
            back += read->text;
        }
        EXPECT_EQ(back, bytes);
    }
}

TEST(RecordLines, AnythingElseIsNotTheirs) {
    for (const char* line :
         {"", "srun: error: node01: task 0: Killed", "dpctl-collect ", "dpctl-collect node01",
          "dpctl-collect node01 files 1", "dpctl-collect  file a 1", "dpctl-collect node01 data a\\",
          "dpctl-collect node01 data \\x", "xdpctl-collect node01 end "})
        EXPECT_FALSE(read_record_line(line)) << line;
    for (const char* text : {"", "a", "a ", "a -1", "a 1 2", " 1", "a 99999999999999999999"})
        EXPECT_FALSE(read_sent_file(text)) << text;
    EXPECT_EQ(read_sent_file("a 18446744073709551615"), (SentFile{"a", UINT64_MAX}));
}

TEST(RecordLines, ANameIsThatOfARecordOrRefused) {
    const struct {
        const char *name, *node;
        bool is_one;
    } cases[] = {
        {kName, "node01", true},
        {"12.4294967295-0123456789abcdef-a-b.dprecord", "a-b", true},
        {"12.0+3-0123456789abcdef-node01.dprecord", "node01", true},
        {"12.0+-0123456789abcdef-node01.dprecord", "node01", false},
        {"12.0+x-0123456789abcdef-node01.dprecord", "node01", false},
        {"12.0-0123456789abcdef-a-b.dprecord", "b", false},
        {"12.0-0123456789abcdef-node01.dprecord", "node02", false},
        {"13.0-0123456789abcdef-node01.dprecord", "node01", false},
        {"12.0-0123456789ABCDEF-node01.dprecord", "node01", false},
        {"12.0-0123456789abcdef-node01.dprecord.x", "node01", false},
        {"12.x-0123456789abcdef-node01.dprecord", "node01", false},
        {"12.-0123456789abcdef-node01.dprecord", "node01", false},
        {"12.0-0123-node01.dprecord", "node01", false},
        {"../12.0-0123456789abcdef-node01.dprecord", "node01", false},
        {"12.0-0123456789abcdef-/x.dprecord", "/x", false},
        {"12.0-0123456789abcdef-.dprecord", "", false},
        {"launch-0123456789abcdef-node01.dprecord", "node01", false},
        {".dprecord", "", false},
    };
    for (const auto& c : cases) EXPECT_EQ(is_record_of(c.name, 12, c.node), c.is_one) << c.name;
}

class CollectedRecordsTest : public testing::Test {
 protected:
    void SetUp() override {
        std::string name = (fs::temp_directory_path() / "dp-collect-XXXXXX").string();
        folder_ = mkdtemp(name.data());
        to_ = folder_ + "/to";
        open();
    }
    void TearDown() override {
        records_.reset();
        fs::remove_all(folder_);
    }
    void open() {
        records_.reset();
        records_ = std::move(*CollectedRecords::into(to_, 12, {"node01", "node02"}));
    }
    bool take(Kind kind, const std::string& text, const std::string& node = "node01") {
        return records_->take({node, kind, text}).value_or(false);
    }
    void send(const std::string& bytes) {
        take(Kind::file, text_of(SentFile{kName, bytes.size()}));
        take(Kind::data, bytes);
    }
    std::string only_problem() const {
        return records_->problems().size() == 1 ? records_->problems().begin()->first : "";
    }
    std::string there() const {
        std::ifstream file(to_ + "/" + kName, std::ios::binary);
        std::stringstream text;
        text << file.rdbuf();
        return file ? text.str() : "(none)";
    }
    void put(const std::string& bytes) { std::ofstream(to_ + "/" + kName, std::ios::binary) << bytes; }

    std::string folder_, to_;
    std::unique_ptr<CollectedRecords> records_;
};

TEST_F(CollectedRecordsTest, ARecordIsThereOnceItIsWhole) {
    take(Kind::file, text_of(SentFile{kName, 6}));
    take(Kind::data, "abc");
    EXPECT_EQ(there(), "(none)");
    take(Kind::data, "def");
    EXPECT_EQ(there(), "abcdef");
    take(Kind::end, "");
    EXPECT_EQ(records_->senders(), std::vector<std::string>{"node01"});
    EXPECT_EQ(records_->unfinished(), std::vector<std::string>{"node02"});
    records_.reset();
    EXPECT_EQ(std::distance(fs::directory_iterator(to_), fs::directory_iterator()), 1);
}

TEST_F(CollectedRecordsTest, WhatIsNotWholeIsGone) {
    take(Kind::file, text_of(SentFile{kName, 6}));
    take(Kind::data, "abc");
    take(Kind::problem, "became shorter");
    take(Kind::data, "def");
    EXPECT_EQ(there(), "(none)");
    EXPECT_EQ(only_problem(), "became shorter");
    take(Kind::file, text_of(SentFile{kName, 2}));
    take(Kind::data, "too much");
    EXPECT_EQ(there(), "(none)");
    records_.reset();
    EXPECT_FALSE(fs::exists(to_)) << "nothing came into a directory that it made";
}

TEST_F(CollectedRecordsTest, OnlyARecordThatGrewReplacesAFile) {
    const struct {
        const char *here, *come, *then;
        bool is_problem;
    } cases[] = {
        {"abc", "abcdef", "abcdef", false}, {"abcdef", "abc", "abcdef", false},
        {"abc", "abc", "abc", false},       {"", "abc", "abc", false},
        {"abc", "", "abc", false},          {"xbc", "abcdef", "xbc", true},
    };
    for (const auto& c : cases) {
        open();
        put(c.here);
        send(c.come);
        EXPECT_EQ(there(), c.then);
        EXPECT_EQ(only_problem().find("is there with other bytes") != std::string::npos, c.is_problem)
            << c.come;
    }
    const std::string large = all_bytes(200000);
    put(large.substr(0, 65536));
    send(large);
    EXPECT_EQ(there(), large);
}

TEST_F(CollectedRecordsTest, NothingIsWrittenThroughWhatIsThere) {
    std::ofstream(folder_ + "/mine") << "";
    fs::create_symlink(folder_ + "/mine", to_ + "/" + kName);
    send("abc");
    EXPECT_NE(only_problem().find("stays as it is"), std::string::npos);
    EXPECT_EQ(fs::file_size(folder_ + "/mine"), 0u);
    fs::remove(to_ + "/" + kName);
    ASSERT_EQ(mkfifo((to_ + "/" + kName).c_str(), 0600), 0);
    send("abc");
    EXPECT_TRUE(fs::is_fifo(to_ + "/" + kName));
}

TEST_F(CollectedRecordsTest, ANodeNamesOnlyItsOwnRecords) {
    for (const char* name :
         {"../12.0-0123456789abcdef-node01.dprecord", "/etc/passwd", ".bashrc",
          "12.0-0123456789abcdef-node02.dprecord", "99.0-0123456789abcdef-node01.dprecord"}) {
        open();
        take(Kind::file, text_of(SentFile{name, 3}));
        take(Kind::data, "abc");
        EXPECT_NE(only_problem().find("which is no record of this job and node"), std::string::npos) << name;
        EXPECT_EQ(records_->records(), 0u);
    }
    EXPECT_FALSE(take(Kind::end, "", "node03"));
    EXPECT_FALSE(fs::exists(folder_ + "/12.0-0123456789abcdef-node01.dprecord"));
}

TEST_F(CollectedRecordsTest, ProblemsNameTheNodesInTheirOrderAndOnce) {
    for (const char* node : {"node02", "node01", "node02"}) take(Kind::problem, "no such directory", node);
    const std::map<std::string, std::vector<std::string>> expected{
        {"no such directory", {"node01", "node02"}}};
    EXPECT_EQ(records_->problems(), expected);
}

TEST(CollectedRecords, APlaceThatCannotBeIsNamed) {
    EXPECT_EQ(CollectedRecords::into("/proc/x", 12, {}).error().message,
              "/proc/x: No such file or directory");
    EXPECT_EQ(CollectedRecords::into("/etc/passwd", 12, {}).error().message, "/etc/passwd: Not a directory");
}

TEST(CollectSrun, AJobIsFoundAmongItsOthers) {
    const std::string text = "14|PENDING|alice|\n13|COMPLETED|alice|node01\n12|RUNNING|alice|node[01-02]\n";
    EXPECT_EQ(read_squeue(text, 12), (SlurmJob{12, "RUNNING", "alice", "node[01-02]"}));
    EXPECT_EQ(read_squeue(text, 14), (SlurmJob{14, "PENDING", "alice", ""}));
    for (const char* none : {"", "slurm_load_jobs error: Invalid job id specified\n", "12|RUNNING\n"})
        EXPECT_FALSE(read_squeue(none, 12)) << none;
}

TEST(CollectSrun, NodesAreAskedInAJobThatRuns) {
    const auto job = [](uint32_t id, const char* state) {
        return SlurmJob{id, state, "alice", "node[01-02]"};
    };
    EXPECT_EQ(job_to_ask(12, job(12, "RUNNING"), job(20, "RUNNING"), "alice")->id, 12u);
    EXPECT_EQ(job_to_ask(12, job(12, "COMPLETED"), job(20, "RUNNING"), "alice")->id, 20u);
    EXPECT_EQ(job_to_ask(12, std::nullopt, job(20, "RUNNING"), "alice")->id, 20u);
    const struct {
        std::optional<SlurmJob> known;
        const char *user, *why;
    } cases[] = {
        {job(12, "FAILED"), "alice",
         "job 12 is over (FAILED); for its records allocate its nodes again: salloc --nodelist=node[01-02] "
         "dpctl collect --job 12 ..."},
        {std::nullopt, "alice",
         "Slurm does not know job 12 (any more); for its records allocate its nodes again: salloc "
         "--nodelist=NODES dpctl collect --job 12 ..."},
        {job(12, "PENDING"), "alice", "job 12 has not begun (PENDING)"},
        {job(12, "SUSPENDED"), "alice", "job 12 is suspended, and no step can run in it until it is resumed"},
        {job(12, "RUNNING"), "bob", "job 12 is alice's, who alone can start a step in it"},
    };
    for (const auto& c : cases) {
        const auto asked = job_to_ask(12, c.known, std::nullopt, c.user);
        EXPECT_EQ(asked ? "" : asked.error().message, c.why);
    }
}

TEST(CollectSrun, ItsSrunInheritsNoOption) {
    const char* const environment[] = {"PATH=/bin",
                                       "SLURM_DP_WORLD=auto",
                                       "SLURM_JOB_ID=12",
                                       "SLURM_CONF=/etc/x",
                                       "SRUN_CPUS_PER_TASK=4",
                                       "SLURM_JWT=x",
                                       "_SLURM_SPANK_OPTION_dp_dp_world=auto",
                                       "SPANK_DP=1",
                                       "HOME=/home/alice",
                                       nullptr};
    EXPECT_EQ(
        environment_for_srun(environment),
        (std::vector<std::string>{"PATH=/bin", "SLURM_CONF=/etc/x", "SLURM_JWT=x", "HOME=/home/alice"}));
}

}  // namespace
}  // namespace dp
