// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/gpt2_words.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <memory>
#include <stdexcept>

namespace dp::trainer {
namespace {

// The pattern of GPT-2's encoder.py (github.com/openai/gpt-2, src/encoder.py). Its \s is Unicode's property
// White_Space, written out because PCRE2's \s has one character more.
constexpr std::string_view kPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+)"
    R"(|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+)";

std::shared_ptr<pcre2_code> compiled_pattern() {
    int error = 0;
    PCRE2_SIZE where = 0;
    std::shared_ptr<pcre2_code> code(
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(kPattern.data()), kPattern.size(), PCRE2_UTF | PCRE2_UCP,
                      &error, &where, nullptr),
        pcre2_code_free);
    if (!code)  // before 10.40 it does not know White_Space
        throw std::runtime_error(
            fmt::format("PCRE2 does not accept GPT-2's pattern (error {} at {}); the trainer was built with "
                        "{}.{}: install this version or a newer one",
                        error, where, PCRE2_MAJOR, PCRE2_MINOR));
    // If the system forbids generated code, PCRE2 interprets the pattern.
    (void)pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
    return code;
}

}  // namespace

Result<void> split_words(std::string_view text, const std::function<void(std::string_view)>& take) {
    static const auto code = compiled_pattern();
    const std::shared_ptr<pcre2_match_data> match(pcre2_match_data_create_from_pattern(code.get(), nullptr),
                                                  pcre2_match_data_free);
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    std::uint32_t options = 0;
    for (std::size_t from = 0; from < text.size();) {
        const int found = pcre2_match(code.get(), subject, text.size(), from, options, match.get(), nullptr);
        if (found <= PCRE2_ERROR_UTF8_ERR1 && found >= PCRE2_ERROR_UTF8_ERR21)
            return fail(Fault::usage,
                        "byte {} is not UTF-8; convert the text with iconv -t UTF-8, or give "
                        "--tokenizer=bytes",
                        pcre2_get_startchar(match.get()));
        // Each character is in one of the alternatives, so a match begins where the last one ended.
        const PCRE2_SIZE* place = pcre2_get_ovector_pointer(match.get());
        if (found <= 0 || place[0] != from || place[1] <= from)
            return fail(Fault::usage, "byte {}: cannot split the text into words (PCRE2 error {})", from,
                        found);
        take(text.substr(from, place[1] - from));
        from = place[1];
        options = PCRE2_NO_UTF_CHECK;  // the first match has looked at the whole text
    }
    return {};
}

}  // namespace dp::trainer
