// SPDX-License-Identifier: Apache-2.0
//
// What `trainer --profile` writes: the same profile for a terminal, for other programs, for a browser, and its operations one by one
// for Perfetto or chrome://tracing. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "trainer/profile/profile.hpp"

namespace dp::trainer {

// Tables of at most 100 columns; ends without a newline.
std::string profile_text(const Profile& profile);
// As packaging/schemas/trainer-profile.schema.json says.
nlohmann::ordered_json profile_json(const Profile& profile);
// One HTML file that needs nothing else, without scripts.
std::string profile_page(const Profile& profile);
// The trace event format of Chrome, of this rank: steps, the parts of each, and operations, which are nested.
std::string profile_trace(const ProfileRecorder& recorder, std::int64_t rank);

// Why there is no advice.
std::string no_advice(const Profile& profile);

// What the profile itself takes of a step: "0.03 %".
std::string overhead_text(const Profile& profile);

// "12.3 ms", "45.6 µs".
std::string short_time(double seconds);

}  // namespace dp::trainer
