// SPDX-License-Identifier: Apache-2.0
//
// What `trainer compile` makes and a run uses: stored data, plans, choices, and the table.
// compile_command_test.cpp tests the subcommand itself.

#include <gmock/gmock.h>

#include <array>
#include <cstdlib>
#include <optional>

#include "devices.hpp"
#include "idx_files.hpp"
#include "scratch.hpp"
#include "trainer/commands/compile.hpp"
#include "trainer/compile/compiled.hpp"
#include "trainer/data/prepared.hpp"
#include "trainer/data/token_shard.hpp"
#include "trainer/devices/cpu/cpu.hpp"
#include "trainer/devices/cpu/processor.hpp"
#include "trainer/reports/metrics_file.hpp"

namespace dp::trainer {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;
using Json = nlohmann::json;

bool equal(const Matrix& a, const Matrix& b) {
    return a.type == b.type && a.columns == b.columns && a.bytes == b.bytes;
}
bool equal(const Split& a, const Split& b) {
    return a.count == b.count && equal(a.features, b.features) && equal(a.targets, b.targets) &&
           a.normalise.scale == b.normalise.scale && a.normalise.shift == b.normalise.shift &&
           a.next_is_target == b.next_is_target;
}
bool equal(const Dataset& a, const Dataset& b) {
    return a.source == b.source && equal(a.train, b.train) && equal(a.test, b.test);
}

// A directory with sprites of every kind in it.
void write_images(const Scratch& scratch) {
    write_sprites(scratch, {0, 5, 1, 7, 9, 2, 3, 4},
                  {'\x50', '\x60', '\x70', '\x7f', '\x11', '\x22', '\x33', '\x44'});
}

// Stores the request's data, as the subcommand does.
void store(const Cache& cache, const DataRequest& request, const std::string& build = "b1") {
    const auto data = load_all(request);
    ASSERT_TRUE(data) << data.error().message;
    const auto opened = cache.open_for_writing();
    ASSERT_TRUE(opened);
    ASSERT_TRUE(store_data(cache, data_key(request, build), request, *data, 0.25));
}

TEST(StoredData, IsWhatWouldHaveBeenLoaded) {
    const Scratch scratch, place;
    write_images(scratch);
    const Cache cache(place.path());
    const DataRequest images{.set = DataSet::fashion_mnist, .directory = scratch.path()};
    const DataRequest composed{
        .set = DataSet::segmentation, .directory = scratch.path(), .samples = 9, .seed = 3};
    for (DataRequest request : {images, composed}) {
        store(cache, request);
        const auto found = cache.find(data_key(request, "b1"));
        ASSERT_TRUE(found.entry) << found.why_not;
        EXPECT_EQ(found.entry->content.at("seconds"), 0.25);
        const auto cached = read_data(*found.entry, request);
        ASSERT_TRUE(cached) << cached.error().message;
        EXPECT_TRUE(equal(*cached, *load(request)));
    }
    // --samples of files is no other entry: it takes the first.
    DataRequest fewer = images;
    fewer.samples = 3;
    const auto found = cache.find(data_key(fewer, "b1"));
    ASSERT_TRUE(found.entry);
    EXPECT_TRUE(equal(*read_data(*found.entry, fewer), *load(fewer)));
}

TEST(StoredData, IsStaleOnceBuildOrFilesAreOthersAndOfAnotherNameForOtherImages) {
    const Scratch scratch, place;
    write_images(scratch);
    const Cache cache(place.path());
    const DataRequest request{
        .set = DataSet::segmentation, .directory = scratch.path(), .samples = 4, .seed = 3};
    store(cache, request);
    const auto why_not = [&](const DataRequest& other, const std::string& build = "b1") {
        const auto found = cache.find(data_key(other, build));
        return found.entry ? "found" : found.why_not;
    };
    EXPECT_EQ(why_not(request), "found");
    EXPECT_EQ(why_not(request, "b2"), "stale (build)");
    DataRequest other = request;
    other.seed = 4;
    EXPECT_EQ(why_not(other), "");
    other = request;
    other.samples = 5;
    EXPECT_EQ(why_not(other), "");
    other = request;
    other.image_size = 512;
    EXPECT_EQ(why_not(other), "");
    // As long as before, and as old; a byte of the end is another.
    const auto file = scratch / "train-images-idx3-ubyte";
    const auto date = std::filesystem::last_write_time(file);
    std::string contents = contents_of(file);
    contents.back() ^= 1;
    scratch.write("train-images-idx3-ubyte", contents);
    std::filesystem::last_write_time(file, date);
    EXPECT_EQ(why_not(request), "stale (files)");
}

// What is kept of text is that its files have been checked; it is read as ever.
TEST(StoredData, OfTextIsThatItsFilesAreSound) {
    const Scratch scratch, place;
    ASSERT_TRUE(write_shard(scratch / "train.bin", std::vector<Token>(50)));
    ASSERT_TRUE(write_shard(scratch / "val.bin", std::vector<Token>(11)));
    ASSERT_TRUE(write_prepared(scratch.path(), "", ""));
    const DataRequest request{
        .set = DataSet::tokens, .directory = scratch.path(), .sequence = 10, .vocabulary = 300};
    const Cache cache(place.path());
    store(cache, request);
    const auto found = cache.find(data_key(request, "b1"));
    ASSERT_TRUE(found.entry);
    EXPECT_EQ(found.entry->blocks.size(), 0u);
    EXPECT_TRUE(equal(*read_data(*found.entry, request), *load(request)));
    // Another sequence is the same text.
    DataRequest longer = request;
    longer.sequence = 5;
    EXPECT_TRUE(cache.find(data_key(longer, "b1")).entry);
    // A shard that is another is looked at again, and refused as without a cache.
    ASSERT_TRUE(write_shard(scratch / "train.bin", std::vector<Token>(50, 7)));
    EXPECT_EQ(cache.find(data_key(request, "b1")).why_not, "stale (files)");
    EXPECT_THAT(refusal_of(Compiled(place.path(), request).load()), HasSubstr("train.bin: changed since"));
}

TEST(Compiled, SaysWhatItUsedAndLoadsAsEverWhatItCannotUse) {
    const Scratch scratch, place;
    write_images(scratch);
    const DataRequest request{.set = DataSet::fashion_mnist, .directory = scratch.path()};
    const auto loaded = load(request);
    const auto line_of = [&](std::optional<std::filesystem::path> directory) {
        Compiled compiled(directory, request);
        const auto data = compiled.load();
        EXPECT_TRUE(data && equal(*data, *loaded));
        return compiled.line(time_now()).value_or("");
    };
    EXPECT_EQ(line_of(std::nullopt), "");
    EXPECT_EQ(line_of(place.path()), "");
    EXPECT_EQ(line_of(place / "nowhere"), "");
    store(Cache(place.path()), request, "another build");
    EXPECT_EQ(
        line_of(place.path()),
        "compiled: the data is stale (build); `trainer compile` makes it again, in " + place.path().string());
    store(Cache(place.path()), request, build_of_this_program());
    EXPECT_THAT(line_of(place.path()), MatchesRegex("compiled: data of [0-9]+ s ago, in .*"));
    // A number of the images is another.
    const auto file = std::filesystem::directory_iterator(place.path())->path();
    std::string contents = contents_of(file);
    contents[4096 + 100] ^= 1;
    place.write(file.filename().string(), contents);
    EXPECT_THAT(line_of(place.path()), StartsWith("compiled: the data is damaged;"));
    place.write(file.filename().string(), contents.substr(0, 4000));
    EXPECT_THAT(line_of(place.path()), StartsWith("compiled: the data is cut short;"));
}

Plan example() {
    Plan plan;
    plan.needs = {1000, 2000, 3000, 4000, 50'000};
    plan.peak = 58'000;
    plan.plain_seconds = 0.02;
    plan.step_seconds = 0.01;
    plan.choices.set("threads", "4");
    plan.choices.set("product 1 x 2", std::string("\0\xff\x80x", 4));
    return plan;
}

TEST(Plan, ComesBackFromItsJson) {
    const Plan plan = example();
    const auto again = plan_of(Json::parse(json_of(plan).dump()));
    ASSERT_TRUE(again);
    EXPECT_EQ(json_of(*again), json_of(plan));
    EXPECT_EQ(again->choices.find("product 1 x 2"), std::string("\0\xff\x80x", 4));
    EXPECT_EQ(again->needs.total(), 60'000);
    EXPECT_FALSE(plan_of(Json::array()));
    Json json = json_of(plan);
    json.erase("peak");
    EXPECT_FALSE(plan_of(json));
    json = json_of(plan);
    json["choices"] = {{"threads", "four"}};
    EXPECT_FALSE(plan_of(json));
}

TEST(Compiled, GivesTheDeviceWhatWasFastest) {
    const Scratch place;
    const std::map<std::string, std::string> options{{"--model", "linear"}};
    const DataRequest request{.set = DataSet::linear_regression};
    const auto key = [&] {
        const auto device = open_cpu(2);
        const std::string build = build_of_this_program();
        return plan_key(options, *device, false, data_key(request, build), build);
    }();
    const Cache cache(place.path());
    const auto look = [&](Device& device, std::string& line) {
        Compiled compiled(place.path(), request);
        const Plan* plan = compiled.plan(options, false, device);
        line = compiled.line(time_now()).value_or("");
        return plan != nullptr ? std::optional<Plan>(*plan) : std::nullopt;
    };
    std::string line;
    const auto device = open_cpu(2);
    EXPECT_FALSE(look(*device, line));
    EXPECT_EQ(line, "");
    ASSERT_TRUE(cache.put(key, {{"no", "plan"}}, {}));
    EXPECT_FALSE(look(*device, line));
    EXPECT_THAT(line, StartsWith("compiled: the plan is damaged;"));
    Plan plan = example();
    plan.choices.set(kThreadsChoice, "1");
    ASSERT_TRUE(cache.put(key, json_of(plan), {}));
    EXPECT_FALSE(look(*open_cpu(3), line)) << "of another device";
    const auto found = look(*device, line);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->peak, plan.peak);
    EXPECT_EQ(device->description(), "cpu, 1 thread");
    EXPECT_THAT(line, HasSubstr("; 1 thread, in "));
}

TEST(Plan, NotesOfChoicesSayWhetherTheyAreKept) {
    TunedChoices choices;
    choices.set("attention 1 2 40 16", "cudnn 91900: cuDNN takes 2 us, ours 3 us");
    choices.set("attention 9 2 40 16", "ours: cuDNN takes 4 us, ours 3 us");
    choices.set("product 1 x 2 x 3", "7");
    using ::testing::ElementsAre;
    EXPECT_THAT(notes_of(choices, true),
                ElementsAre("attention 1 2 40 16: cudnn 91900: cuDNN takes 2 us, ours 3 us",
                            "attention 9 2 40 16: ours: cuDNN takes 4 us, ours 3 us"));
    EXPECT_THAT(notes_of(choices, false),
                ElementsAre("attention 1 2 40 16: cudnn 91900: cuDNN takes 2 us, ours 3 us, not kept: a "
                            "whole step is no faster",
                            "attention 9 2 40 16: ours: cuDNN takes 4 us, ours 3 us"));
}

TEST(Plan, EachThingThatATrainingDependsOnMakesAnotherEntry) {
    const auto device = open_cpu(2), smaller = open_cpu(1);
    const std::map<std::string, std::string> options{{"--model", "unet2d"}, {"--batch-size", "4"}};
    const std::map<std::string, std::string> others{{"--model", "unet2d"}, {"--batch-size", "8"}};
    CacheKey data{"data", {{"set", "images"}}, {{"files", "1"}}};
    const CacheKey other_data{"data", {{"set", "other images"}}, {{"files", "1"}}};
    const auto name = [](const Facts& facts, const Device& on, bool threads_given, const CacheKey& of) {
        return file_name(plan_key(facts, on, threads_given, of, "b1"));
    };
    std::vector<std::string> names{name(options, *device, false, data), name(others, *device, false, data),
                                   name(options, *smaller, false, data), name(options, *device, true, data),
                                   name(options, *device, false, other_data)};
    EXPECT_EQ(names[0], name(options, *device, false, data));
    std::sort(names.begin(), names.end());
    EXPECT_EQ(std::unique(names.begin(), names.end()), names.end());
    // And these make it stale.
    const auto from = [&](const std::string& build) {
        return plan_key(options, *device, false, data, build).from;
    };
    EXPECT_EQ(difference(from("b1"), from("b2")), "build");
    const Facts before = from("b1");
    data.from = {{"files", "2"}};
    EXPECT_EQ(difference(before, from("b1")), "data");
    EXPECT_THAT(before.at("libraries"), HasSubstr("oneDNN"));
}

TEST(Plan, WhatTookTooMuchIsRefused) {
    const auto model = find_model("ffn")->make({});
    Settings settings;
    settings.batch = 4096;
    const MemoryCase memory_case{*model, settings, nullptr, 1};
    EXPECT_FALSE(planned_problem("ffn", memory_case, 150 << 20, "cpu", 151 << 20));
    const auto problem = planned_problem("ffn", memory_case, 150 << 20, "cpu", 110 << 20);
    ASSERT_TRUE(problem);
    EXPECT_THAT(*problem,
                StartsWith("ffn with a batch of 4096 took 150.0 MiB when it was compiled, and cpu has "
                           "110.0 MiB; give a smaller --batch-size: "));
    EXPECT_THAT(*problem, HasSubstr("is the largest that fits"));
    // Four ranks of a node have parameters and optimizer once: 3 x 0.9 MiB, of which three fourths are saved.
    const MemoryCase of_four{*model, settings, nullptr, 4, nullptr, 4};
    EXPECT_FALSE(planned_problem("ffn", of_four, 150 << 20, "cpu", 149 << 20));
    EXPECT_TRUE(planned_problem("ffn", memory_case, 150 << 20, "cpu", 149 << 20));
    EXPECT_THAT(
        planned_problem("ffn", of_four, 150 << 20, "cpu", 110 << 20).value_or(""),
        StartsWith("ffn with a batch of 4096 took 150.0 MiB when it was compiled, 148.0 MiB where ranks "
                   "of a node share memory, and cpu has 110.0 MiB; "));
}

TEST(Threads, StayAsTheyAreUnlessFewerAreClearlyFaster) {
    const auto best = [](std::vector<ThreadTrial> trials) { return best_of(trials).threads; };
    EXPECT_EQ(best({{8, {1.0, 1}}}), 8);
    EXPECT_EQ(best({{8, {1.0, 1}}, {4, {0.5, 0.99}}, {2, {0.7, 1}}}), 4);
    EXPECT_EQ(best({{8, {1.0, 1}}, {4, {0.96, 1}}}), 8) << "that may be chance";
    EXPECT_EQ(best({{8, {1.0, 1}}, {4, {1.2, 1}}}), 8);
    EXPECT_EQ(best({{8, {1.0, 0.6}}, {4, {0.5, 1}}}), 8) << "the CPUs were used by others meanwhile";
}

TEST(Threads, TheDeviceTakesWhatWasChosen) {
    const auto device = open_cpu(3);
    EXPECT_THAT(device->facts().model, HasSubstr(cpu::processor_name()));
    EXPECT_THAT(device->facts().model, HasSubstr("3 threads"));
    TunedChoices choices;
    device->adopt(choices);
    EXPECT_THAT(device->description(), HasSubstr("3 threads"));
    choices.set(kThreadsChoice, "1");
    device->adopt(choices);
    EXPECT_THAT(device->description(), HasSubstr("1 thread"));
    EXPECT_EQ(threads_of(device->choices(), 3), 1);
    for (const char* nonsense : {"", "0", "-2", "two", "2 "}) {
        choices.set(kThreadsChoice, nonsense);
        EXPECT_EQ(threads_of(choices, 3), 3) << nonsense;
    }
}

class TunedDevice : public OnEachDevice {
 protected:
    static std::unique_ptr<Device> open() {
        return GetParam() == "cpu" ? open_cpu(1) : std::move(*open_cuda({}));
    }
    static std::vector<float> multiply(Device& device) {
        const Tensor x = upload(device, {64, 128}, random_values(64 * 128, 1)),
                     w = upload(device, {32, 128}, random_values(32 * 128, 2)),
                     b = upload(device, {32}, random_values(32, 3)), y = device.make(Type::f32, {64, 32});
        device.linear(x, w, b, Activation::relu, y);
        return device.values_of<float>(y);
    }
};
INSTANTIATE_ON_EACH_DEVICE(TunedDevice);

TEST_P(TunedDevice, WhatItFoundFastestTheNextOneTakesAndComesToTheSameBits) {
    const auto measuring = open(), next = open(), plain = open(), misled = open();
    measuring->choices().measure(true);
    const auto tuned = multiply(*measuring);
    measuring->choices().measure(false);
    const TunedChoices choices = measuring->choices();
    EXPECT_EQ(choices.all().empty(), GetParam() == "cpu");
    next->adopt(choices);
    EXPECT_EQ(multiply(*next), tuned);
    const auto untuned = multiply(*plain);
    expect_close(tuned, {untuned.begin(), untuned.end()}, 1e-5, "tuned");
    // Of another version, say.
    TunedChoices others;
    for (const auto& [what, choice] : choices.all()) others.set(what, "x");
    misled->adopt(others);
    EXPECT_EQ(multiply(*misled), untuned);
    for (const auto& device : {measuring.get(), next.get(), misled.get()}) EXPECT_TRUE(device->status());
}

// Whichever is faster here: both come to the same.
TEST_P(TunedDevice, AddsUpTheGradientOfABiasBesideTheProductOrApart) {
    const auto x = random_values(64 * 8, 1), dy = random_values(64 * 16, 2);
    std::vector<double> expected(16);
    for (std::size_t i = 0; i < dy.size(); ++i) expected[i % 16] += static_cast<double>(dy[i]);
    const auto sums = [&](Device& device) {
        const Tensor db = upload(device, {16}, random_values(16, 3));
        device.linear_backward_parameters(upload(device, {64, 16}, dy), upload(device, {64, 8}, x),
                                          device.make(Type::f32, {16, 8}), db);
        return device.values_of<float>(db);
    };
    const auto measuring = open();
    measuring->choices().measure(true);
    expect_close(sums(*measuring), expected, 1e-5, "measuring");
    measuring->choices().measure(false);
    for (const char* how : {"beside", "apart"}) {
        TunedChoices choices;
        for (const auto& [what, choice] : measuring->choices().all())
            choices.set(what, what.starts_with("bias gradient") ? how : choice);
        const auto device = open();
        device->adopt(choices);
        expect_close(sums(*device), expected, 1e-5, how);
        EXPECT_TRUE(device->status());
        const auto is_of_it = [&](const auto& one) { return one.second == how; };
        EXPECT_EQ(std::ranges::count_if(choices.all(), is_of_it), GetParam() == "cpu" ? 0 : 1);
    }
}

// Some algorithms fail where they are tried, and some where a product is added to what is there.
TEST_P(TunedDevice, TriesProductsAsTheyRun) {
    const auto device = open();
    device->choices().measure(true);
    const auto x = random_values(64 * 8, 1), dy = random_values(64 * 16, 2);
    const Tensor dw = device->make(Type::f32, {16, 8});
    for (int i = 0; i < 2; ++i)
        device->linear_backward_parameters(upload(*device, {64, 16}, dy), upload(*device, {64, 8}, x), dw, {},
                                           Write::add);
    device->choices().measure(false);
    std::vector<double> twice(16 * 8);
    for (std::size_t row = 0; row < 64; ++row)
        for (std::size_t i = 0; i < twice.size(); ++i)
            twice[i] +=
                2.0 * static_cast<double>(dy[row * 16 + i / 8]) * static_cast<double>(x[row * 8 + i % 8]);
    expect_close(device->values_of<float>(dw), twice, 1e-5, "dw");
    EXPECT_TRUE(device->status()) << device->status().error().message;
}

TEST(ProcessorName, IsWhatTheKernelSays) {
    const Scratch scratch;
    scratch.write("cpuinfo", "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nmodel name\t: another\n");
    EXPECT_EQ(cpu::processor_name(scratch.path()), "Some CPU @ 2 GHz");
    EXPECT_NE(cpu::processor_name(scratch / "nowhere"), "") << "ARM's kernels have no such line";
}

TEST(CompileTable, HasWhatWasDoneInWordsAndInJson) {
    CompileResult result;
    result.model = "ffn";
    result.device = "cpu";
    result.batch = 64;
    result.directory = "/c";
    result.data.made = Made::now;
    result.data.bytes = 3 << 20;
    result.data.load_seconds = 0.5;
    result.data.read_seconds = 0.0125;
    result.plan.plan = example();
    result.threads = 8;
    result.plan.trials = {{8, {0.02, 1}}, {4, {0.01, 1}}};
    result.seconds = 3.21;
    const std::string table = compile_table(result);
    EXPECT_THAT(table, HasSubstr("3.0 MiB written: 500.000 ms to load without it, 12.500 ms with it"));
    EXPECT_THAT(table, HasSubstr("56.6 KiB measured"));
    EXPECT_THAT(table, HasSubstr("10.000 ms, not tuned 20.000 ms"));
    EXPECT_THAT(table, HasSubstr("4 instead of 8 (a step with 8: 20.000 ms, 4: 10.000 ms)"));
    const auto json = compile_json(result);
    EXPECT_EQ(json.at("compiled"), "ffn");
    EXPECT_EQ(json.at("threads"), 4);
    EXPECT_EQ(json.at("data"), "made");
    EXPECT_EQ(json.at("memory_peak_bytes"), 58'000);
    EXPECT_EQ(json.at("step_ms_untuned"), 20);
    EXPECT_THAT(table, HasSubstr("plan      written\n"));
    result.plan.was = "stale (build)";
    result.data.was = "cut short";
    EXPECT_THAT(compile_table(result), HasSubstr("written again, because it was stale (build)\n"));
    EXPECT_THAT(compile_table(result), HasSubstr("3.0 MiB written again, because it was cut short: "));
    EXPECT_THAT(compile_table(result), Not(HasSubstr("removed")));
    result.removed = 2;
    EXPECT_THAT(compile_table(result), HasSubstr("in all; least recently used entries removed: 2\n"));
    EXPECT_EQ(compile_json(result).at("cache_removed"), 2);
    result.plan.trials[0].step.share = 0.5;
    EXPECT_THAT(compile_table(result), HasSubstr("not tuned, because other programs used the CPUs"));
    result.data.made = Made::none;
    result.plan.made = Made::kept;
    EXPECT_THAT(compile_table(result), HasSubstr("not cached"));
    EXPECT_EQ(compile_json(result).at("plan"), "kept");
}

}  // namespace
}  // namespace dp::trainer
