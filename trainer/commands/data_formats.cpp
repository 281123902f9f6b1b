// SPDX-License-Identifier: Apache-2.0
#include "trainer/commands/data_formats.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/text.hpp"

namespace dp::trainer {

Format<TrainTestRest> train_test_rest() {
    const auto parse = [](const std::string& given) -> Try<TrainTestRest> {
        TrainTestRest parts;
        double* const all[]{&parts.train, &parts.test, &parts.rest};
        const auto words = split(given, ',');
        bool is_right = words.size() == 2 || words.size() == 3;
        for (std::size_t i = 0; is_right && i < words.size(); ++i) {
            const auto part = parse_number<double>(words[i]);
            is_right = part && *part >= 0 && *part <= 1e9;
            if (is_right) *all[i] = *part;
        }
        if (is_right && parts.train > 0 && parts.test > 0) return parts;
        return dp::fail(fmt::format(
            "'{}' is not the parts to train on, to test with and to leave, such as 969,30,1", given));
    };
    const auto text = [](const TrainTestRest& parts) {
        return fmt::format("{},{},{}", parts.train, parts.test, parts.rest);
    };
    return {"N,N,N", parse, text};
}

Format<DataMix> data_mix() {
    const auto parse = [](const std::string& given) -> Try<DataMix> {
        DataMix mix;
        // An empty text would have no words.
        for (const auto& word : given.empty() ? std::vector<std::string_view>{""} : split(given, ',')) {
            const auto colon = word.rfind(':');
            const auto weight =
                colon == std::string::npos ? std::nullopt : parse_number<double>(word.substr(colon + 1));
            if (!weight || !(*weight > 0 && *weight <= 1e9) || colon == 0)
                return dp::fail(fmt::format(
                    "'{}' is not DIR:WEIGHT, with commas between several, such as wiki:0.7,code:0.3", word));
            mix.parts.push_back({std::string(word.substr(0, colon)), *weight});
        }
        return mix;
    };
    const auto text = [](const DataMix& mix) {
        std::vector<std::string> parts;
        for (const auto& part : mix.parts)
            parts.push_back(fmt::format("{}:{}", part.where.string(), part.weight));
        return fmt::format("{}", fmt::join(parts, ","));
    };
    return {"DIR:WEIGHT,...", parse, text};
}

Format<std::string> tokenizer_name() {
    const auto parse = [](const std::string& given) -> Try<std::string> {
        std::error_code ignored;
        if (given == "gpt2" || given == "bytes" || std::filesystem::exists(given, ignored)) return given;
        return dp::fail(fmt::format("'{}' is not one of gpt2, bytes, and there is no such file", given));
    };
    return {"gpt2|bytes|FILE", parse};
}

}  // namespace dp::trainer
