// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/gradient_reducer.hpp"

#include <algorithm>

#include "devices.hpp"
#include "trainer/models/model.hpp"

namespace dp::trainer {
namespace {

// Of a single rank, with the sums noted down: each doubles what it is given, as a second rank with the same
// gradients would.
class NotingCommunicator final : public Communicator {
 public:
    explicit NotingCommunicator(Device& device) : device_(device) {}
    std::string_view name() const override { return "noting"; }
    std::int64_t rank() const override { return 0; }
    std::int64_t size() const override { return 2; }
    Result<void> all_reduce(const Tensor&, Reduction) override { return fail(Fault::world, "not asked for"); }
    Result<void> all_gather(const Tensor&) override { return fail(Fault::world, "not asked for"); }
    Result<void> broadcast(const Tensor&, std::int64_t) override {
        return fail(Fault::world, "not asked for");
    }
    Result<void> start_all_reduce(const Tensor& tensor) override {
        if (started.size() == fails_at) return fail(Fault::world, "rank 1 is gone");
        started.push_back(tensor.elements());
        device_.add(tensor, tensor);
        return {};
    }
    Result<void> wait_all_reduces() override {
        ++finished;
        return {};
    }
    Tensor result_of(const Tensor& tensor) override {
        asked_for = tensor.data<float>();
        return tensor;
    }

    const float* asked_for = nullptr;
    std::vector<std::int64_t> started;
    int finished = 0;
    std::size_t fails_at = 1000;

 private:
    Device& device_;
};

// Weights of 64 kB, 16 kB and 4 kB with their biases.
void declare(ParameterSet& parameters) {
    for (const std::int64_t side : {128, 64, 32}) {
        parameters.add("weight", {side, side}, Initial::uniform(1));
        parameters.add("bias", {side}, Initial::uniform(1));
    }
}

TEST(BucketsOf, GoFromTheLastDeclaredToTheFirst) {
    const auto device = open_cpu(1);
    ParameterSet parameters;
    declare(parameters);
    parameters.place(*device, 1);
    struct Case {
        std::int64_t first_bytes, bytes;
        std::vector<std::size_t> needs;
    };
    for (const auto& [first_bytes, bytes, needs] : std::vector<Case>{
             {1, 1, {4, 2, 0}},        // each weight by itself, with the first all biases
             {1, 1 << 20, {4, 0}},     // the first one is cut small
             {1 << 20, 1 << 20, {0}},  // all in one
             {16 << 10, 1, {2, 0}},    // the last two are worth a bucket
             {1,
              64 << 10,
              {4, 2,
               0}},  // the largest is a bucket of its own, and does not keep back what is final before it
             {1, 65 << 10, {4, 0}},      // it is none
             {32 << 10, 64 << 10, {0}},  // what is before it is not worth one
         }) {
        const auto buckets = buckets_of(parameters, first_bytes, bytes);
        std::vector<std::size_t> found;
        std::vector<bool> covered(static_cast<std::size_t>(parameters.gradients().elements()), false);
        for (const auto& bucket : buckets) {
            found.push_back(bucket.needs);
            for (const auto& [first, count] : bucket.pieces)
                for (std::int64_t i = first; i < first + count; ++i) {
                    EXPECT_FALSE(covered[static_cast<std::size_t>(i)]) << "twice: " << i;
                    covered[static_cast<std::size_t>(i)] = true;
                }
        }
        EXPECT_EQ(found, needs);
        EXPECT_TRUE(std::all_of(covered.begin(), covered.end(), [](bool is) { return is; }));
    }
}

// As those of words and places of a GPT: the places' are no part of what could be summed before.
TEST(BucketsOf, WhatIsFinalTogetherStaysTogether) {
    const auto device = open_cpu(1);
    ParameterSet parameters;
    parameters.add("words", {128, 128}, Initial::uniform(1));
    parameters.add("places", {32, 32}, Initial::uniform(1)).is_final_with_earlier = true;
    parameters.add("layer", {64, 64}, Initial::uniform(1));
    parameters.add("layer", {64, 64}, Initial::uniform(1));
    parameters.place(*device, 1);
    const auto buckets = buckets_of(parameters, 1, 33 << 10);
    ASSERT_EQ(buckets.size(), 3u);
    EXPECT_EQ(buckets[0].needs, 3u);
    EXPECT_EQ(buckets[1].needs, 2u);
    ASSERT_EQ(buckets[1].pieces.size(), 1u);
    EXPECT_EQ(buckets[1].pieces[0].count, 64 * 64);
    EXPECT_EQ(buckets[2].needs, 0u);
    EXPECT_EQ(buckets[2].pieces[0].count, 128 * 128 + 32 * 32);
}

TEST(BucketsOf, WhatIsFinalWithAFrozenOneIsSummed) {
    const auto device = open_cpu(1);
    ParameterSet parameters;
    parameters.add("words", {128, 128}, Initial::uniform(1));
    parameters.add("places", {32, 32}, Initial::uniform(1)).is_final_with_earlier = true;
    parameters.add("layer", {64, 64}, Initial::uniform(1));
    parameters.freeze([](const Parameter& one) { return one.name == "words"; });
    parameters.place(*device, 1);
    std::int64_t summed = 0;
    for (const auto& bucket : buckets_of(parameters))
        for (const Shard& piece : bucket.pieces) summed += piece.count;
    EXPECT_EQ(summed, 32 * 32 + 64 * 64);
}

// gpt2: as much as could be sent before the table is final, is not kept back with it.
TEST(BucketsOf, TheLastOfGpt2IsItsTables) {
    ModelShape gpt2;
    gpt2.gpt.layers = 3;  // as many bytes remain behind the tables as of 12
    gpt2.gpt.heads = 12;
    gpt2.gpt.hidden = 768;
    gpt2.gpt.sequence = 1024;
    const auto device = open_cpu(1);
    const auto model = find_model("gpt")->make(gpt2);
    model->place(*device, std::nullopt, 1);
    const auto buckets = buckets_of(model->parameters());
    const auto& words = model->parameters().all()[0];
    const auto& places = model->parameters().all()[1];
    EXPECT_EQ(buckets.back().pieces[0].first, 0);
    EXPECT_EQ(buckets.back().pieces[0].count, places.first + elements_of(places.shape)) << words.name;
    EXPECT_GE(buckets[buckets.size() - 2].needs, 2u) << "what is declared first of the first layer";
}

class GradientReducerTest : public ::testing::Test {
 protected:
    GradientReducerTest() {
        declare(parameters);
        parameters.place(*device, 1);
        device->upload(std::vector<float>(elements(), 1.0f).data(), parameters.gradients());
    }
    std::size_t elements() const { return static_cast<std::size_t>(parameters.gradients().elements()); }
    std::vector<float> all(float value) const { return std::vector<float>(elements(), value); }
    void backward(std::size_t from) {
        for (std::size_t number = from; number-- > 0;) parameters.completed(parameters.all()[number]);
    }

    std::unique_ptr<Device> device = open_cpu(1);
    ParameterSet parameters;
    NotingCommunicator communicator{*device};
};

TEST_F(GradientReducerTest, ABucketBeginsAsSoonAsItsGradientsAreFinal) {
    GradientReducer reducer(parameters, *device, communicator, buckets_of(parameters, 1, 1));
    reducer.begin();
    EXPECT_EQ(communicator.started.size(), 0u);
    parameters.completed(parameters.all()[5]);  // a bias alone
    EXPECT_EQ(communicator.started.size(), 0u);
    parameters.completed(parameters.all()[4]);
    EXPECT_EQ(communicator.started, (std::vector<std::int64_t>{32 * 32}));
    parameters.completed(parameters.all()[2]);
    EXPECT_EQ(communicator.started.size(), 2u);
    EXPECT_TRUE(reducer.finish());
    EXPECT_EQ(communicator.started.size(), 4u) << "what nobody announced, and the biases";
    EXPECT_EQ(communicator.finished, 1);
    EXPECT_EQ(device->values_of<float>(parameters.gradients()), all(2));
    EXPECT_EQ(communicator.asked_for, parameters.gradients().data<float>())
        << "the sum is where that one says";
}

TEST_F(GradientReducerTest, OnlyBetweenBeginAndFinish) {
    GradientReducer reducer(parameters, *device, communicator, buckets_of(parameters, 1, 1));
    backward(6);
    EXPECT_TRUE(communicator.started.empty()) << "a backward pass whose gradients are only accumulated";
    for (int step = 1; step <= 2; ++step) {
        reducer.begin();
        backward(6);
        EXPECT_TRUE(reducer.finish());
        EXPECT_EQ(communicator.started.size(), 4u * static_cast<std::size_t>(step));
    }
}

TEST_F(GradientReducerTest, WithASumTheGradientsAreAddedToItFirst) {
    const Tensor sum = device->copy_of<float>(Type::f32, {static_cast<std::int64_t>(elements())}, all(10));
    GradientReducer reducer(parameters, *device, communicator, buckets_of(parameters, 1, 1));
    reducer.begin(sum);
    backward(6);
    EXPECT_TRUE(reducer.finish());
    EXPECT_EQ(device->values_of<float>(sum), all(22));
    EXPECT_EQ(communicator.asked_for, sum.data<float>());
    EXPECT_EQ(device->values_of<float>(parameters.gradients()), all(1));
}

TEST_F(GradientReducerTest, AFailureIsToldAndNothingMoreIsStarted) {
    communicator.fails_at = 1;
    GradientReducer reducer(parameters, *device, communicator, buckets_of(parameters, 1, 1));
    reducer.begin();
    backward(6);
    const auto result = reducer.finish();
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().message, "rank 1 is gone");
    EXPECT_EQ(communicator.started.size(), 1u);
    EXPECT_EQ(communicator.finished, 1) << "what was started is waited for";
}

// The order in which each model's backward pass announces its gradients.
TEST_F(GradientReducerTest, ModelsSpeakWhenTheirGradientsAreFinal) {
    for (const auto& info : kModels) {
        ModelShape shape;
        shape.image_size = 32;
        shape.features = 2;
        shape.gpt = {2, 8, 2, 5, 11};
        const auto model = info.make(shape);
        model->place(*device, 1, 2);
        std::vector<std::vector<float>> seen(model->parameters().all().size());
        std::size_t lowest = seen.size();
        model->parameters().on_completed([&](std::size_t number) {
            EXPECT_LT(number, lowest) << info.name << " goes from the last declared one to the first";
            for (std::size_t i = number; i < lowest; ++i)
                seen[i] = device->values_of<float>(model->parameters().all()[i].gradient);
            lowest = number;
        });
        Batch batch{upload(*device, {2, 784}, random_values(2 * 784, 1)),
                    device->copy_of<std::int32_t>(Type::i32, {2, 1}, std::vector<std::int32_t>{3, 4}),
                    {}};
        if (info.data == DataSet::linear_regression)
            batch = {upload(*device, {2, 1}, {0.5f, 1}), upload(*device, {2, 1}, {1, 2}), {}};
        if (info.data == DataSet::tokens) {
            const std::vector<std::int32_t> tokens{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
            batch.x = batch.target = device->copy_of<std::int32_t>(Type::i32, {2, 5}, tokens);
        }
        if (info.data == DataSet::segmentation)
            batch = {upload(*device, {2, 3072}, random_values(2 * 3072, 1)),
                     upload(*device, {2, 1024}, std::vector<float>(2048, 1)),
                     {}};
        model->forward_backward(batch, 1, device->make(Type::f64, {2}));
        EXPECT_EQ(lowest, 0u) << info.name;
        for (std::size_t i = 0; i < seen.size(); ++i)
            EXPECT_EQ(seen[i], device->values_of<float>(model->parameters().all()[i].gradient))
                << info.name << ": " << model->parameters().all()[i].name
                << " changed after it was announced";
        model->parameters().on_completed({});
    }
}

}  // namespace
}  // namespace dp::trainer
