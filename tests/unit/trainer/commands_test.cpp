// SPDX-License-Identifier: Apache-2.0
//
// `trainer run` and `trainer info` called as main.cpp calls them: what they print.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "idx_files.hpp"
#include "printed.hpp"
#include "scratch.hpp"
#include "trainer/checkpoint/directory.hpp"
#include "trainer/checkpoint/shard.hpp"
#include "trainer/commands/compile.hpp"
#include "trainer/commands/preparation.hpp"
#include "trainer/commands/run.hpp"
#include "trainer/devices/cpu/bf16_products.hpp"
#include "trainer/devices/open.hpp"

namespace dp::trainer {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Eight images, and so many make a step: a step is an epoch.
TEST(RunCommand, MakesTheStepsThatItIsGivenOrSaysBeforehandThatItWillNot) {
    const Scratch directory;
    write_sprites(directory, {0, 5, 1, 7, 9, 2, 3, 4},
                  {'\x50', '\x60', '\x70', '\x7f', '\x11', '\x22', '\x33', '\x44'});
    const std::vector<std::string> train{"--model=ffn", "--data-dir=" + directory.path().string(),
                                         "--device=cpu", "--batch-size=8", "--no-cache"};
    const auto with = [&](std::vector<std::string> words) {
        words.insert(words.begin(), train.begin(), train.end());
        return printed_by(words);
    };
    const std::string alone = with({"--steps=7"});  // of 5 epochs, where nothing is said
    EXPECT_THAT(alone, HasSubstr("\"steps\":7,"));
    EXPECT_THAT(alone, Not(HasSubstr("--epochs")));
    const std::string both = with({"--steps=3", "--epochs=2"});
    EXPECT_THAT(both, HasSubstr("\"steps\":2,"));
    const auto told = both.find("--epochs 2 ends this training after 2 of the 3 steps");
    ASSERT_NE(told, std::string::npos) << both;
    EXPECT_LT(told, both.find("epoch 1/2"));
    const std::string slower = "it computes on fp32 copies, slower than fp32";
    const std::string narrow = with({"--steps=1", "--bf16"});
    EXPECT_EQ(narrow.find(slower) != std::string::npos, bf16_products_here() == Bf16Products::on_copies)
        << narrow;
    EXPECT_THAT(alone, Not(HasSubstr(slower)));
}

// What a person sees of a checkpoint that is passed over.
TEST(RunCommand, SaysWhichCheckpointIsDamaged) {
    const Scratch directory;
    const auto saved = directory / "saved";
    const auto train = [&](const std::string& steps) {
        return printed_by({"--model=linear", "--device=cpu", "--no-cache", "--keep=2",
                           "--checkpoint-dir=" + saved.string(), "--steps=" + steps});
    };
    train("1");
    train("2");
    std::filesystem::resize_file(checkpoint_path(saved, 2) / shard_name(0, 1), 7);
    ::testing::internal::CaptureStderr();
    train("3");
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("step-000000002 is damaged: "));
}

// And so do the others, which prepare in the same way.
TEST(RunCommand, RefusesWhatTheModelCannotBe) {
    const std::pair<std::vector<std::string>, std::string> cases[] = {
        {{"--model=gpt", "--hidden-size=100", "--num-attention-heads=3"},
         "--hidden-size 100 is not a multiple of --num-attention-heads 3; give one that is, such as 102"},
        {{"--model=unet2d", "--num-layers=2"},
         "--num-layers is only for gpt, and this run uses unet2d; leave it out, or give --model=gpt"},
        {{"--model=gpt", "--image-size=256"},
         "--image-size is only for unet2d, and this run uses gpt; leave it out, or give --model=unet2d"},
        {{"--model=linear", "--sgd-momentum=0.5"},
         "--sgd-momentum is only for sgd, and this run uses adam; leave it out, or give --optimizer=sgd"},
    };
    const Scratch cache;
    for (const auto& [words, says] : cases) {
        for (const char* command : {"run", "measure-performance", "compile", "info"}) {
            std::vector<std::string> all{command, "--device=cpu", "--cache-dir=" + cache.path().string()};
            all.insert(all.end(), words.begin(), words.end());
            const Parsed parsed = parse_options(all);
            ASSERT_TRUE(parsed.options) << parsed.text;
            ::testing::internal::CaptureStdout();
            const auto now = std::chrono::steady_clock::now();
            const auto done = parsed.options->command == Command::info      ? info(*parsed.options)
                              : parsed.options->command == Command::compile ? compile(*parsed.options, now)
                                                                            : run(*parsed.options, now);
            ::testing::internal::GetCapturedStdout();
            ASSERT_FALSE(done) << command << ": " << says;
            EXPECT_EQ(done.error().fault, Fault::usage) << command;
            EXPECT_EQ(done.error().message, says) << command;
        }
    }
    Options small =
        completed(*parse_options({"--model=gpt", "--vocab-size=200"}).options, *find_model("gpt"));
    EXPECT_THAT(fit(small, 256).error().message,
                HasSubstr("--vocab-size 200 is smaller than the data's, 256"));
    EXPECT_TRUE(fit(small, 200));
}

TEST(RunCommand, PrintsTheSummaryAlsoWhereAFileHasNoRoom) {
    for (const char* file : {"--json=/dev/full", "--dump-parameters=/dev/full"}) {
        const Parsed parsed =
            parse_options({"--model=linear", "--steps=1", "--device=cpu", "--no-cache", file});
        ASSERT_TRUE(parsed.options) << parsed.text;
        ::testing::internal::CaptureStdout();
        const auto done = run(*parsed.options, std::chrono::steady_clock::now());
        EXPECT_THAT(::testing::internal::GetCapturedStdout(), HasSubstr("\n{\"model\":\"linear\"")) << file;
        ASSERT_FALSE(done) << file;
        EXPECT_THAT(done.error().message, HasSubstr("/dev/full: cannot write: No space left on device"));
    }
}

// What lies in a directory, with sizes.
std::vector<std::string> listing_of(const Scratch& directory) {
    std::vector<std::string> names;
    for (const auto& one : std::filesystem::recursive_directory_iterator(directory.path()))
        names.push_back(one.path().string() +
                        (one.is_regular_file() ? " " + std::to_string(one.file_size()) : ""));
    std::sort(names.begin(), names.end());
    return names;
}

TEST(RunCommand, LeavesNothingWhereItIsRefused) {
    const Scratch directory;
    const auto at = [&](const char* option, const char* name) {
        return option + (directory / name).string();
    };
    const auto run_of = [&](const std::vector<std::string>& more) {
        std::vector<std::string> words{"--model=linear", "--steps=1", "--device=cpu", "--no-cache"};
        words.insert(words.end(), more.begin(), more.end());
        const Parsed parsed = parse_options(words);
        EXPECT_TRUE(parsed.options) << parsed.text;
        ::testing::internal::CaptureStdout();
        const auto done = run(*parsed.options, std::chrono::steady_clock::now());
        ::testing::internal::GetCapturedStdout();
        return done;
    };
    ASSERT_TRUE(run_of({at("--checkpoint-dir=", "saved")}));
    const auto before = listing_of(directory);
    const std::string metrics = at("--metrics=", "m"), board = at("--tensorboard=", "t/b"),
                      saved = at("--checkpoint-dir=", "saved");
    const std::pair<std::vector<std::string>, std::string> refused[] = {
        {{metrics, "--tensorboard=/proc/x"}, "--tensorboard: /proc/x cannot be written: "},
        {{metrics, "--tensorboard=/dev/null"}, "--tensorboard: /dev/null cannot be written: "},
        {{board, "--metrics=/nonexistent/m"}, "--metrics: /nonexistent/m cannot be written: "},
        {{board, metrics, "--json=/nonexistent/x"}, "--json: /nonexistent/x cannot be written: "},
        {{board, "--dump-parameters=/nonexistent/x"},
         "--dump-parameters: /nonexistent/x cannot be written: "},
        {{metrics, board, saved, "--resume=never"}, "--resume=never asks for none"},
        {{metrics, board, saved, "--seed=5"}, "was made with the seed 1; give --seed=1"},
        {{metrics, board, at("--checkpoint-dir=", "d1/d2/d3"), "--resume=must"},
         "--resume=must asks for one"},
        {{metrics, at("--checkpoint-dir=", "d1/d2"), "--tensorboard=/proc/x"}, "--tensorboard: "},
        {{metrics, "--checkpoint-dir=/proc/x"}, "--checkpoint-dir /proc/x: "},
        {{metrics, "--checkpoint-dir=/proc"}, "--checkpoint-dir /proc: /proc/.training: cannot write: "},
        // Refused as late as it can be: there is no room for its first line.
        {{at("--checkpoint-dir=", "d1/d2"), "--metrics=/dev/full"},
         "--metrics: /dev/full cannot be written: "},
    };
    for (const auto& [words, says] : refused) {
        const auto done = run_of(words);
        ASSERT_FALSE(done) << says;
        EXPECT_EQ(done.error().fault, Fault::usage) << says;
        EXPECT_THAT(done.error().message, HasSubstr(says));
        EXPECT_EQ(listing_of(directory), before) << says;
    }
    ASSERT_TRUE(run_of({metrics, board, at("--checkpoint-dir=", "d1/d2"), "--log-interval=1"}));
    EXPECT_THAT(contents_of(directory / "m"), HasSubstr("\"event\":\"step\""));
    EXPECT_TRUE(std::filesystem::exists(directory / "d1/d2/step-000000001/DONE"));
}

TEST(InfoCommand, HasTheNumbersOfTheModel) {
    const std::string printed = printed_by({"info", "--model=unet2d", "--device=cpu"});
    EXPECT_THAT(printed, HasSubstr("7763041"));
    EXPECT_THAT(printed, HasSubstr("72427."));  // MFLOP, three times the forward pass
}

TEST(InfoCommand, FitsAScreenAndEndsWithALineForPrograms) {
    for (const char* model : {"--model=cnn", "--model=unet2d", "--model=gpt"}) {
        const std::string printed = printed_by({"info", model, "--device=cpu"});
        EXPECT_LE(std::count(printed.begin(), printed.end(), '\n'), 24) << printed;
    }
    const std::string printed = printed_by({"info", "--model=gpt", "--gpt-size=1.5B", "--batch-size=2"});
    EXPECT_LE(std::count(printed.begin(), printed.end(), '\n'), 24) << printed;
    EXPECT_THAT(printed, HasSubstr("h.*.attn.c_attn"));
    const auto json = nlohmann::json::parse(printed.substr(printed.rfind("\n{") + 1));
    EXPECT_EQ(json.at("info"), "gpt");
    EXPECT_EQ(json.at("parameters"), 1'557'611'200);
    EXPECT_EQ(json.at("batch_size"), 2);
    EXPECT_EQ(json.at("parameters_bytes"), 4 * (std::int64_t{1'557'611'200} + 7 * 1600));
}

TEST(InfoCommand, IsOfTheStageThatNeedsMost) {
    const auto bytes_with = [](const std::string& split) {
        const std::string printed =
            printed_by({"info", "--model=gpt", "--num-layers=9", "--vocab-size=64", "--ranks=3",
                        "--pipeline-parallel=3", "--pipeline-split=" + split});
        return nlohmann::json::parse(printed.substr(printed.rfind("\n{") + 1))
            .at("memory_bytes")
            .get<std::int64_t>();
    };
    EXPECT_GT(bytes_with("1,7,1"), 1.5 * bytes_with("3,3,3")) << "the one between first and last";
    EXPECT_GT(bytes_with("7,1,1"), bytes_with("1,7,1")) << "which keeps fewer micro-batches than the first";
}

// What `auto` takes here is asked of the device that it opens.
TEST(InfoCommand, CountsTheCopiesOfBf16ThatARunWouldHave) {
    const auto cuda = open_cuda({});
    const auto memory = [](const std::string& device) {
        const std::string printed = printed_by({"info", "--model=cnn", "--precision=bf16", device});
        const auto at = printed.find("memory, without the data set");
        return printed.substr(at, printed.find('\n', at) - at);
    };
    EXPECT_EQ(memory("--device=auto"), memory(cuda ? "--device=cuda" : "--device=cpu"));
    EXPECT_NE(memory("--device=cpu"), memory("--device=cuda"));
}

// The largest model of the options' limits, with their largest batch.
TEST(InfoCommand, RefusesWhatTakesMoreMemoryThanCanBeCounted) {
    const auto ask = [](const std::string& batch) {
        const Parsed parsed = parse_options(
            {"info", "--model=gpt", "--num-layers=1024", "--hidden-size=65536", "--num-attention-heads=1024",
             "--seq-length=65536", "--vocab-size=65536", "--batch-size=" + batch});
        EXPECT_TRUE(parsed.options) << parsed.text;
        ::testing::internal::CaptureStdout();
        const auto done = info(*parsed.options);
        ::testing::internal::GetCapturedStdout();
        return done;
    };
    const auto refused = ask("1000000");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().fault, Fault::usage);
    EXPECT_THAT(refused.error().message, HasSubstr("--batch-size"));
    EXPECT_TRUE(ask("1"));
}

}  // namespace
}  // namespace dp::trainer
