// SPDX-License-Identifier: Apache-2.0
#include "trainer/models/gpt2_config.hpp"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "base/text.hpp"

namespace dp::trainer {
namespace {

// What gpt does, and what others may say for it.
struct Rule {
    const char* key;
    nlohmann::json ours, same;
};
const std::array<Rule, 8>& rules() {
    static const std::array<Rule, 8> kRules{
        {{"model_type", "gpt2", "gpt2"},
         {"activation_function", "gelu_new", "gelu_pytorch_tanh"},
         {"layer_norm_epsilon", 1e-5, 1e-5},
         {"scale_attn_weights", true, true},
         {"scale_attn_by_inverse_layer_idx", false, false},
         {"add_cross_attention", false, false},
         {"tie_word_embeddings", true, true},
         {"reorder_and_upcast_attn", false, true}}};  // only rounds otherwise
    return kRules;
}

// For a message. What is nested may be so deep that to print it takes more stack than there is.
std::string shown(const nlohmann::json& value) {
    return value.is_primitive() ? printable(value.dump(), 60) : value.type_name();
}

}  // namespace

Try<Gpt2Config> read_gpt2_config(std::string_view text) {
    const auto json = nlohmann::json::parse(text, nullptr, false);
    if (!json.is_object()) return dp::fail("is not a JSON object");
    for (const auto& [key, ours, same] : rules()) {
        const auto said = json.find(key);
        if (said != json.end() && *said != ours && *said != same)
            return dp::fail(
                fmt::format("has {} {}, and the trainer's gpt {}", key, shown(*said), ours.dump()));
    }
    Gpt2Config config;
    if (const auto heads = json.find("n_head"); heads != json.end()) {
        if (!heads->is_number_unsigned() || *heads < 1 || *heads > 65536)
            return dp::fail(fmt::format("has the n_head {}", shown(*heads)));
        config.heads = heads->get<std::int64_t>();
    }
    return config;
}

std::string gpt2_config_text(const GptShape& shape, std::optional<std::int64_t> end_of_text) {
    nlohmann::ordered_json json{{"architectures", {"GPT2LMHeadModel"}}};
    for (const auto& rule : rules()) json[rule.key] = rule.ours;
    const nlohmann::ordered_json sizes{{"n_layer", shape.layers},
                                       {"n_embd", shape.hidden},
                                       {"n_head", shape.heads},
                                       {"n_inner", nullptr},
                                       {"n_positions", shape.sequence},
                                       {"vocab_size", shape.vocabulary},
                                       {"embd_pdrop", 0.0},  // as the trainer's are if nothing is said
                                       {"resid_pdrop", 0.0},
                                       {"attn_pdrop", 0.0},
                                       {"torch_dtype", "float32"}};
    json.update(sizes);
    for (const char* key : {"bos_token_id", "eos_token_id"})
        json[key] = end_of_text ? nlohmann::ordered_json(*end_of_text) : nlohmann::ordered_json();
    return json.dump(2) + "\n";
}

}  // namespace dp::trainer
