// SPDX-License-Identifier: Apache-2.0
//
// What --profile records of a training, what it makes of it, and what it advises.
#include "trainer/profile/profile.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "recording.hpp"
#include "scratch.hpp"
#include "small_models.hpp"
#include "thread_world.hpp"
#include "trainer/commands/profiling.hpp"
#include "trainer/devices/cpu/cpu.hpp"
#include "trainer/parallel/profiled_communicator.hpp"
#include "trainer/profile/choices.hpp"
#include "trainer/profile/views.hpp"

namespace dp::trainer {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// What a test writes to an operation log.
Tensor tensor_of(std::int64_t numbers) {
    const auto memory = std::shared_ptr<float[]>(new float[static_cast<std::size_t>(numbers)]());
    return {std::shared_ptr<void>(memory, memory.get()), Type::f32, {numbers}};
}

TEST(OperationLog, LogsOnlyBetweenStartAndStop) {
    OperationLog log;
    const Tensor x = tensor_of(4);
    const auto operate = [&] { const auto timed = log.time(Operation::zero, 0, {{&x, Access::write}}); };
    operate();
    log.start();
    operate();
    log.stop();
    operate();
    ASSERT_EQ(log.operations().size(), 1u);
    EXPECT_LE(log.operations()[0].begin, log.operations()[0].end);
}

TEST(OperationLog, AnOperationThatConsistsOfOthersIsOne) {
    OperationLog log;
    const Tensor x = tensor_of(4), none;
    log.start();
    {
        const auto outer = log.time(Operation::linear_gelu, 7, {{&x, Access::read}, {&none, Access::read}});
        const auto inner = log.time(Operation::linear, 5, {{&x, Access::read}});
    }
    ASSERT_EQ(log.operations().size(), 1u);
    EXPECT_EQ(log.operations()[0].operation, Operation::linear_gelu);
    EXPECT_EQ(log.operations()[0].flops, 7);
    EXPECT_EQ(log.operations()[0].uses, 1u) << "an empty tensor is none";
}

TEST(OperationLog, TrafficIsThatOfTheTensors) {
    OperationLog log;
    const Tensor x = tensor_of(4), y = tensor_of(10);
    log.start();
    { const auto timed = log.time(Operation::add, 0, {{&x, Access::read}, {&y, Access::update}}); }
    { const auto timed = log.time(Operation::gather, 0, {{&y, Access::rows}, {&x, Access::write}}); }
    EXPECT_EQ(log.operations()[0].bytes, 4 * 4 + 2 * 10 * 4);
    EXPECT_EQ(log.operations()[1].bytes, 4 * 4);
}

TEST(OperationLog, AnOperationIsItsParametersLayersOrThatOfWhatItTakes) {
    OperationLog log;
    const Tensor weights = tensor_of(100), x = tensor_of(4), y = tensor_of(4), z = tensor_of(4);
    log.name(weights.view(0, {50}), Named::value, "first");
    log.name(weights.view(50, {50}), Named::value, "second");
    log.start();
    const Tensor second = weights.view(50, {50});
    {
        const auto timed = log.time(Operation::linear, 0,
                                    {{&x, Access::read}, {&second, Access::read}, {&y, Access::write}});
    }
    { const auto timed = log.time(Operation::gelu, 0, {{&y, Access::read}, {&z, Access::write}}); }
    { const auto timed = log.time(Operation::zero, 0, {{&weights, Access::write}}); }
    { const auto timed = log.time(Operation::adam, 0, {{&second, Access::update}}); }
    std::vector<std::string> owners;
    for (const auto& one : log.operations()) owners.push_back(log.owners()[one.owner]);
    EXPECT_THAT(owners, ::testing::ElementsAre("second", "second", "", ""))
        << "all parameters together are no layer's, and the optimizer is none's";
    // Two views of one allocation are one memory, as large as the part that was used.
    ASSERT_EQ(log.memories().size(), 4u);
    EXPECT_EQ(log.memories()[1].bytes, 400);
}

TEST(Profile, StepsAreThoseThatThereAre) {
    struct Case {
        StepRange wanted;
        std::int64_t steps;
        StepRange expected;
    };
    for (const auto& [wanted, steps, expected] : std::vector<Case>{{{10, 15}, 100, {10, 15}},
                                                                   {{10, 15}, 12, {10, 12}},
                                                                   {{10, 15}, 9, {5, 9}},
                                                                   {{10, 15}, 30000, {10, 15}},
                                                                   {{12, 12}, 3, {3, 3}},
                                                                   {{10, 15}, 1, {1, 1}},
                                                                   {{1, 1000}, 4, {1, 4}},
                                                                   {{50, 1000}, 20, {11, 20}}})
        EXPECT_EQ(steps_to_profile(wanted, steps), expected)
            << wanted.first << ":" << wanted.last << " of " << steps;
}

TEST(Profile, AParametersLayerIsItsNameWithoutTheKind) {
    EXPECT_EQ(layer_of("ffn.1.weight"), "ffn.1");
    EXPECT_EQ(layer_of("h.0.attn.c_attn.bias"), "h.0.attn.c_attn");
    EXPECT_EQ(layer_of("wte"), "wte");
}

TEST(Profile, AnOperationsPartFollowsFromItsPlace) {
    const std::vector<std::pair<Operation, Part>> step{
        {Operation::zero, Part::optimizer},  // the sums of an accumulated step
        {Operation::gather, Part::load},
        {Operation::convolve, Part::forward},
        {Operation::convolve_backward_input, Part::forward},  // a transposed convolution
        {Operation::copy_columns, Part::forward},
        {Operation::sigmoid_dice, Part::forward},
        {Operation::copy_columns, Part::backward},
        {Operation::convolve, Part::backward},  // of the transposed one
        {Operation::convolve_backward_parameters, Part::backward},
        {Operation::start_all_reduces, Part::communication},
        {Operation::gelu, Part::forward},  // recomputed
        {Operation::gelu_backward, Part::backward},
        {Operation::wait_all_reduces, Part::communication},
        {Operation::square_sum, Part::optimizer},
        {Operation::scale, Part::optimizer},
        {Operation::adam, Part::optimizer},
        {Operation::convert, Part::optimizer},  // to bf16
        {Operation::gather, Part::load},        // the next batch
        {Operation::convolve, Part::forward},
    };
    std::vector<LoggedOperation> logged;
    std::vector<Part> expected;
    for (const auto& [operation, part] : step) {
        logged.push_back({operation, 0, 0, 0, 0, 0, 0, 0});
        expected.push_back(part);
    }
    EXPECT_EQ(parts_of(logged), expected);
}

constexpr std::int64_t kSteps = 5;

// Trains with steps 3 and 4 profiled.
std::unique_ptr<ProfileRecorder> recorded(const ModelInfo& info, Settings settings, Communicator& ranks,
                                          const ModelShape& of = shape()) {
    auto recorder = std::make_unique<ProfileRecorder>(StepRange{3, 4});
    const auto device = open_cpu(1, &recorder->log());
    const auto model = info.make(of);
    settings.max_steps = kSteps;
    recorder->follow(model->parameters(), ranks, device->memory(), kSteps);
    Recording observer(*recorder);
    const auto done = train(info, *model, data_for(info), settings, *device, ranks, observer);
    EXPECT_TRUE(done) << done.error().message;
    return recorder;
}
std::unique_ptr<ProfileRecorder> recorded(std::string_view model, Settings settings = {},
                                          const ModelShape& of = shape()) {
    SingleCommunicator alone;
    settings.batch = 4;
    return recorded(*find_model(model), settings, alone, of);
}

double sum(const auto& numbers) {
    return std::accumulate(numbers.begin(), numbers.end(), 0.0);
}

struct ProfileOfModel : ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Each, ProfileOfModel, ::testing::Values("cnn", "ffn", "gpt", "linear", "unet2d"),
                         [](const auto& one) { return one.param; });

TEST_P(ProfileOfModel, HasAllTimeOnceAndAllLayers) {
    const auto recorder = recorded(GetParam());
    ASSERT_EQ(recorder->steps().size(), 2u);
    EXPECT_GT(recorder->seconds_without(), 0) << "there was no step before but the first";
    const Profile profile = profile_of(*recorder, Peaks{1e9, 1e9});
    EXPECT_NEAR(sum(profile.parts) + profile.other, profile.seconds, 1e-9);
    EXPECT_GE(profile.other, 0);
    for (const auto* rows : {&profile.operations, &profile.layers}) {
        double total = 0;
        for (const ProfileRow& row : *rows) {
            total += row.total();
            EXPECT_GT(row.total(), 0) << row.name;
        }
        EXPECT_NEAR(total, sum(profile.parts), 1e-9);
    }
    for (const Part part : {Part::load, Part::forward, Part::backward, Part::optimizer})
        EXPECT_GT(profile.parts[static_cast<std::size_t>(part)], 0) << name_of(part);
    std::set<std::string> layers;
    for (const ProfileRow& row : profile.layers) layers.insert(row.name);
    const auto model = find_model(GetParam())->make(shape());
    for (const Parameter& one : model->parameters().all())
        EXPECT_TRUE(layers.contains(layer_of(one.name))) << one.name;
}

TEST_P(ProfileOfModel, CountsTheArithmeticThatTheModelSaysItHas) {
    const auto recorder = recorded(GetParam());
    const RecordedStep& step = recorder->steps().front();
    const auto all = std::span(recorder->log().operations()).subspan(step.first, step.operations);
    const auto parts = parts_of(all);
    double forward = 0, backward = 0;
    for (std::size_t i = 0; i < all.size(); ++i)
        (parts[i] == Part::forward ? forward : backward) += all[i].flops;
    const double expected = 4 * find_model(GetParam())->make(shape())->forward_flops_per_sample();
    // GPT's convention counts embeddings, gains and biases as products, and all pairs of tokens at half.
    const double tolerance = GetParam() == "gpt" ? 0.15 : 1e-9;
    EXPECT_NEAR(forward / expected, 1, tolerance);
    // The first layer has no gradient of its input.
    EXPECT_LE(backward, 2.3 * forward);
    EXPECT_GT(backward, forward);
}

TEST_P(ProfileOfModel, KnowsThatTheOptimizerWritesCopiesOfParameters) {
    Settings settings;
    settings.optimizer = Optimization::adam;
    settings.precision = Precision::bf16;
    const auto recorder = recorded(GetParam(), settings);
    const auto kinds = profile_of(*recorder, std::nullopt).memory.kinds;
    const std::int64_t parameters = find_model(GetParam())->make(shape())->parameters().padded_count();
    EXPECT_EQ(kinds[static_cast<std::size_t>(MemoryKind::parameters)], (4 + 2) * parameters);
    EXPECT_EQ(kinds[static_cast<std::size_t>(MemoryKind::optimizer)], 2 * 4 * parameters);
}

TEST_P(ProfileOfModel, KnowsWhatMemoryIsFor) {
    Settings settings;
    settings.optimizer = Optimization::adam;
    const auto recorder = recorded(GetParam(), settings);
    const Profile profile = profile_of(*recorder, std::nullopt);
    const auto bytes = [&](MemoryKind kind) { return profile.memory.kinds[static_cast<std::size_t>(kind)]; };
    const auto model = find_model(GetParam())->make(shape());
    const std::int64_t parameters = 4 * model->parameters().padded_count();
    EXPECT_EQ(bytes(MemoryKind::parameters), parameters);
    EXPECT_EQ(bytes(MemoryKind::gradients), parameters);
    EXPECT_EQ(bytes(MemoryKind::optimizer), 2 * parameters);
    EXPECT_GT(bytes(MemoryKind::activations), 0);
    EXPECT_GT(bytes(MemoryKind::data), 0);
    EXPECT_LE(profile.memory.peak_bytes(), sum(profile.memory.kinds));
    EXPECT_LE(profile.memory.peak_bytes(), profile.memory.held);
    EXPECT_GE(profile.memory.peak_bytes(), 4 * parameters);
    EXPECT_EQ(profile.memory.curve.size(), recorder->steps().back().operations);
    EXPECT_FALSE(profile.memory.largest.empty());
    // It is not the same at all times: activations come and go.
    const auto activations = [&](const auto& now) {
        return now[static_cast<std::size_t>(MemoryKind::activations)];
    };
    const auto [least, most] = std::ranges::minmax(profile.memory.curve | std::views::transform(activations));
    EXPECT_LT(least, most);
}

TEST(Profile, SumsOfMicroBatchesAreGradients) {
    Settings settings;
    settings.accumulate = 2;
    const auto profile = profile_of(*recorded("ffn", settings), std::nullopt);
    const std::int64_t parameters = 4 * find_model("ffn")->make({})->parameters().padded_count();
    EXPECT_EQ(profile.memory.kinds[static_cast<std::size_t>(MemoryKind::parameters)], parameters);
    EXPECT_EQ(profile.memory.kinds[static_cast<std::size_t>(MemoryKind::gradients)], 2 * parameters);
}

TEST(Profile, MicroBatchesAreCounted) {
    Settings settings;
    settings.accumulate = 3;
    const auto operations = profile_of(*recorded("ffn", settings), std::nullopt).operations;
    const auto calls = [&](std::string_view name) {
        return std::ranges::find(operations, name, &ProfileRow::name)->calls;
    };
    EXPECT_EQ(calls("linear"), 9);
    EXPECT_EQ(calls("adam"), 1);
}

TEST(Profile, APeakIsNeverPassed) {
    ProfileRow row;
    row.seconds = {0, 1, 1, 0, 0};
    EXPECT_EQ(row.share_of_peak(), std::nullopt);
    row.least = 0.5;
    EXPECT_EQ(row.share_of_peak(), 0.25);
    row.least = 5;
    EXPECT_EQ(row.share_of_peak(), 1);
}

// Of an all-reduce that takes its time beside the backward pass.
class SlowSums final : public Communicator {
 public:
    std::string_view name() const override { return "slow"; }
    std::int64_t rank() const override { return 0; }
    std::int64_t size() const override { return 2; }
    Result<void> all_reduce(const Tensor&, Reduction) override { return {}; }
    Result<void> all_gather(const Tensor&) override { return {}; }
    Result<void> broadcast(const Tensor&, std::int64_t) override { return {}; }
    Result<void> wait_all_reduces() override {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        busy_ += 12'000'000;
        return {};
    }
    std::optional<std::int64_t> background_nanoseconds() const override { return busy_; }

 private:
    std::int64_t busy_ = 0;
};

TEST(Profile, CommunicationThatNothingHidesIsToldFromTheRest) {
    ProfileRecorder recorder({2, 3});
    const auto device = open_cpu(1, &recorder.log());
    ProfiledCommunicator ranks(recorder.log(), std::make_unique<SlowSums>());
    const ModelInfo& info = *find_model("linear");
    const auto model = info.make({});
    Settings settings;
    settings.batch = 4;
    recorder.follow(model->parameters(), ranks, device->memory(), kSteps);
    Recording observer(recorder);
    ASSERT_TRUE(
        repeat_step(info, *model, make_linear_regression(), settings, *device, ranks, kSteps, observer));
    const Profile profile = profile_of(recorder, std::nullopt);
    const double shown = profile.parts[static_cast<std::size_t>(Part::communication)];
    EXPECT_GE(shown, 0.005);
    ASSERT_TRUE(profile.hidden);
    EXPECT_NEAR(*profile.hidden, std::max(0.012 - shown, 0.0), 1e-3)
        << "of 12 ms, what the step did not wait for";
}

TEST(Profile, ATrainingThatBeginsAgainIsProfiledAnew) {
    ProfileRecorder recorder({2, 3});
    SingleCommunicator alone;
    const auto device = open_cpu(1, &recorder.log());
    const auto model = find_model("linear")->make({});
    model->place(*device, 1, 4);
    const auto step = [&] {
        recorder.on_step_begin();
        device->zero(model->parameters().gradients());
        recorder.on_step();
    };
    recorder.follow(model->parameters(), alone, device->memory(), 9);
    step();
    step();
    recorder.on_step_begin();  // a peer dies
    device->zero(model->parameters().gradients());
    recorder.follow(model->parameters(), alone, device->memory(), 9);
    EXPECT_TRUE(recorder.steps().empty());
    EXPECT_TRUE(recorder.log().operations().empty());
    recorder.resumed(8);  // one step is left: the last one there is
    EXPECT_EQ(recorder.range(), (StepRange{1, 1}));
    step();
    EXPECT_EQ(recorder.steps().size(), 1u);
    EXPECT_EQ(recorder.log().operations().size(), 1u);
    // What is whole is kept.
    recorder.follow(model->parameters(), alone, device->memory(), 9);
    step();
    step();
    EXPECT_EQ(recorder.steps().size(), 1u);
}

TEST(Profile, ViewsAgree) {
    const auto recorder = recorded("gpt");
    Profile profile = profile_of(*recorder, Peaks{2e9, 1e9});
    profile.what = "gpt <small>";
    profile.version = "1";
    profile.ranks = {{0.1, 0.01, 0}, {0.1, 0.05, 0}};
    profile.advice = {{"batch: 4 of 8", {"--batch-size=8"}, 1.5}};
    const std::string text = profile_text(profile);
    EXPECT_THAT(text, HasSubstr("profile of steps 3 to 4: "));
    EXPECT_THAT(text, HasSubstr("\n  - batch: 4 of 8"));
    EXPECT_THAT(text, HasSubstr("attention_backward"));
    EXPECT_THAT(text, HasSubstr("h.1.mlp.c_fc"));
    EXPECT_THAT(
        text,
        HasSubstr("ranks spend 10.0 % to 50.0 % of a step in communication: the others wait for rank 0\n"));
    EXPECT_THAT(text, HasSubstr("(no layer)"));
    profile.ranks[1].communication = 0.015;
    profile.advice.clear();
    EXPECT_THAT(profile_text(profile), HasSubstr("10.0 % to 15.0 % of a step in communication\n"));
    EXPECT_THAT(profile_text(profile), HasSubstr("advice: none; nothing that was tried is a tenth faster"));
    profile.untried = "memory does not suffice to try others";
    EXPECT_THAT(profile_text(profile), HasSubstr("advice: none; not all was tried: memory does not suffice"));
    EXPECT_THAT(profile_page(profile), HasSubstr("not all was tried: memory does not suffice"));
    profile.ranks[1].communication = 0.05;
    const auto json = profile_json(profile);
    EXPECT_EQ(json["seconds"], profile.seconds);
    EXPECT_EQ(json["operations"].size(), profile.operations.size());
    EXPECT_EQ(json["memory"]["curve"].size(), profile.memory.curve.size());
    EXPECT_EQ(json["ranks"][1]["communication"], 0.05);
}

TEST(Profile, ANameThatIsNoTextIsStillJson) {
    Profile profile;
    profile.what = "data from /\xfc";
    const Scratch scratch;
    ASSERT_TRUE(write_profile(scratch.path() / "p.json", profile, ProfileRecorder({}), 0));
    EXPECT_TRUE(nlohmann::json::parse(std::ifstream(scratch.path() / "p.json")).contains("what"));
}

TEST(Profile, SlicesOfTheTraceAreNested) {
    const auto recorder = recorded("unet2d");
    const auto trace = nlohmann::json::parse(profile_trace(*recorder, 3));
    std::vector<std::pair<double, double>> open;  // those around this one
    std::size_t slices = 0;
    for (const auto& event : trace["traceEvents"]) {
        EXPECT_EQ(event["pid"], 3);
        if (event["ph"] != "X") continue;
        ++slices;
        const double begin = event["ts"], end = begin + event["dur"].get<double>();
        while (!open.empty() && open.back().second <= begin) open.pop_back();
        if (!open.empty()) {
            EXPECT_LE(end, open.back().second + 1e-6) << event.dump();
        }
        open.emplace_back(begin, end);
    }
    EXPECT_GT(slices, recorder->log().operations().size());
}

TEST(Profile, IsWrittenInTheFormThatItsNameSays) {
    const Scratch scratch;
    const auto recorder = recorded("linear");
    const Profile profile = profile_of(*recorder, std::nullopt);
    const auto write = [&](const char* name) {
        return write_profile(scratch.path() / name, profile, *recorder, 0);
    };
    for (const char* one : {"p.txt", "p.json", "p.html", "p.trace.json"})
        EXPECT_EQ(*write(one), scratch.path() / one);
    EXPECT_TRUE(nlohmann::json::parse(std::ifstream(scratch.path() / "p.json")).contains("operations"));
    EXPECT_TRUE(
        nlohmann::json::parse(std::ifstream(scratch.path() / "p.trace.json")).contains("traceEvents"));
    EXPECT_EQ(*write("a/b"), scratch.path() / "a/b/profile.html");
    for (const char* file : {"profile.txt", "profile.json", "profile.html", "profile.trace.json"})
        EXPECT_TRUE(std::filesystem::exists(scratch.path() / "a/b" / file)) << file;
    EXPECT_FALSE(write("p.txt/in"));
    EXPECT_FALSE(profile_can_be_written("/proc/p.json"));
    EXPECT_FALSE(profile_can_be_written("/proc/p"));
    EXPECT_TRUE(profile_can_be_written(scratch.path() / "new"));
    EXPECT_FALSE(std::filesystem::exists(scratch.path() / "new"));
}

TEST(Peaks, AreMeasuredWhereThereIsMemory) {
    const auto device = open_cpu(1);
    const auto peaks = measure_peaks(*device, Type::f32, 1);
    ASSERT_TRUE(peaks);
    EXPECT_GT(peaks->flops, 1e8);
    EXPECT_GT(peaks->bytes, 1e8);
    EXPECT_EQ(device->memory().held(), 0);
    EXPECT_EQ(measure_peaks(*device, Type::f32, 1'000'000), std::nullopt)
        << "so many ranks have not the memory";
    device->memory().set_limit(std::int64_t{1} << 20);
    EXPECT_EQ(measure_peaks(*device, Type::f32, 1), std::nullopt);
    EXPECT_FALSE(device->failed());
}

// ---- advice

AdviceCase usual() {
    AdviceCase now;
    now.step = 0.1;
    now.batch = 16;
    now.threads = 2;
    now.alone = 0.1;
    now.largest_batch = 1024;
    return now;
}

TEST(Advice, IsSilentWhereThereIsNothingToGain) {
    EXPECT_TRUE(advice_for({}).empty());
    AdviceCase now = usual();
    EXPECT_TRUE(advice_for(now).empty());
    now.other_threads = {{1, 0.2}, {4, 0.095}};
    now.other_batches = {{32, 0.2}, {64, 0.39}};
    now.most_accumulate = 64;
    now.communication = 0.005;
    now.without_recompute = 0.097;
    EXPECT_TRUE(advice_for(now).empty());
    now = usual();
    now.most_accumulate = 1;  // alone, or with sums in order
    now.communication = 0.09;
    EXPECT_TRUE(advice_for(now).empty());
}

TEST(Advice, OfThreadsIsTheLeastOfNearlyTheBest) {
    AdviceCase now = usual();
    now.other_threads = {{8, 0.049}, {4, 0.05}, {1, 0.2}};
    const auto advice = advice_for(now);
    ASSERT_EQ(advice.size(), 1u);
    EXPECT_EQ(advice[0].options, std::vector<std::string>{"OMP_NUM_THREADS=4"});
    EXPECT_NEAR(advice[0].gain, 2, 0.01);
    EXPECT_EQ(advice[0].text, "threads: 4 instead of 2: about 2.0x as fast");
}

TEST(Advice, OfABatchCountsWhatDoesNotGrowWithIt) {
    AdviceCase now = usual();
    now.step = 0.2;
    now.communication = 0.1;
    now.other_batches = {{32, 0.1}, {64, 0.2}, {128, 0.4}};
    const auto advice = advice_for(now);
    ASSERT_EQ(advice.size(), 1u);
    // 16 in 0.2 s; 32 in 0.2, 64 in 0.3, 128 in 0.5: 2, 2.7 and 3.2 times.
    EXPECT_EQ(advice[0].options, std::vector<std::string>{"--batch-size=128"});
    EXPECT_NEAR(advice[0].gain, 3.2, 1e-9);
    EXPECT_THAT(advice[0].text, HasSubstr("batch: 16 of 1024 possible: 128 gives"));
}

// Its steps repeat one batch, whose data is in the caches, in a process whose memory is another; what is so in all trials is no gain.
TEST(Advice, ATrialThatIsSlowerOrFasterThanTheTrainingPredictsTheSame) {
    for (const double unlike : {1.0, 1.34, 0.7}) {
        AdviceCase now = usual();
        now.alone = unlike * now.step;
        now.other_batches = {{64, 4 / 2.18 * now.alone}};
        now.other_threads = {{4, now.alone / 1.6}};
        now.without_recompute = now.alone / 1.3;
        const auto advice = advice_for(now);
        ASSERT_EQ(advice.size(), 3u) << unlike;
        EXPECT_NEAR(advice[0].gain, 2.18, 1e-9) << "a batch of 64, " << unlike;
        EXPECT_NEAR(advice[1].gain, 1.6, 1e-9) << "4 threads, " << unlike;
        EXPECT_NEAR(advice[2].gain, 1.3, 1e-9) << "without recomputing, " << unlike;
    }
}

// More samples are more data to wait for; threads change nothing about that.
TEST(Advice, TheWaitForDataGrowsWithTheBatchAlone) {
    AdviceCase now = usual();
    now.step = 0.1;
    now.load = 0.02;
    now.alone = 0.08;
    now.other_batches = {{64, 0.16}};
    now.other_threads = {{4, 0.04}};
    const auto advice = advice_for(now);
    ASSERT_EQ(advice.size(), 2u);
    EXPECT_NEAR(advice[0].gain, 4 * 0.1 / (4 * 0.02 + 0.16), 1e-9) << "a batch of 64";
    EXPECT_NEAR(advice[1].gain, 0.1 / (0.02 + 0.04), 1e-9) << "4 threads";
}

TEST(Advice, OfCommunicationIsToSumLessOften) {
    AdviceCase now = usual();
    now.most_accumulate = 1000;
    now.accumulate = 2;
    now.communication = 0.05;
    const auto advice = advice_for(now);
    ASSERT_EQ(advice.size(), 1u);
    // Half: 0.025 of 0.075 is a third; an eighth: 0.00625 of 0.05625 is 11 %; 1/16 is bearable.
    EXPECT_EQ(advice[0].options, std::vector<std::string>{"--accumulate=32"});
    EXPECT_NEAR(advice[0].gain, 0.1 / (0.05 + 0.05 / 16), 1e-9);
    EXPECT_THAT(advice[0].text, HasSubstr("50 % of a step waits for it"));
    now.most_accumulate = 9;  // the data ends there
    EXPECT_EQ(advice_for(now).at(0).options, std::vector<std::string>{"--accumulate=8"});
    now.most_accumulate = 3;
    EXPECT_TRUE(advice_for(now).empty());
}

TEST(Advice, OfRecomputingIsToLeaveItOut) {
    AdviceCase now = usual();
    now.without_recompute = 0.08;
    const auto advice = advice_for(now);
    ASSERT_EQ(advice.size(), 1u);
    EXPECT_EQ(advice[0].leave_out, "--recompute");
    EXPECT_NEAR(advice[0].gain, 1.25, 1e-9);
}

TEST(Advice, TheLargestGainComesFirst) {
    AdviceCase now = usual();
    now.other_threads = {{4, 0.08}};
    now.without_recompute = 0.05;
    const auto advice = advice_for(now);
    ASSERT_EQ(advice.size(), 2u);
    EXPECT_GT(advice[0].gain, advice[1].gain);
}

// As the trials need: a step alone that is like the training's.
AdviceCase tried(double step, std::int64_t available) {
    const ModelInfo& info = *find_model("linear");
    const ModelShape of{};
    const Dataset data = make_linear_regression();
    Settings settings;
    settings.batch = 4;
    const auto model = info.make(of);
    AdviceCase now;
    now.step = step;
    now.batch = settings.batch;
    now.threads = 1;
    try_choices({{info, of, data, settings}, {*model, settings, &data, 1}, 1, 1, available, false}, now);
    return now;
}

TEST(Advice, WhatIsNotTriedIsSaid) {
    constexpr std::int64_t kPlenty = std::int64_t{1} << 40;
    EXPECT_THAT(tried(0.01, 1000).untried, HasSubstr("memory does not suffice"));
    EXPECT_THAT(tried(5, kPlenty).untried, HasSubstr("a step takes too long"));
    const AdviceCase other = tried(1e-7, kPlenty);
    EXPECT_THAT(other.untried,
                ::testing::AnyOf(HasSubstr("and 0.0001 ms in the training"), HasSubstr("other programs")));
    EXPECT_EQ(other.alone, 0);
    EXPECT_TRUE(advice_for(other).empty());
}

TEST(Advice, ABatchIsAsLargeAsMemoryAndDataAllow) {
    const ModelInfo& info = *find_model("ffn");
    const auto model = info.make({});
    const Dataset data = data_for(info);  // 2000
    Settings settings;
    settings.batch = 16;
    const MemoryCase memory{*model, settings, &data, 2};
    EXPECT_EQ(largest_batch(memory, std::int64_t{1} << 40, 2000), 512)
        << "1024 of 2 ranks are more than there are";
    EXPECT_EQ(largest_batch(memory, estimate_memory(memory).total(), 2000), 16);
}

}  // namespace
}  // namespace dp::trainer
