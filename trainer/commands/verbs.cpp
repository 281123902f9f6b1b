// SPDX-License-Identifier: Apache-2.0
#include "trainer/commands/verbs.hpp"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <string>

#include "trainer/command_line/checks.hpp"
#include "trainer/commands/generate.hpp"
#include "trainer/commands/measure.hpp"
#include "trainer/commands/report_runs.hpp"

namespace dp::trainer {

void add_generate_options(CLI::App& verb, GenerateOptions& options) {
    verb.add_option("--checkpoint-dir", options.checkpoint_directory, "where gpt's checkpoints are")
        ->required()
        ->type_name("DIR");
    verb.add_option("--data-dir", options.data_directory,
                    "the directory of `trainer prepare` that it was trained on: its tokenizer")
        ->required()
        ->type_name("DIR");
    verb.add_option("--prompt", options.prompt, "what the text begins with (default: nothing)")
        ->type_name("TEXT");
    verb.add_option("--tokens", options.tokens, "how many to add (default: 100)")
        ->check(whole(1, 1'000'000))
        ->type_name("N");
    verb.add_option("--temperature", options.temperature,
                    "below 1 likelier tokens are taken more often; 0: always the likeliest (default: 1)")
        ->check(number(0, 1000, "0.8"))
        ->type_name("X");
    verb.add_option("--top-k", options.top_k, "take one of the N likeliest only (default: of all)")
        ->check(whole(1, 65536))
        ->type_name("N");
    verb.add_option("--seed", options.seed, "the same text again for the same seed (default: 1)")
        ->check(whole(0, std::numeric_limits<std::int64_t>::max()))
        ->type_name("N");
    const auto choose = [&options](const std::string& name) {
        options.precision = name == name_of(Precision::bf16) ? Precision::bf16 : Precision::fp32;
    };
    one_of(verb.add_option_function<std::string>(
               "--precision", choose,
               "of what flows through the model, whatever it was trained in: fp32, or bf16 to see what that "
               "gives (default: fp32)"),
           {"fp32", "bf16"});
}

void add_measure_options(CLI::App& verb, MeasureOptions& options) {
    verb.add_option("--iterations", options.iterations, "steps to measure (default: 50)")
        ->check(whole(1, 1'000'000))
        ->type_name("N");
    verb.add_option("--warmup", options.warmup, "steps before them that do not count (default: 10)")
        ->check(whole(1, 1'000'000))
        ->type_name("N");
}

void add_report_options(CLI::App& verb, ReportOptions& options) {
    verb.add_option("FILE", options.files, "files of --json, logs of runs, or jobs' outputs (slurm-*.out)")
        ->required()
        ->type_name("");
    auto* csv = verb.add_flag("--csv", options.csv, "print comma-separated values");
    verb.add_flag("--json", options.json, "print an array in JSON")->excludes(csv);
}

}  // namespace dp::trainer
