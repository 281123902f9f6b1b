// SPDX-License-Identifier: Apache-2.0
//
// The job scripts of packaging/examples, run with an srun that writes down what it was told: every word is
// one that the trainer takes, and what the training ends with is what the job ends with.
// tests/cluster/test_examples.py runs them on a real Slurm.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <regex>
#include <sstream>

#include "scratch.hpp"
#include "trainer/commands/preparation.hpp"
#include "trainer/reports/report.hpp"

namespace dp::trainer {
namespace {

using testing::HasSubstr;
using Words = std::vector<std::string>;

const std::filesystem::path kExamples = std::string(DP_TEST_PACKAGING) + "/examples";

Words scripts() {
    Words names;
    for (const auto& entry : std::filesystem::directory_iterator(kExamples)) {
        if (entry.path().extension() == ".sbatch") names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
}

// A directory of programs that stand for Slurm's. srun's is the only one that fails, with `code`, and not in
// a dry run.
class PretendedSlurm {
 public:
    explicit PretendedSlurm(int code) {
        program("srun", fmt::format("case $1 in --dp-dry-run) exit 0 ;; esac\nexit {}", code));
        program("scontrol", "");
        program("dpctl", "");
    }

    // -> the script's exit code.
    int run(const std::string& script, const std::string& words = "", int restarts = 0) {
        const std::string command = fmt::format(
            "cd {0} && env -i PATH={0}/bin:/usr/bin:/bin SLURM_JOB_ID=17 SLURM_CPUS_PER_TASK=3 "
            "SLURM_RESTART_COUNT={1} bash {2} {3} > output 2>&1",
            folder_.path().string(), restarts, (kExamples / script).string(), words);
        const int status = std::system(command.c_str());
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    // The words of each time that the program was called.
    std::vector<Words> calls(const std::string& name) const {
        std::vector<Words> found;
        std::istringstream lines(contents_of(folder_ / (name + ".calls")));
        for (std::string line; std::getline(lines, line);) {
            if (line == "called")
                found.emplace_back();
            else
                found.back().push_back(line);
        }
        return found;
    }
    std::string output() const { return contents_of(folder_ / "output"); }

 private:
    Scratch folder_;

    void program(const std::string& name, const std::string& end) {
        folder_.write("bin/" + name, fmt::format("#!/bin/bash\nprintf '%s\\n' called \"$@\" >>{}\n{}\n",
                                                 (folder_ / (name + ".calls")).string(), end));
        std::filesystem::permissions(folder_ / ("bin/" + name), std::filesystem::perms::owner_all);
    }
};

// What stands behind the trainer's name in the last srun.
Words trainers_words(const PretendedSlurm& slurm) {
    const auto calls = slurm.calls("srun");
    if (calls.empty()) return {"no srun"};
    const auto name = std::find(calls.back().begin(), calls.back().end(), "dp-trainer");
    return name == calls.back().end() ? Words{"no dp-trainer"} : Words(name + 1, calls.back().end());
}

class Example : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Of, Example, testing::ValuesIn(scripts()), [](const auto& script) {
    std::string name = script.param.substr(0, script.param.find('.'));
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
});

TEST_P(Example, GivesTheTrainerWordsThatItTakes) {
    PretendedSlurm slurm(0);
    EXPECT_EQ(slurm.run(GetParam()), 0) << slurm.output();
    const Parsed parsed = parse_options(trainers_words(slurm));
    ASSERT_TRUE(parsed.options) << parsed.text;
    Options options = completed(*parsed.options, *find_model(parsed.options->model));
    EXPECT_TRUE(fit(options, 50257));
    // Slurm 22.05 and later do not tell srun of sbatch's --cpus-per-task by themselves.
    EXPECT_EQ(slurm.calls("srun").back().front(), "--cpus-per-task=3");
}

TEST_P(Example, TakesMoreOptionsBehindItsNameAndTheyWin) {
    PretendedSlurm slurm(0);
    EXPECT_EQ(slurm.run(GetParam(), "--epochs=77 --batch-size=3 --json='a b'"), 0) << slurm.output();
    const Parsed parsed = parse_options(trainers_words(slurm));
    ASSERT_TRUE(parsed.options) << parsed.text;
    EXPECT_EQ(parsed.options->training.epochs, 77);
    EXPECT_EQ(parsed.options->training.batch, 3);
    EXPECT_EQ(parsed.options->output.json, "a b");
}

TEST_P(Example, EndsAsTheTrainingDoes) {
    PretendedSlurm slurm(6);
    EXPECT_EQ(slurm.run(GetParam()), 6) << slurm.output();
    EXPECT_TRUE(slurm.calls("scontrol").empty());
}

TEST_P(Example, SaysInItsFirstLinesHowItIsSubmitted) {
    EXPECT_THAT(contents_of(kExamples / GetParam()), HasSubstr("\n#   sbatch " + GetParam()));
}

// Counted as the command in the README does.
TEST_P(Example, HasAsManyLinesAsTheTableSays) {
    const std::regex counted("^\\s*([^#\\s]|#!|#SBATCH).*");
    std::istringstream script(contents_of(kExamples / GetParam()));
    int lines = 0;
    for (std::string line; std::getline(script, line);) lines += std::regex_match(line, counted) ? 1 : 0;
    const std::string readme = contents_of(kExamples / "README.md");
    const std::regex row("\n\\| `" + GetParam() + "` \\|.*\\| (\\d+) \\|\n");
    std::smatch said;
    ASSERT_TRUE(std::regex_search(readme, said, row));
    EXPECT_EQ(said[1], std::to_string(lines));
}

TEST(Examples, AreThoseOfTheTutorials) {
    EXPECT_EQ(scripts(), (Words{"cyclone-cnn.sbatch", "dawn-linear.sbatch", "dli-gpt.sbatch",
                                "sn10-ffn.sbatch", "sn30-gpt.sbatch", "sn30-unet2d.sbatch"}));
}

TEST(Examples, TheGptThatSavesItselfIsPutIntoTheQueueAgainWhereThatHelps) {
    struct Case {
        int code, restarts;
        bool again;
    };
    for (const auto& [code, restarts, again] :
         {Case{7, 0, true}, Case{7, 19, true}, Case{7, 20, false}, Case{4, 0, true}, Case{137, 0, true},
          Case{143, 0, true}, Case{0, 0, false}, Case{1, 0, false}, Case{2, 0, false}, Case{8, 0, false}}) {
        PretendedSlurm slurm(code);
        EXPECT_EQ(slurm.run("dli-gpt.sbatch", "", restarts), code);
        const auto calls = slurm.calls("scontrol");
        if (again)
            EXPECT_EQ(calls, (std::vector<Words>{{"requeue", "17"}})) << code;
        else
            EXPECT_TRUE(calls.empty()) << code << " after " << restarts;
    }
}

// The tutorial's line of the 100th iteration says 5.822E-05.
TEST(Examples, TheGptOfTheDliTutorialHasItsLearningRate) {
    PretendedSlurm slurm(0);
    ASSERT_EQ(slurm.run("dli-gpt.sbatch"), 0);
    const Parsed parsed = parse_options(trainers_words(slurm));
    ASSERT_TRUE(parsed.options);
    const Settings settings = completed(*parsed.options, *find_model("gpt")).training;
    const auto schedule = make_schedule(settings, 2270, 4);
    ASSERT_TRUE(schedule);
    EXPECT_EQ(schedule->global_batch, 8);
    EXPECT_EQ(schedule->total_steps, 100);
    EXPECT_EQ(settings.constants.beta2, 0.95);
    EXPECT_EQ(fmt::format("{:.3E}", rate_at(settings.rate, 100, schedule->total_steps)), "5.822E-05");
}

// From the tutorial's numbers: tokens per second times seconds, and images per second and
// instance times seconds.
TEST(Examples, ThoseOfTheSn30TutorialAreOfItsSize) {
    PretendedSlurm slurm(0);
    ASSERT_EQ(slurm.run("sn30-gpt.sbatch"), 0);
    const Parsed gpt = parse_options(trainers_words(slurm));
    ASSERT_TRUE(gpt.options);
    Options large = completed(*gpt.options, *find_model("gpt"));
    ASSERT_TRUE(fit(large, 50257));
    EXPECT_EQ(large.shape.gpt.layers, 48);
    EXPECT_EQ(large.shape.gpt.vocabulary, 50260);
    const auto steps = make_schedule(large.training, 2270, 32);
    ASSERT_TRUE(steps);
    EXPECT_NEAR(static_cast<double>(steps->total_steps * steps->global_batch * large.shape.gpt.sequence),
                192467.31088004305 * 2179.2292835712433, 1);
    // Its own run is below its own limit, and all of them are of tokens.
    EXPECT_THAT(throughput_problem(throughput_of(192467.31088004305 / 1024, large.shape.gpt.sequence),
                                   large.output.min_throughput, large.output.max_throughput)
                    .value_or("within"),
                HasSubstr("tokens/s is less than --min-throughput 299000"));
    EXPECT_EQ(large.output.max_throughput, 600000);

    ASSERT_EQ(slurm.run("sn30-unet2d.sbatch"), 0);
    const Parsed unet = parse_options(trainers_words(slurm));
    ASSERT_TRUE(unet.options);
    const auto epochs = make_schedule(completed(*unet.options, *find_model("unet2d")).training,
                                      *unet.options->data.samples, 8);
    ASSERT_TRUE(epochs);
    EXPECT_EQ(epochs->total_steps, 10);
    EXPECT_NEAR(static_cast<double>(epochs->total_steps * epochs->global_batch),
                563.9653143065 * 36.314290046691895, 1);
}

TEST(Examples, TheFfnOfTheSn10TutorialTakesItsVerbs) {
    PretendedSlurm slurm(0);
    ASSERT_EQ(slurm.run("sn10-ffn.sbatch", "measure-performance --iterations=5"), 0);
    EXPECT_THAT(slurm.output(), HasSubstr("Duration: "));
    const Parsed parsed = parse_options(trainers_words(slurm));
    ASSERT_TRUE(parsed.options) << parsed.text;
    EXPECT_EQ(parsed.options->command, Command::measure);
    EXPECT_EQ(parsed.options->device.data_parallel, DataParallel::on);
}

}  // namespace
}  // namespace dp::trainer
