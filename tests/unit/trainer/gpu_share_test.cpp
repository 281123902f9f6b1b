// SPDX-License-Identifier: Apache-2.0
//
// Which part of a GPU a rank's tiles are: tables over pure functions, and the all-reduce of ranks that share
// a GPU, which goes through host memory.
#include "trainer/devices/gpu_share.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "devices.hpp"
#include "thread_world.hpp"
#include "trainer/base/partition.hpp"
#include "trainer/parallel/host_staged.hpp"

namespace dp::trainer {
namespace {

TEST(GpuShare, IsTheTilesOfTheFirstGpu) {
    struct {
        const char* tiles;
        std::uint32_t per_device;
        GpuShare share;
    } const cases[] = {
        {"0", 1, {3, 1, 0, 1}},
        {"7", 4, {3, 4, 3, 1}},
        {"4,5", 4, {3, 4, 0, 2}},
        {"5,6,7", 4, {3, 4, 1, 3}},
        {"4,5,6,7", 4, {3, 4, 0, 4}},
        {"6,7,8,9", 4, {3, 4, 2, 2}},
        // No neighbours, or no list of tiles: the whole GPU.
        {"4,6", 4, {3, 1, 0, 1}},
        {"6,5", 4, {3, 1, 0, 1}},
        {"", 4, {3, 1, 0, 1}},
        {"4;5", 4, {3, 1, 0, 1}},
        {"-1", 4, {3, 1, 0, 1}},
        {"4,", 4, {3, 1, 0, 1}},
    };
    for (const auto& c : cases) {
        const GpuShare share = gpu_share(3, c.tiles, c.per_device);
        EXPECT_EQ(share, c.share) << c.tiles << " of " << c.per_device << ": " << share.count << " of "
                                  << share.parts << " from " << share.first;
    }
    EXPECT_FALSE(gpu_share(0, "0", 1).is_part());
    EXPECT_TRUE(gpu_share(0, "0", 2).is_part());
    EXPECT_FALSE(gpu_share(0, "0,1", 2).is_part());
}

TEST(GpuShare, PartsHaveEqualNumbersOfSms) {
    struct {
        std::uint32_t all, parts, minimum, alignment;
        std::optional<std::uint32_t> sms;
    } const cases[] = {
        {132, 2, 8, 8, 64},
        {132, 4, 8, 8, 32},
        {132, 7, 8, 8, 16},
        {132, 16, 8, 8, 8},
        {132, 17, 8, 8, std::nullopt},
        {108, 4, 4, 2, 26},
        {108, 64, 4, 2, std::nullopt},
        {80, 1, 2, 2, 80},
        {80, 3, 0, 0, 26},
    };
    for (const auto& c : cases)
        EXPECT_EQ(sms_of_a_part(c.all, c.parts, c.minimum, c.alignment), c.sms) << c.all << " / " << c.parts;
}

class ThroughHostOn : public OnEachDevice {};

// One rank holds its numbers on the device, the others in host memory.
TEST_P(ThroughHostOn, SumsAndGathersAsTheCommunicatorUnderIt) {
    constexpr std::int64_t kRanks = 3;
    const std::vector<std::int64_t> counts = {1, 1000,
                                              7};  // the staging memory grows, and is larger than needed
    ThreadWorld(kRanks).run([&](Communicator& between) {
        std::unique_ptr<Device> own = open_cpu(1);
        Device& on = between.rank() == 0 ? device() : *own;
        struct Borrowed final : Communicator {
            explicit Borrowed(Communicator& of) : of_(of) {}
            std::string_view name() const override { return of_.name(); }
            std::int64_t rank() const override { return of_.rank(); }
            std::int64_t size() const override { return of_.size(); }
            Result<void> all_reduce(const Tensor& t, Reduction r) override { return of_.all_reduce(t, r); }
            Result<void> all_gather(const Tensor& t) override { return of_.all_gather(t); }
            Result<void> reduce_scatter(const Tensor& t) override { return of_.reduce_scatter(t); }
            Result<void> broadcast(const Tensor& t, std::int64_t from) override {
                return of_.broadcast(t, from);
            }
            Result<void> start_send(const Tensor& t, std::int64_t to, Lane lane) override {
                return of_.start_send(t, to, lane);
            }
            Result<void> wait_send(const Tensor& t) override { return of_.wait_send(t); }
            Result<void> receive(const Tensor& t, std::int64_t from, Lane lane) override {
                return of_.receive(t, from, lane);
            }
            Communicator& of_;
        };
        const auto ranks = std::make_unique<HostStaged>(std::make_unique<Borrowed>(between), on);
        EXPECT_EQ(ranks->size(), kRanks);
        for (const std::int64_t count : counts) {
            std::vector<float> values;
            for (std::int64_t i = 0; i < count; ++i)
                values.push_back(static_cast<float>(i + 100 * between.rank()));
            const Tensor tensor = upload(on, {count}, values);
            EXPECT_TRUE(ranks->all_reduce(tensor, Reduction::sum));
            const auto sums = on.values_of<float>(tensor);
            for (std::int64_t i = 0; i < count; ++i)
                EXPECT_EQ(sums[static_cast<std::size_t>(i)], static_cast<float>(3 * i + 300));
        }
        const Tensor number =
            on.copy_of<std::int64_t>(Type::i64, {1}, std::vector<std::int64_t>{between.rank()});
        EXPECT_TRUE(ranks->all_reduce(number, Reduction::max));
        EXPECT_EQ(on.values_of<std::int64_t>(number)[0], kRanks - 1);
        for (const std::int64_t count : counts) {
            const Shard mine = shard_of(count, between.rank(), kRanks);
            std::vector<float> values(static_cast<std::size_t>(count), -1.0f);
            for (std::int64_t i = mine.first; i < mine.first + mine.count; ++i)
                values[static_cast<std::size_t>(i)] = static_cast<float>(i);
            const Tensor tensor = upload(on, {count}, values);
            EXPECT_TRUE(ranks->all_gather(tensor));
            std::iota(values.begin(), values.end(), 0.0f);
            EXPECT_EQ(on.values_of<float>(tensor), values);
            EXPECT_TRUE(ranks->reduce_scatter(tensor));
            const auto scattered = on.values_of<float>(tensor);
            for (std::int64_t i = mine.first; i < mine.first + mine.count; ++i)
                EXPECT_EQ(scattered[static_cast<std::size_t>(i)], static_cast<float>(kRanks * i));
            const Tensor root = upload(on, {count}, std::vector<float>(values.size(), between.rank() + 1.0f));
            EXPECT_TRUE(ranks->broadcast(root, 1));
            EXPECT_EQ(on.values_of<float>(root), std::vector<float>(values.size(), 2.0f));
        }
        // Each sends two messages to the next rank from the same memory.
        const Tensor sent = on.make(Type::f32, {5}), got = on.make(Type::f32, {5});
        const auto next = (between.rank() + 1) % kRanks, last = (between.rank() + 2) % kRanks;
        for (const std::int64_t round : {1, 2}) {
            EXPECT_TRUE(ranks->wait_send(sent));
            on.upload(std::vector<float>(5, static_cast<float>(10 * between.rank() + round)).data(), sent);
            EXPECT_TRUE(ranks->start_send(sent, next, Lane::activations));
            EXPECT_TRUE(ranks->receive(got, last, Lane::activations));
            EXPECT_EQ(on.values_of<float>(got), std::vector<float>(5, static_cast<float>(10 * last + round)));
        }
        EXPECT_TRUE(ranks->wait_send(sent));
    });
}

INSTANTIATE_ON_EACH_DEVICE(ThroughHostOn);

// A GPU that is cut in two works as the whole one: device_test.cpp's operations are the same kernels.
TEST(GpuPart, TrainsOnItsSmsWhereThereIsAGpu) {
    auto cuda = open_cuda({0, 2, 1, 1});
    if (!cuda && std::getenv("DP_TESTS_REQUIRE_CUDA") != nullptr) FAIL() << cuda.error().message;
    if (!cuda) GTEST_SKIP() << "not run on CUDA: " << cuda.error().message;
    Device& device = **cuda;
    EXPECT_NE(device.description().find("SMs"), std::string::npos) << device.description();
    const auto x = random_values(6, 1), w = random_values(12, 2), b = random_values(4, 3);
    const Tensor y = device.make(Type::f32, {2, 4});
    device.linear(upload(device, {2, 3}, x), upload(device, {4, 3}, w), upload(device, {4}, b),
                  Activation::none, y);
    std::vector<double> expected;
    for (std::size_t r = 0; r < 2; ++r)
        for (std::size_t c = 0; c < 4; ++c) {
            double sum = b[c];
            for (std::size_t i = 0; i < 3; ++i) sum += static_cast<double>(x[r * 3 + i]) * w[c * 3 + i];
            expected.push_back(sum);
        }
    expect_close(device.values_of<float>(y), expected, 1e-5, "linear on a part of a GPU");
    ASSERT_TRUE(device.status());
}

}  // namespace
}  // namespace dp::trainer
