// SPDX-License-Identifier: Apache-2.0
#include "trainer/profile/paper_step.hpp"

#include "trainer/devices/paper_device.hpp"
#include "trainer/devices/profiled.hpp"
#include "trainer/models/freezing.hpp"
#include "trainer/training/train_step.hpp"
#include "trainer/training/training.hpp"

namespace dp::trainer {
namespace {

// `count` samples with the shapes of the model's data set, without their numbers.
Split samples_on_paper(DataSet set, const ModelShape& shape, std::int64_t count) {
    const auto of = [](Type type, std::int64_t columns) { return Matrix{type, columns, {}}; };
    const std::int64_t pixels = shape.image_size * shape.image_size;
    switch (set) {
        case DataSet::fashion_mnist:
            return {count, of(Type::u8, kImageSide * kImageSide), {}, of(Type::i32, 1)};
        case DataSet::linear_regression:
            return {count, of(Type::f32, 1), {}, of(Type::f32, 1)};
        case DataSet::segmentation:
            return {count, of(Type::u8, 3 * pixels), {}, of(Type::u8, pixels)};
        default:
            return {count, of(Type::u16, shape.gpt.sequence), {}, of(Type::u16, shape.gpt.sequence), true};
    }
}

}  // namespace

Result<void> record_paper_step(const ModelInfo& info, const ModelShape& shape, const Settings& settings,
                               ProfileRecorder& recorder) {
    const std::int64_t count = settings.batch * settings.accumulate;
    const Dataset data{samples_on_paper(info.data, shape, count), {}, {}};
    const auto schedule = DP_TRY(make_schedule(settings, count, 1));
    Profiled<PaperDevice> device(recorder.log());
    const auto model = make_model(info, shape);
    place_model(*model, settings, std::nullopt, device);
    Observer nobody;
    const TrainingContext context{info, *model, data, settings, schedule, device, Ranks::alone(), nobody};
    const GlobalMetrics ranks(context);
    TrainStep step(context);
    const SampleChoice samples{device.make(Type::i32, {count}), {}};
    DP_TRY(device.status());
    recorder.follow(model->parameters(), Ranks::alone(), device.memory(), 1);
    recorder.on_step_begin();
    DP_TRY(step.step(samples, 1, ranks));
    recorder.on_step();
    return device.status();
}

}  // namespace dp::trainer
