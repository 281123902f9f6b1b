// SPDX-License-Identifier: Apache-2.0
//
// All models, small, with data that they take.
#pragma once

#include "trainer/data/load.hpp"
#include "trainer/models/model.hpp"

namespace dp::trainer {

// Of the larger models, for a test.
inline ModelShape shape() {
    ModelShape small;
    small.image_size = 32;
    small.features = 4;
    small.gpt.layers = 2;
    small.gpt.hidden = 48;
    small.gpt.heads = 2;
    small.gpt.sequence = 16;
    small.gpt.vocabulary = 100;
    return small;
}

inline Matrix matrix(Type type, std::int64_t rows, std::int64_t columns) {
    return {type, columns,
            std::vector<std::uint8_t>(static_cast<std::size_t>(rows * columns) * size_of(type))};
}

inline Split samples(std::int64_t count, Type features, std::int64_t columns, Type targets,
                     std::int64_t target_columns) {
    return {count, matrix(features, count, columns), {}, matrix(targets, count, target_columns)};
}

inline Split images(std::int64_t count) {
    return samples(count, Type::u8, 784, Type::i32, 1);
}

// A small one that the model takes.
inline Dataset data_for(const ModelInfo& info) {
    const auto both = [](auto make) { return Dataset{make(2000), make(500), ""}; };
    const std::int64_t pixels = shape().image_size * shape().image_size, tokens = shape().gpt.sequence;
    switch (info.data) {
        case DataSet::fashion_mnist:
            return both(images);
        case DataSet::linear_regression:
            return make_linear_regression();
        case DataSet::segmentation:
            return both(
                [&](std::int64_t count) { return samples(count, Type::u8, 3 * pixels, Type::f32, pixels); });
        case DataSet::tokens:
            return both([&](std::int64_t count) {
                Split text{count, matrix(Type::u16, count, tokens), {}, {Type::u16, tokens, {}}, true};
                text.features.bytes.resize(text.features.bytes.size() + sizeof(std::uint16_t));
                return text;
            });
    }
    return {};
}

}  // namespace dp::trainer
