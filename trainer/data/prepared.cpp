// SPDX-License-Identifier: Apache-2.0
//
// prepared.json: see prepared.hpp.
#include "trainer/data/prepared.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "trainer/base/files.hpp"

namespace dp::trainer {

namespace fs = std::filesystem;

Result<std::optional<PreparedData>> read_prepared(const fs::path& directory) {
    const fs::path file = directory / kPreparedFile;
    std::error_code ignored;
    if (!fs::exists(file, ignored)) return std::nullopt;
    const auto text = read_file(file);
    if (!text) return tl::make_unexpected(text.error());
    try {
        const auto json = nlohmann::json::parse(*text);
        return PreparedData{json.at("from"), json.at("summary"), json.at("files")};
    } catch (const nlohmann::json::exception&) {
        return fail(Fault::usage,
                    fmt::format("{}: damaged; remove the directory, and make it again with `trainer prepare`",
                                file.string()));
    }
}

Result<PreparedData> write_prepared(const fs::path& directory, std::string from, std::string summary) {
    PreparedData prepared{std::move(from), std::move(summary), {}};
    for (const auto& entry : fs::directory_iterator(directory)) {
        auto hash = sha256_of_file(entry.path());
        if (!hash) return tl::make_unexpected(hash.error());
        prepared.files.emplace(entry.path().filename().string(), std::move(*hash));
    }
    const nlohmann::ordered_json json{
        {"from", prepared.from}, {"summary", prepared.summary}, {"files", prepared.files}};
    if (auto done = write_file(directory / kPreparedFile, json.dump(2) + "\n"); !done)
        return tl::make_unexpected(done.error());
    return prepared;
}

Result<void> check_prepared(const fs::path& directory) {
    const auto prepared = read_prepared(directory);
    if (!prepared) return tl::make_unexpected(prepared.error());
    if (!*prepared) return {};
    for (const auto& [name, hash] : (*prepared)->files) {
        const auto found = sha256_of_file(directory / name);
        if (!found) return tl::make_unexpected(found.error());
        if (*found != hash)
            return fail(
                Fault::usage,
                fmt::format("{}: not as `trainer prepare` wrote it; remove the directory, and make it "
                            "again (its SHA-256 is {}, not {})",
                            (directory / name).string(), *found, hash));
    }
    return {};
}

}  // namespace dp::trainer
