// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/tokenizer_config.hpp"

#include <nlohmann/json.hpp>

namespace dp::trainer {
namespace {

using OrderedJson = nlohmann::ordered_json;

// What is nested deeper goes: to copy or print it may take more stack than there is.
OrderedJson parsed(const std::string& text) {
    constexpr int kDeepest = 32;
    const auto keeps = [](int depth, OrderedJson::parse_event_t, const OrderedJson&) {
        return depth < kDeepest;
    };
    return OrderedJson::parse(text, keeps, false);
}

// What an object says of `key`; null where it says nothing.
Try<OrderedJson> said_of(const std::string& text, const char* key) {
    const auto json = parsed(text);
    if (!json.is_object()) return dp::fail("is not a JSON object");
    const auto found = json.find(key);
    return found == json.end() ? OrderedJson() : *found;
}

}  // namespace

Try<std::optional<std::string>> eos_token_in(const std::string& tokenizer_config) {
    auto said = DP_TRY(said_of(tokenizer_config, "eos_token"));
    if (said.is_null()) return std::nullopt;
    // An AddedToken, as transformers wrote them before its version 4.34.
    if (said.is_object() && said.contains("content")) said = OrderedJson(said["content"]);
    if (!said.is_string()) return dp::fail("has an eos_token that is not a string");
    return said.get<std::string>();
}

Try<std::optional<std::int64_t>> eos_token_id_in(const std::string& generation_config) {
    auto said = DP_TRY(said_of(generation_config, "eos_token_id"));
    if (said.is_array() && !said.empty()) said = OrderedJson(said.front());
    if (said.is_null()) return std::nullopt;
    constexpr std::uint64_t kMost = 0xFFFFFFFF;
    if (!said.is_number_unsigned() || said.get<std::uint64_t>() > kMost)
        return dp::fail("has an eos_token_id that is not a token id");
    return said.get<std::int64_t>();
}

std::string tokenizer_config_text(const std::string& given, const std::string& eos_token,
                                  std::optional<std::int64_t> sequence) {
    auto json = parsed(given);
    if (!json.is_object())
        json = {{"tokenizer_class", "GPT2Tokenizer"},
                {"add_prefix_space", false},
                {"bos_token", eos_token},
                {"unk_token", eos_token}};
    if (!json.contains("eos_token") || json["eos_token"].is_null()) json["eos_token"] = eos_token;
    // What was given may be of a model with more positions.
    if (sequence) {
        auto& most = json["model_max_length"];
        if (!most.is_number() || most.get<double>() > static_cast<double>(*sequence)) most = *sequence;
    }
    return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

std::string generation_config_text(std::int64_t eos_token_id) {
    return OrderedJson{{"bos_token_id", eos_token_id}, {"eos_token_id", eos_token_id}}.dump(2) + "\n";
}

}  // namespace dp::trainer
