// SPDX-License-Identifier: Apache-2.0
//
// Samples in device memory, from which batches are gathered without the host; or, where they are too many, in files. The
// training loop has two: the training set and this rank's part of the test set.
#pragma once

#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "trainer/data/dataset.hpp"
#include "trainer/data/stored_images.hpp"
#include "trainer/models/model.hpp"

namespace dp::trainer {

inline Tensor uploaded(Device& device, const std::vector<std::int32_t>& indices) {
    return device.copy_of<std::int32_t>(Type::i32, {static_cast<std::int64_t>(indices.size())}, indices);
}

// Which samples are meant: by a tensor on the device (i32), or for those that are streamed, by numbers.
struct SampleChoice {
    Tensor indices;
    std::vector<std::int64_t> numbers;

    SampleChoice part(std::int64_t first, std::int64_t count) const {
        if (indices) return {indices.view(first, {count}), {}};
        const auto begin = numbers.begin() + first;
        return {{}, {begin, begin + count}};
    }
};

class DeviceSamples {
 public:
    // The samples [first, first + count), for batches of up to `batch`. Features other than tokens get this
    // type in a batch. The device must outlive it.
    DeviceSamples(Device& device, const Split& samples, std::int64_t first, std::int64_t count,
                  std::int64_t batch, Type type)
        : device_(device), normalise_(samples.normalise), first_(first) {
        const Matrix &features = samples.features, &targets = samples.targets;
        if (samples.streamed && samples.streamed->images) {
            images_ = samples.streamed->images;
            features_ = device.make(features.type, {batch, features.columns});
            targets_ = device.make(targets.type, {batch, targets.columns});
            std::vector<std::int32_t> order(static_cast<std::size_t>(batch));
            std::iota(order.begin(), order.end(), 0);
            order_ = uploaded(device, order);
        } else if (samples.streamed) {
            rows_ = samples.streamed->rows;
        } else if (samples.next_is_target) {
            const Tensor numbers = upload(features, first * features.columns, {count * features.columns + 1});
            features_ = numbers.view(0, {count, features.columns});
            targets_ = numbers.view(1, {count, targets.columns});
        } else {
            features_ = upload(features, first * features.columns, {count, features.columns});
            targets_ = upload(targets, first * targets.columns, {count, targets.columns});
        }
        x_ = device.make(gathered_type(features.type, type), {batch, features.columns});
        target_ = device.make(gathered_type(targets.type), {batch, targets.columns});
    }

    // Gathers samples, counted from the first. Valid until the next call. Only files can fail.
    Result<Batch> gather(const SampleChoice& choice) {
        if (rows_ != nullptr) return read(choice.numbers);
        if (images_ != nullptr) DP_TRY(read_images(choice.numbers));
        const Tensor indices =
            images_ ? order_.view(0, {static_cast<std::int64_t>(choice.numbers.size())}) : choice.indices;
        const Batch batch{x_.first_rows(indices.rows()), target_.first_rows(indices.rows()), {}};
        device_.gather(features_, indices, normalise_, batch.x);
        device_.gather(targets_, indices, {}, batch.target);
        return batch;
    }

    // These are gathered soon: the kernel reads what lies in files while the device computes.
    void expect(const SampleChoice& choice) const {
        for (const std::int64_t number : choice.numbers) {
            if (rows_ != nullptr) rows_->expect(first_ + number);
            if (images_ != nullptr) images_->expect(first_ + number);
        }
    }

 private:
    Device& device_;
    Affine normalise_;
    std::int64_t first_;
    std::shared_ptr<const Sequences> rows_;  // where they are streamed; of images, the next
    std::shared_ptr<const StoredImages> images_;
    Tensor features_, targets_;  // all of them, as stored; of streamed images, a batch
    Tensor order_;               // i32: 0, 1, ... of that batch
    Tensor x_, target_;          // one batch

    Result<Batch> read(const std::vector<std::int64_t>& numbers) {
        const auto columns = static_cast<std::size_t>(x_.shape().back());
        std::vector<Token> row(columns + 1);
        std::vector<std::int32_t> x, targets;
        for (const std::int64_t number : numbers) {
            DP_TRY(rows_->read(first_ + number, row));
            x.insert(x.end(), row.begin(), row.end() - 1);
            targets.insert(targets.end(), row.begin() + 1, row.end());
        }
        const auto count = static_cast<std::int64_t>(numbers.size());
        const Batch batch{x_.first_rows(count), target_.first_rows(count), {}};
        device_.upload(x.data(), batch.x);
        device_.upload(targets.data(), batch.target);
        return batch;
    }

    // As they are stored, so that the device makes the model's numbers of them as of those that it holds.
    Result<void> read_images(const std::vector<std::int64_t>& numbers) {
        const auto count = static_cast<std::int64_t>(numbers.size());
        const Tensor features = features_.first_rows(count), targets = targets_.first_rows(count);
        const auto bytes_of = [&](const Tensor& rows) {
            return static_cast<std::size_t>(rows.columns()) * size_of(rows.type());
        };
        const std::size_t image = bytes_of(features), target = bytes_of(targets);
        std::vector<std::uint8_t> images(image * numbers.size()), their_targets(target * numbers.size());
        for (std::size_t i = 0; i < numbers.size(); ++i)
            DP_TRY(images_->read(first_ + numbers[i], std::span(images).subspan(i * image, image),
                                 std::span(their_targets).subspan(i * target, target)));
        device_.upload(images.data(), features);
        device_.upload(their_targets.data(), targets);
        return {};
    }

    // Uploads the matrix from element `first` on.
    Tensor upload(const Matrix& matrix, std::int64_t first, Shape shape) {
        Tensor tensor = device_.make(matrix.type, std::move(shape));
        device_.upload(matrix.bytes.data() + static_cast<std::size_t>(first) * size_of(matrix.type), tensor);
        return tensor;
    }
};

}  // namespace dp::trainer
