// SPDX-License-Identifier: Apache-2.0
//
// The cache of `trainer compile`: what is found is what was written, whole and of the same making; anything
// else is not found, and never an error of more than a word.
#include "trainer/compile/cache.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <nlohmann/json.hpp>

#include <atomic>
#include <chrono>
#include <ctime>
#include <numeric>
#include <set>
#include <thread>

#include "scratch.hpp"

namespace dp::trainer {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

CacheKey key(const Facts& what = {{"model", "ffn"}, {"batch", "64"}}, const Facts& from = {{"build", "b1"}}) {
    return {"plan", what, from};
}

std::vector<std::uint8_t> numbers(std::size_t count, std::uint8_t first) {
    std::vector<std::uint8_t> bytes(count);
    std::iota(bytes.begin(), bytes.end(), first);
    return bytes;
}

TEST(CacheKey, NamesAnEntryByWhatWasAskedForAlone) {
    const std::string name = file_name(key());
    EXPECT_EQ(name.size(), std::string("plan-").size() + 64 + std::string(".cache").size());
    EXPECT_EQ(file_name(key({{"batch", "64"}, {"model", "ffn"}})), name) << "the order is no matter";
    EXPECT_EQ(file_name(key({{"model", "ffn"}, {"batch", "64"}}, {{"build", "b2"}})), name)
        << "a newer build's takes its place";
    std::set<std::string> names{name};
    for (const Facts& other :
         {Facts{{"model", "cnn"}, {"batch", "64"}}, Facts{{"model", "ffn"}, {"batch", "65"}},
          Facts{{"model", "ffn"}}, Facts{{"batch", "64;model=3:ffn"}}})
        names.insert(file_name(key(other)));
    names.insert(file_name({"data", key().what, key().from}));
    EXPECT_EQ(names.size(), 6u);
}

TEST(CacheKey, SaysWhichFactsAreOthers) {
    const Facts from{{"build", "b1"}, {"files", "1, 2"}, {"libraries", "x"}};
    EXPECT_EQ(difference(from, from), "");
    EXPECT_EQ(difference(from, {{"build", "b2"}, {"files", "1, 2"}, {"libraries", "x"}}), "build");
    EXPECT_EQ(difference(from, {{"build", "b1"}, {"files", "1, 3"}}), "files, libraries");
    EXPECT_EQ(difference(from, {{"build", "b1"}, {"files", "1, 2"}, {"libraries", "x"}, {"more", "1"}}),
              "more");
    EXPECT_EQ(difference(from, {}), "build, files, libraries");
}

TEST(Entry, ComesBackAsItWasWritten) {
    const Scratch scratch;
    const auto first = numbers(10'000, 3), second = numbers(4096, 9);
    const std::vector<Block> blocks{first, {}, second};
    ASSERT_TRUE(write_entry(scratch / "e", key(), {{"rows", 7}}, blocks));
    const auto entry = open_entry(scratch / "e");
    ASSERT_TRUE(entry) << entry.error().message;
    EXPECT_EQ(entry->key.kind, "plan");
    EXPECT_EQ(entry->key.what, key().what);
    EXPECT_EQ(entry->key.from, key().from);
    EXPECT_EQ(entry->content, (Json{{"rows", 7}}));
    ASSERT_EQ(entry->blocks.size(), 3u);
    EXPECT_EQ(*read_block(*entry, 0), first);
    EXPECT_EQ(*read_block(*entry, 1), std::vector<std::uint8_t>());
    EXPECT_EQ(*read_block(*entry, 2), second);
    EXPECT_EQ(entry->bytes, static_cast<std::int64_t>(std::filesystem::file_size(scratch / "e")));
}

// What a reader of it says; "" where it finds nothing wrong.
std::string problem_of(const std::filesystem::path& file) {
    const auto entry = open_entry(file);
    if (!entry) return entry.error().message;
    for (std::size_t block = 0; block < entry->blocks.size(); ++block) {
        const auto bytes = read_block(*entry, block);
        if (!bytes) return bytes.error().message;
    }
    return "";
}

TEST(Entry, CutAnywhereIsNoEntry) {
    const Scratch scratch;
    const auto bytes = numbers(5000, 1);
    const std::vector<Block> blocks{bytes};
    ASSERT_TRUE(write_entry(scratch / "e", key(), {}, blocks));
    const std::string whole = contents_of(scratch / "e");
    ASSERT_EQ(problem_of(scratch / "e"), "");
    for (const std::size_t length : {std::size_t{0}, std::size_t{5}, std::size_t{23}, std::size_t{24},
                                     std::size_t{100}, std::size_t{4096}, whole.size() - 1})
        EXPECT_EQ(problem_of(scratch.write("cut", whole.substr(0, length))), "cut short") << length;
    EXPECT_EQ(problem_of(scratch.write("long", whole + "x")), "damaged");
}

TEST(Entry, AByteThatIsAnotherIsFoundWhereverItIs) {
    const Scratch scratch;
    const auto bytes = numbers(300, 1);
    const std::vector<Block> blocks{bytes};
    ASSERT_TRUE(write_entry(scratch / "e", key(), {{"a", 1}}, blocks));
    const std::string whole = contents_of(scratch / "e");
    for (std::size_t at = 0; at < whole.size(); ++at) {
        std::string other = whole;
        other[at] = static_cast<char>(other[at] ^ 0x10);
        EXPECT_THAT(problem_of(scratch.write("other", other)),
                    AnyOf("damaged", "cut short", HasSubstr("no entry of this cache")))
            << at;
    }
}

TEST(Cache, KnowsForWhatElseAnEntryWasMade) {
    const Scratch scratch;
    const Cache cache(scratch.path());
    const auto on = [](const std::string& device, const std::string& batch = "64") {
        return key({{"model", "ffn"}, {"batch", batch}, {"device", device}});
    };
    EXPECT_EQ(cache.other_value(on("new"), "device"), std::nullopt) << "there is nothing";
    ASSERT_TRUE(cache.put(on("other", "65"), {}, {}));
    ASSERT_TRUE(cache.put({"data", on("other").what, {}}, {}, {}));
    EXPECT_EQ(cache.other_value(on("new"), "device"), std::nullopt) << "more than the device is another";
    ASSERT_TRUE(cache.put(on("newer"), {}, {}));
    ASSERT_TRUE(cache.put(on("older"), {}, {}));
    const auto used = std::filesystem::last_write_time(scratch / file_name(on("newer")));
    std::filesystem::last_write_time(scratch / file_name(on("older")), used - std::chrono::seconds(9));
    scratch.write(file_name(on("damaged")), "no entry");
    EXPECT_EQ(cache.other_value(on("new"), "device"), "newer") << "the one that was used last";
    EXPECT_EQ(cache.other_value(on("older"), "device"), "newer");
}

TEST(Cache, FindsWhatWasPutThereAndOfTheSameMakingAlone) {
    const Scratch scratch;
    const Cache cache(scratch / "new/cache");
    EXPECT_FALSE(cache.find(key()).entry);
    EXPECT_EQ(cache.find(key()).why_not, "") << "where there is nothing, nothing is to be said";
    {
        const auto opened = cache.open_for_writing();
        ASSERT_TRUE(opened);
        ASSERT_TRUE(cache.put(key(), {{"n", 1}}, {}));
    }
    ASSERT_TRUE(cache.find(key()).entry);
    EXPECT_EQ(cache.find(key()).entry->content, (Json{{"n", 1}}));
    EXPECT_GT(cache.bytes(), 0);
    // Stale: not found, and made again in the same place.
    const CacheKey newer = key(key().what, {{"build", "b2"}});
    EXPECT_FALSE(cache.find(newer).entry);
    EXPECT_EQ(cache.find(newer).why_not, "stale (build)");
    const std::int64_t bytes = cache.bytes();
    ASSERT_TRUE(cache.put(newer, {{"n", 2}}, {}));
    EXPECT_TRUE(cache.find(newer).entry);
    EXPECT_EQ(cache.find(key()).why_not, "stale (build)");
    EXPECT_EQ(cache.bytes(), bytes);
    // Foreign: under the right name, but about something else, or no entry at all.
    const CacheKey other = key({{"model", "cnn"}});
    std::filesystem::copy_file(cache.directory() / file_name(newer), cache.directory() / file_name(other));
    EXPECT_EQ(cache.find(other).why_not, "made for something else");
    scratch.write("new/cache/" + file_name(other), std::string(200, 'x'));
    EXPECT_THAT(cache.find(other).why_not, HasSubstr("no entry of this cache"));
    EXPECT_TRUE(cache.put(other, {}, {}));
    EXPECT_TRUE(cache.find(other).entry);
    // What cannot be read.
    const CacheKey third = key({{"model", "gpt"}});
    std::filesystem::create_directory(cache.directory() / file_name(third));
    EXPECT_EQ(cache.find(third).why_not, "Is a directory");
}

// As ranks of several nodes do in a shared home.
TEST(Cache, WritersAndReadersAtTheSameTimeNeverSeeHalfAnEntry) {
    const Scratch scratch;
    const Cache cache(scratch.path());
    std::atomic<bool> go_on = true;
    std::atomic<int> found = 0, torn = 0;
    std::vector<std::thread> threads;
    for (std::uint8_t writer = 1; writer <= 3; ++writer) {
        threads.emplace_back([&, writer] {
            const std::vector<std::uint8_t> bytes(200'000, writer);
            const std::vector<Block> blocks{bytes};
            for (int i = 0; i < 10; ++i) EXPECT_TRUE(cache.put(key(), {{"writer", writer}}, blocks));
            if (writer == 1) go_on = false;
        });
    }
    while (go_on) {
        const auto lookup = cache.find(key());
        if (!lookup.entry) {
            torn += lookup.why_not.empty() ? 0 : 1;
            continue;
        }
        ++found;
        const auto bytes = read_block(*lookup.entry, 0);
        const auto writer = lookup.entry->content.at("writer").get<std::uint8_t>();
        torn += bytes && *bytes == std::vector<std::uint8_t>(200'000, writer) ? 0 : 1;
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(torn, 0);
    EXPECT_TRUE(cache.find(key()).entry);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch.path()), {}), 1)
        << "nothing unfinished is left";
}

TEST(Cache, WhereNothingCanBeWrittenOneLineSaysSo) {
    const Scratch scratch;
    const Cache cache(scratch.write("file", "") / "below");
    const auto opened = cache.open_for_writing();
    const std::string line = refusal_of(opened);
    EXPECT_THAT(line, HasSubstr("--cache-dir " + (scratch / "file/below").string() + ": cannot make it"));
    EXPECT_THAT(line, HasSubstr("give a directory that can be written"));
    EXPECT_EQ(opened.error().fault, Fault::usage);
    EXPECT_EQ(cache.find(key()).why_not, "") << "a run does without";
    EXPECT_FALSE(cache.put(key(), {}, {}));
}

TEST(Cache, WhatWritersThatDiedHaveLeftGoesAfterADay) {
    const Scratch scratch;
    const auto old = scratch.write(".0123456789abcdef.part", "half"),
               fresh = scratch.write(".0123456789abcde0.part", "half");
    std::vector<std::filesystem::path> strange;
    for (const char* name : {"notes.part", ".film.mkv.part", ".0123.part", ".0123456789abcdef0.part"})
        strange.push_back(scratch.write(name, "somebody's"));
    const auto two_days_ago = std::filesystem::file_time_type::clock::now() - std::chrono::hours(48);
    std::filesystem::last_write_time(old, two_days_ago);
    for (const auto& file : strange) std::filesystem::last_write_time(file, two_days_ago);
    ASSERT_TRUE(Cache(scratch.path()).open_for_writing());
    EXPECT_FALSE(std::filesystem::exists(old));
    EXPECT_TRUE(std::filesystem::exists(fresh));
    for (const auto& file : strange) EXPECT_TRUE(std::filesystem::exists(file)) << file;
}

class CachePruning : public ::testing::Test {
 protected:
    // An entry of 4 KiB and more that was used last so many minutes ago.
    CacheKey put(const std::string& model, int minutes) const {
        const CacheKey one = key({{"model", model}});
        EXPECT_TRUE(cache_.put(one, {}, blocks_));
        const timespec used{std::time(nullptr) - minutes * 60, 0}, times[2] = {used, used};
        EXPECT_EQ(utimensat(AT_FDCWD, (scratch_ / file_name(one)).c_str(), times, 0), 0);
        return one;
    }
    bool is_there(const CacheKey& one) const { return std::filesystem::exists(scratch_ / file_name(one)); }

    Scratch scratch_;
    Cache cache_{scratch_.path()};
    std::vector<std::uint8_t> bytes_ = numbers(4096, 0);
    std::vector<Block> blocks_{bytes_};
};

TEST_F(CachePruning, RemovesWhatWasUsedLongestAgoUntilTheRestFits) {
    const CacheKey oldest = put("a", 900), newest = put("b", 70), middle = put("c", 300);
    std::vector<std::filesystem::path> others;
    for (const char* name : {"note.txt", "font.cache", "plan-b.cache"}) {
        others.push_back(scratch_.write(name, std::string(5000, 'x')));
        std::filesystem::last_write_time(
            others.back(), std::filesystem::file_time_type::clock::now() - std::chrono::hours(48));
    }
    const std::int64_t all = cache_.bytes();
    EXPECT_EQ(cache_.prune(all), 0);
    EXPECT_EQ(cache_.prune(all - 1), 1);
    EXPECT_FALSE(is_there(oldest));
    EXPECT_TRUE(is_there(middle));
    EXPECT_LE(cache_.bytes(), all - 1);
    EXPECT_EQ(cache_.prune(1), 2);
    EXPECT_FALSE(is_there(newest));
    EXPECT_EQ(cache_.bytes(), 0);
    for (const auto& file : others) EXPECT_TRUE(std::filesystem::exists(file)) << file << " is no entry";
}

TEST_F(CachePruning, WhatWasFoundIsUsed) {
    const CacheKey first = put("a", 900), second = put("b", 600);
    const auto now = std::time(nullptr);
    const auto written = cache_.find(first).entry->written;
    EXPECT_NEAR(static_cast<double>(written), static_cast<double>(now), 60) << "its file's date is of a use";
    EXPECT_EQ(cache_.find(key(second.what, {{"build", "b2"}})).why_not, "stale (build)") << "no use";
    EXPECT_EQ(cache_.prune(cache_.bytes() - 1), 1);
    EXPECT_TRUE(is_there(first));
    EXPECT_FALSE(is_there(second));
}

TEST_F(CachePruning, LeavesWhatWasUsedWithinTheHour) {
    const CacheKey older = put("a", 61), newer = put("b", 59);
    EXPECT_EQ(cache_.prune(0), 1);
    EXPECT_FALSE(is_there(older));
    EXPECT_TRUE(is_there(newer));
    EXPECT_TRUE(cache_.put(older, {}, blocks_)) << "written counts as used";
    EXPECT_EQ(cache_.prune(0), 0);
    EXPECT_EQ(Cache(scratch_ / "nowhere").prune(0), 0);
}

TEST(CacheDirectory, IsWhereTheEnvironmentHasCaches) {
    EXPECT_EQ(default_cache_directory("/x", "/home/u"), "/x/slurm-dp");
    EXPECT_EQ(default_cache_directory(nullptr, "/home/u"), "/home/u/.cache/slurm-dp");
    EXPECT_EQ(default_cache_directory("", "/home/u"), "/home/u/.cache/slurm-dp");
    EXPECT_EQ(default_cache_directory("relative", "/home/u"), "/home/u/.cache/slurm-dp")
        << "XDG's specification says to ignore it";
    EXPECT_FALSE(default_cache_directory(nullptr, nullptr));
    EXPECT_FALSE(default_cache_directory(nullptr, ""));
}

TEST(AgeText, TakesTheUnitThatSaysMost) {
    EXPECT_EQ(age_text(-5), "0 s");
    EXPECT_EQ(age_text(119), "119 s");
    EXPECT_EQ(age_text(120), "2 min");
    EXPECT_EQ(age_text(7200), "2 h");
    EXPECT_EQ(age_text(47 * 3600), "47 h");
    EXPECT_EQ(age_text(48 * 3600), "2 days");
}

TEST(Build, IsTheSameWithinAProgram) {
    EXPECT_EQ(build_of_this_program(), build_of_this_program());
    EXPECT_THAT(build_of_this_program(), HasSubstr(", build "));
    EXPECT_GT(build_of_this_program().size(), 20u);
}

}  // namespace
}  // namespace dp::trainer
