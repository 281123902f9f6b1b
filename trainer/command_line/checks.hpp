// SPDX-License-Identifier: Apache-2.0
//
// What the values of options must be. A message says what was given and what is allowed; options.cpp and the
// verbs with options of their own add these to theirs.
#ifndef TRAINER_COMMAND_LINE_CHECKS_HPP
#define TRAINER_COMMAND_LINE_CHECKS_HPP

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace dp::trainer {

// A whole number in [low, high].
CLI::Validator whole(std::int64_t low, std::int64_t high);

// A number in [low, high).
CLI::Validator number(double low, double high, const char* such_as);

// A number above 0.
CLI::Validator positive();

// The same of what is computed with in 32 bits: neither 0 nor infinite there.
CLI::Validator positive_in_32_bits();

// A size such as 1500000, 512MiB or 2G; units are powers of 1024, as Slurm's. The option gets it in bytes.
CLI::Validator size_in_bytes();

// Makes it an option that takes one of a few words.
CLI::Option* one_of(CLI::Option* option, const std::vector<std::string>& words);

}  // namespace dp::trainer

#endif
