// SPDX-License-Identifier: Apache-2.0
//
// `--profile`: makes the profile of a training that has ended, and writes it. run.cpp calls it; trainer/profile has what it consists
// of.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "trainer/base/ranks.hpp"
#include "trainer/commands/preparation.hpp"
#include "trainer/profile/profile.hpp"

namespace dp::trainer {

// Nothing is left of the check. Without a value there is nothing to check.
Result<void> profile_can_be_written(const std::optional<std::filesystem::path>& where);

// What the device reaches, measured now; nullopt: there is no memory for that. Every rank calls.
std::optional<Peaks> peaks_here(Device& device, const Options& options, const LaunchContext& here);

struct ProfiledRun {
    const Prepared& prepared;
    const LaunchContext& here;
    Ranks ranks;
    std::string what;            // is trained, for people
    std::optional<Peaks> peaks;  // as `trainer compile` measured them; else they are measured now
};

// Measures peaks, and tries what may be faster. Every rank calls, whatever it has recorded: so each has the neighbours that it had in
// training. Nothing here is a reason for a training to fail.
Profile make_profile(const ProfileRecorder& recorder, const ProfiledRun& run);

// To a file whose name ends in .txt, .json, .html or .trace.json, that form alone; else to a directory, which is made, all four.
// Returns the first file.
Result<std::filesystem::path> write_profile(const std::filesystem::path& where, const Profile& profile,
                                            const ProfileRecorder& recorder, std::int64_t rank);

}  // namespace dp::trainer
