// SPDX-License-Identifier: Apache-2.0
//
// The options of `trainer prepare`: see options.hpp.
#include "trainer/commands/prepare_options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "trainer/command_line/checks.hpp"
#include "trainer/prepare/sources.hpp"

namespace dp::trainer {
namespace {

// What is allowed stands in the help's own words.
CLI::Validator quiet(CLI::Validator validator) {
    return validator.description("");
}

}  // namespace

void add_prepare_options(CLI::App& verb, PrepareOptions& options) {
    std::vector<std::string> names, rows;
    for (const Source& source : kSources) {
        names.emplace_back(source.name);
        rows.push_back(fmt::format("  {:<15} {:<40} {}", source.name, source.what, how_to_fetch(source)));
    }
    verb.footer(
        fmt::format("Each set is fetched by one command, by `prepare` itself where npm and a network are, "
                    "else by you, and\n"
                    "checked by its SHA-256:\n{}\n"
                    "GPT-2's tokens need {}, too. Where several ranks do this at the same time, one of\n"
                    "them works and the others wait.",
                    fmt::join(rows, "\n"), how_to_fetch(kGpt2Merges)));
    auto* data = one_of(verb.add_option("--data", options.data, "which data set (default: sotu)"), names);
    verb.add_option("--text", options.text,
                    "your own text instead: files, or directories of *.txt; each is a document")
        ->check(quiet(CLI::ExistingPath))
        ->excludes(data)
        ->type_name("FILE...");
    verb.add_option("--output", options.output, "the directory to make, for --data-dir")
        ->required()
        ->type_name("DIR");
    verb.add_option("--from", options.from, "where the fetched files are; without it npm is called")
        ->check(quiet(CLI::ExistingDirectory))
        ->type_name("DIR");
    one_of(verb.add_option("--tokenizer", options.tokenizer,
                           "of text: GPT-2's byte pairs (50257 tokens), or bytes (257) (default: gpt2)"),
           {"gpt2", "bytes"});
    verb.add_option("--validation", options.validation,
                    "the part of a text's tokens that is kept for the test (default: 0.05)")
        ->check(number(0.0001, 1, "0.05"))
        ->type_name("X");
}

}  // namespace dp::trainer
