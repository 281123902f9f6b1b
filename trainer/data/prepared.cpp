// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/prepared.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "trainer/base/files.hpp"

namespace dp::trainer {

namespace fs = std::filesystem;

Result<std::optional<PreparedData>> read_prepared(const fs::path& directory) {
    const fs::path file = directory / kPreparedFile;
    std::error_code ignored;
    if (!fs::exists(file, ignored)) return std::nullopt;
    const auto text = DP_TRY(read_file(file));
    try {
        const auto json = nlohmann::json::parse(text);
        return PreparedData{json.at("from"), json.at("summary"), json.at("files")};
    } catch (const nlohmann::json::exception&) {
        return fail(Fault::usage,
                    "{}: damaged; remove the directory, and make it again with `trainer prepare`",
                    file.string());
    }
}

Result<PreparedData> write_prepared(const fs::path& directory, std::string from, std::string summary) {
    PreparedData prepared{std::move(from), std::move(summary), {}};
    for (const auto& entry : fs::directory_iterator(directory)) {
        auto hash = DP_TRY(sha256_of_file(entry.path()));
        prepared.files.emplace(entry.path().filename().string(), std::move(hash));
    }
    const nlohmann::ordered_json json{
        {"from", prepared.from}, {"summary", prepared.summary}, {"files", prepared.files}};
    DP_TRY(write_file(directory / kPreparedFile,
                      json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"));
    return prepared;
}

Result<void> check_prepared(const fs::path& directory) {
    const auto prepared = DP_TRY(read_prepared(directory));
    if (!prepared) return {};
    for (const auto& [name, hash] : prepared->files) {
        const auto found = DP_TRY(sha256_of_file(directory / name));
        if (found != hash)
            return fail(Fault::usage,
                        "{}: changed since `trainer prepare` wrote it; remove the directory, and make "
                        "it again (its SHA-256 is {}, not {})",
                        (directory / name).string(), found, hash);
    }
    return {};
}

}  // namespace dp::trainer
