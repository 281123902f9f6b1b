// SPDX-License-Identifier: Apache-2.0
#include "trainer/formats/tensor_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "trainer/base/files.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr std::uintmax_t kLargestJson = std::uintmax_t{16} << 20;  // a large model's index has some 100 KiB

// Where there is none, the reason is read_file()'s.
Result<std::string> read_json(const fs::path& file) {
    std::error_code error;
    if (const auto bytes = fs::file_size(file, error); !error && bytes > kLargestJson)
        return fail(Fault::usage, "{}: has {} bytes, and the most is {}", file.string(), bytes, kLargestJson);
    return read_file(file);
}

// The tensors that an index wants from each file.
using FilesOfIndex = std::map<std::string, std::vector<std::string>>;

Result<FilesOfIndex> read_index(const fs::path& index) {
    const auto text = DP_TRY(read_json(index));
    const auto json = nlohmann::json::parse(text, nullptr, false);
    const auto refuse = [&](const std::string& why) {
        return fail(Fault::usage, "{}: {}", index.string(), why);
    };
    if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
        return refuse("has no weight_map");
    FilesOfIndex files;
    for (const auto& [tensor, file] : json["weight_map"].items()) {
        if (!file.is_string()) return refuse(fmt::format("names no file for {}", printable(tensor, 60)));
        const auto name = file.get<std::string>();
        // Of this directory and no other.
        if (name.empty() || name.starts_with('.') ||
            name.find_first_of(std::string_view("/\0", 2)) != std::string::npos)
            return refuse(fmt::format("names {}, which is no name of a file beside it", printable(name, 60)));
        files[name].push_back(tensor);
    }
    return files;
}

Result<void> add_file(TensorFiles& to, const fs::path& file, const std::vector<std::string>& wanted = {}) {
    auto opened = DP_TRY(open_tensor_file(file));
    const auto missing =
        std::ranges::find_if(wanted, [&](const auto& tensor) { return !opened.contains(tensor); });
    to.tensors.merge(opened);
    if (!opened.empty())
        return fail(Fault::usage, "{}: has {}, which another file of the model has, too", file.string(),
                    printable(opened.begin()->first, 60));
    if (missing == wanted.end()) return {};
    return fail(Fault::usage, "{}: lacks {}, which {} says is there", file.string(), printable(*missing, 60),
                kIndex);
}

// One of several, or their index, is no model.
Result<void> add_lone_file(TensorFiles& to, const fs::path& file) {
    const bool is_index = file.filename().string().ends_with(".index.json");
    std::error_code ignored;
    if (is_index || (file.filename() != kTensorFile && fs::exists(file.parent_path() / kIndex, ignored)))
        return fail(Fault::usage, "{}: is {} a model of several files; give their directory", file.string(),
                    is_index ? "the index of" : "one of");
    return add_file(to, file);
}

Result<void> add_files_of_index(TensorFiles& to, const fs::path& directory) {
    const auto files = DP_TRY(read_index(directory / kIndex));
    for (const auto& [name, wanted] : files) DP_TRY(add_file(to, directory / name, wanted));
    return {};
}

}  // namespace

Result<TensorFiles> open_tensor_files(const fs::path& path) {
    std::error_code ignored;
    const bool is_directory = fs::is_directory(path, ignored);
    TensorFiles files;
    if (!is_directory)
        DP_TRY(add_lone_file(files, path));
    else if (fs::exists(path / kTensorFile, ignored))
        DP_TRY(add_file(files, path / kTensorFile));
    else if (fs::exists(path / kIndex, ignored))
        DP_TRY(add_files_of_index(files, path));
    else
        return fail(Fault::usage, "{}: holds neither {} nor {}", path.string(), kTensorFile, kIndex);
    const fs::path config = (is_directory ? path : path.parent_path()) / kModelConfig;
    // A link to nowhere is no config.json, and not none.
    if (fs::symlink_status(config, ignored).type() != fs::file_type::not_found)
        files.config = DP_TRY(read_json(config));
    return files;
}

}  // namespace dp::trainer
