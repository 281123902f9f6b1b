// SPDX-License-Identifier: Apache-2.0
#include "trainer/prepare/corpus.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "trainer/base/files.hpp"
#include "trainer/base/random.hpp"
#include "trainer/data/json_lines.hpp"
#include "trainer/data/prepared.hpp"
#include "trainer/data/token_files.hpp"
#include "trainer/data/token_shard.hpp"
#include "trainer/data/tokenizer_config.hpp"
#include "trainer/prepare/made_once.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHuggingFaceMerges = "merges.txt";
constexpr std::string_view kSkippedFile = "skipped.list";
constexpr std::size_t kMostOfShard = 1'000'000'000;           // tokens: a set of 100 GB has few files to open
constexpr std::int64_t kLongestText = std::int64_t{1} << 30;  // of a file that is one document
constexpr int kDeepest = 32;                                 // of directories: links may go round in a circle
constexpr auto kLongestCounting = std::chrono::seconds(10);  // of what is refused anyway
constexpr auto kLongestTokenizing = std::chrono::hours(24);

bool is_text(const fs::path& file) {
    return (file.extension() == ".txt" && file.filename() != kHuggingFaceMerges) ||
           file.extension() == ".jsonl";
}

// A text is called as its author likes; only these are no accident.
bool has_purpose(const fs::path& file, std::string_view word) {
    if (file.extension() == ".jsonl") return has_word(file, word);
    const std::string name = file.stem().string();
    return name == word || (word == "val" && (name == "valid" || name == "validation"));
}

// As it is given, else beside the texts, else where the first weights are.
std::optional<fs::path> tokenizer_for(const Corpus& corpus, const TokenizerSources& sources) {
    if (sources.bytes) return std::nullopt;
    std::error_code ignored;
    if (sources.given && fs::is_directory(*sources.given, ignored))
        return tokenizer_file_in(*sources.given).value_or(*sources.given);
    if (sources.given) return sources.given;
    if (auto beside = tokenizer_file_in(corpus.where)) return beside;
    return sources.weights ? tokenizer_file_in(*sources.weights) : std::nullopt;
}

// What determines the tokens, without reading the texts.
std::string identity_of(const Corpus& corpus, const std::optional<fs::path>& tokenizer, BadSamples bad) {
    auto files = corpus.files;
    if (tokenizer) {
        files.push_back(*tokenizer);
        // They say which token is before each document.
        for (const std::string_view name : {kTokenizerConfig, kGenerationConfig})
            files.push_back(tokenizer->parent_path() / name);
    }
    std::error_code ignored;
    nlohmann::json stamps = nlohmann::json::array();
    for (const fs::path& file : files) {
        struct stat facts {};
        if (::stat(file.c_str(), &facts) != 0) continue;  // whoever reads it says so
        const fs::path name = fs::weakly_canonical(file, ignored);
        stamps.push_back({sha256(name.string()), facts.st_size, facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec});
    }
    return sha256(
        nlohmann::json{{"version", 1}, {"skips", bad == BadSamples::skip}, {"files", stamps}}.dump());
}

// Writes the shards of a part, one after another.
class ShardWriter {
 public:
    ShardWriter(fs::path directory, std::string part)
        : directory_(std::move(directory)), part_(std::move(part)) {}

    Result<void> write(std::span<const Token> tokens) {
        while (!tokens.empty()) {
            if (!shard_)
                shard_ =
                    DP_TRY(ShardFile::create(directory_ / fmt::format("{}_{:06}.bin", part_, shards_++)));
            const auto count = std::min(tokens.size(), kMostOfShard - shard_->tokens());
            DP_TRY(shard_->write(tokens.first(count)));
            tokens_ += count;
            tokens = tokens.subspan(count);
            if (shard_->tokens() == kMostOfShard) DP_TRY(finish());
        }
        return {};
    }
    Result<void> finish() {
        if (!shard_) return {};
        DP_TRY(shard_->finish());
        shard_.reset();
        return {};
    }
    std::size_t tokens() const { return tokens_; }

 private:
    fs::path directory_;
    std::string part_;
    std::optional<ShardFile> shard_;
    std::size_t shards_ = 0, tokens_ = 0;
};

// Reads the documents one by one, and writes their tokens.
class Tokenizing {
 public:
    Tokenizing(const Corpus& corpus, BadSamples bad, Tokenizer& tokenizer, fs::path directory)
        : corpus_(corpus), bad_(bad), tokenizer_(tokenizer), directory_(std::move(directory)) {}

    Result<std::string> run() {
        auto parts = by_purpose(corpus_.files, has_purpose);
        if (parts.train.empty())
            return fail(Fault::usage, "{}: texts to test with, but none to train on", corpus_.where.string());
        const auto trains = DP_TRY(write_part("train", std::move(parts.train)));
        const auto tests = DP_TRY(write_part("val", std::move(parts.test)));
        if (!bad_names_.empty() && bad_ == BadSamples::refuse)
            return fail(Fault::usage,
                        "{}; correct it, or give --bad-samples=skip to leave out {}{} of {} documents",
                        first_bad_, has_stopped_ ? "at least " : "", bad_names_.size(),
                        documents_ + bad_names_.size());
        if (trains == 0)
            return fail(
                Fault::usage, "{}: no text there to train on{}", corpus_.where.string(),
                bad_names_.empty() ? "" : fmt::format("; all were skipped, the first: {}", first_bad_));
        if (!bad_names_.empty()) DP_TRY(write_file(directory_ / kSkippedFile, all_bad()));
        DP_TRY(save_tokenizer(tokenizer_, directory_));
        std::string summary =
            fmt::format("{} document{}, {} tokens", documents_, documents_ == 1 ? "" : "s", trains);
        if (tests > 0) summary += fmt::format(" to train and {} to test with", tests);
        summary += fmt::format(" (tokenizer {}, vocabulary {})", tokenizer_.name(), tokenizer_.vocabulary());
        if (!bad_names_.empty())
            summary += fmt::format("; {} skipped, the first: {}", bad_names_.size(), first_bad_);
        return summary;
    }

 private:
    const Corpus& corpus_;
    BadSamples bad_;
    Tokenizer& tokenizer_;
    fs::path directory_;
    std::vector<Token> tokens_;
    std::size_t documents_ = 0;
    std::vector<std::string> bad_names_;
    std::string first_bad_;
    std::chrono::steady_clock::time_point first_bad_at_;
    bool has_stopped_ = false;

    Result<std::size_t> write_part(std::string part, std::vector<fs::path> files) {
        ShardWriter shards(directory_, std::move(part));
        // Shuffled, so that the end, which may be tested with, has something of everything.
        Random random(1, 0);
        for (auto left = static_cast<std::uint32_t>(files.size()); left > 1; --left)
            std::swap(files[left - 1], files[random.below(left)]);
        for (const fs::path& file : files)
            DP_TRY(file.extension() == ".jsonl" ? add_lines(file, shards) : add_text(file, shards));
        DP_TRY(shards.finish());
        return shards.tokens();
    }

    Result<void> add_text(const fs::path& file, ShardWriter& shards) {
        if (stops()) return {};
        const auto opened = DP_TRY(open_sized(file));
        if (opened.bytes > kLongestText)
            return fail(Fault::usage,
                        "{}: a text of {} bytes; split it, or give its documents as lines of JSON",
                        file.string(), opened.bytes);
        const auto text = DP_TRY(read_file(file));
        return add(text, shards, [&] { return file.string(); });
    }

    Result<void> add_lines(const fs::path& file, ShardWriter& shards) {
        auto opened = DP_TRY(open_sized(file));
        LineReader lines(std::move(opened.file));
        const auto name = [&] { return fmt::format("{}:{}", file.string(), lines.number()); };
        for (;;) {
            const auto more = lines.next();
            if (!more) return fail(Fault::usage, "{}: cannot read: {}", file.string(), more.error().message);
            if (!*more || stops()) return {};
            if (lines.is_too_long()) {
                note_bad(name(), fmt::format("a line of more than {} bytes", kLongestLine));
            } else if (lines.line().find_first_not_of(" \t\r") != std::string_view::npos) {
                const auto text = text_in_line(lines.line());
                if (text)
                    DP_TRY(add(*text, shards, name));
                else
                    note_bad(name(), text.error().message);
            }
        }
    }

    Result<void> add(std::string_view text, ShardWriter& shards, auto name) {
        tokens_.assign(1, tokenizer_.end_of_text());
        if (const auto encoded = tokenizer_.encode(text, tokens_); !encoded) {
            note_bad(name(), encoded.error().message);
            return {};
        }
        ++documents_;
        // Then it is only counted how many are bad.
        if (bad_ == BadSamples::refuse && !bad_names_.empty()) return {};
        return shards.write(tokens_);
    }

    // Where documents are refused, the others are only looked at to count those, and not for long.
    bool stops() {
        if (bad_ == BadSamples::skip || bad_names_.empty()) return false;
        if (std::chrono::steady_clock::now() - first_bad_at_ > kLongestCounting) has_stopped_ = true;
        return has_stopped_;
    }

    void note_bad(const std::string& name, std::string why) {
        // The tokenizer's advice is for who prepares the text.
        if (bad_names_.empty()) {
            first_bad_ = fmt::format("{}: {}", name, why.substr(0, why.find(';')));
            first_bad_at_ = std::chrono::steady_clock::now();
        }
        bad_names_.push_back(name);
    }

    std::string all_bad() const {
        std::string all;
        for (const std::string& name : bad_names_) all += name + "\n";
        return all;
    }
};

}  // namespace

Result<std::optional<Corpus>> find_corpus(const fs::path& where) {
    std::error_code error;
    if (!fs::is_directory(where, error)) {
        if (!is_text(where) || !fs::exists(where, error)) return std::nullopt;
        return Corpus{where, {where}};
    }
    if (has_token_files(where)) return std::nullopt;
    Corpus corpus{where, {}};
    using Walk = fs::recursive_directory_iterator;
    fs::path last = where;
    for (Walk at(where, fs::directory_options::follow_directory_symlink, error), end; !error && at != end;
         at.increment(error)) {
        last = at->path();
        std::error_code ignored;
        const bool is_directory = at->is_directory(ignored);
        const bool is_hidden = last.filename().string().starts_with(".");
        if (is_directory &&
            (is_hidden || at.depth() >= kDeepest || fs::exists(last / kPreparedFile, ignored)))
            at.disable_recursion_pending();
        else if (!is_directory && !is_hidden && is_text(last))
            corpus.files.push_back(last);
    }
    // What comes after it would be missing.
    if (error)
        return fail(Fault::usage, "{}: cannot be read, or what follows it there: {}", last.string(),
                    error.message());
    if (corpus.files.empty()) return std::nullopt;
    std::sort(corpus.files.begin(), corpus.files.end());
    return corpus;
}

Result<TokenizedCorpus> tokenize_corpus(const Corpus& corpus, const fs::path& cache, BadSamples bad,
                                        const TokenizerSources& sources) {
    try {
        const auto file = tokenizer_for(corpus, sources);
        const std::string identity = identity_of(corpus, file, bad);
        const fs::path directory = cache / ("text-" + identity);
        const auto make = [&](const fs::path& result) -> Result<std::string> {
            auto tokenizer = DP_TRY(file ? open_tokenizer_file(*file)
                                         : Result<std::unique_ptr<Tokenizer>>(make_byte_tokenizer()));
            return Tokenizing(corpus, bad, *tokenizer, result).run();
        };
        const auto summary = DP_TRY(made_once(directory, identity, make, kLongestTokenizing));
        return TokenizedCorpus{
            directory, fmt::format("{}: {}; kept in {}", corpus.where.string(), summary, directory.string())};
    } catch (const fs::filesystem_error& error) {
        return fail(Fault::prepare, error.what());
    }
}

}  // namespace dp::trainer
