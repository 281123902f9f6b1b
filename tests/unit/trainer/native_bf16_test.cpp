// SPDX-License-Identifier: Apache-2.0
//
// Products of bf16 as the processor multiplies them, beside those on float32 copies. All operations of a device
// are compared with float64 elsewhere (device_test.cpp); here, that the one way or the other is taken where it
// should be, that both mean the same, and that the same calls give the same bits.
#include <dnnl.h>

#include <functional>

#include "devices.hpp"
#include "trainer/devices/cpu/bf16_products.hpp"

namespace dp::trainer {
namespace {

TEST(NativeBf16, IsForProcessorsThatMultiplyIt) {
    const std::pair<unsigned, Bf16Products> cases[] = {
        {0, Bf16Products::on_copies},
        {dnnl_cpu_isa_sse41, Bf16Products::on_copies},
        {dnnl_cpu_isa_avx2, Bf16Products::on_copies},
        {dnnl_cpu_isa_avx512_core, Bf16Products::on_copies},
        {dnnl_cpu_isa_avx512_core_vnni, Bf16Products::on_copies},
        {dnnl_cpu_isa_avx512_core_bf16, Bf16Products::native},
        {dnnl_cpu_isa_avx512_core_amx, Bf16Products::native},
    };
    for (const auto& [instructions, expected] : cases)
        EXPECT_EQ(bf16_products_with(instructions), expected) << std::hex << instructions;
    EXPECT_EQ(open_cpu(1)->copies_bf16(), bf16_products_here() == Bf16Products::on_copies);
}

Tensor narrow(Device& device, Shape shape, std::uint64_t seed) {
    std::vector<Bfloat16> values;
    for (const float value : random_values(elements_of(shape), seed)) values.push_back(to_bfloat16(value));
    return device.copy_of<Bfloat16>(Type::bf16, std::move(shape), values);
}

constexpr std::int64_t kRows = 70, kInputs = 45, kOutputs = 33;
constexpr Convolution kImages{{20, 11, 13}, 17, 3, 1};

// Results have something in them before, which must not count but where an operation adds.
struct Tensors {
    Tensor x, w, b, dy, y, up, dx, dw, db;
    Tensor images, kernel, image_dy, image_y, image_dx, image_dw;

    explicit Tensors(Device& device) {
        std::uint64_t seed = 0;
        for (const auto& [tensor, shape] : std::initializer_list<std::pair<Tensor*, Shape>>{
                 {&x, {kRows, kInputs}},
                 {&w, {kOutputs, kInputs}},
                 {&b, {kOutputs}},
                 {&dy, {kRows, kOutputs}},
                 {&y, {kRows, kOutputs}},
                 {&up, {kRows, kOutputs}},
                 {&dx, {kRows, kInputs}},
                 {&images, {3, kImages.x.numbers()}},
                 {&kernel, {kImages.outputs, kImages.x.channels, 3, 3}},
                 {&image_dy, {3, kImages.y().numbers()}},
                 {&image_y, {3, kImages.y().numbers()}},
                 {&image_dx, {3, kImages.x.numbers()}}})
            *tensor = narrow(device, shape, ++seed);
        dw = upload(device, w.shape(), random_values(w.elements(), 20));
        db = upload(device, b.shape(), random_values(b.elements(), 21));
        image_dw = upload(device, kernel.shape(), random_values(kernel.elements(), 22));
    }
};

struct Case {
    const char* name;
    std::function<std::vector<Tensor>(Device&, const Tensors&)> work;  // its results
    bool takes_scratch = false;                                        // in either way
};

const Case kCases[] = {
    {"linear",
     [](Device& d, const Tensors& t) {
         d.linear(t.x, t.w, t.b, Activation::relu, t.y);
         return std::vector{t.y};
     }},
    {"linear_add",
     [](Device& d, const Tensors& t) {
         d.linear_add(t.x, t.w, t.b, t.dy, t.y);
         return std::vector{t.y};
     }},
    {"linear_gelu",
     [](Device& d, const Tensors& t) {
         d.linear_gelu(t.x, t.w, t.b, t.up, t.y);
         return std::vector{t.up, t.y};
     }},
    {"linear_gelu_backward_input",
     [](Device& d, const Tensors& t) {
         d.linear_gelu_backward_input(t.dy, t.w, t.x, t.dx);
         return std::vector{t.dx};
     }},
    {"linear_backward_input",
     [](Device& d, const Tensors& t) {
         d.linear_backward_input(t.dy, t.w, t.dx);
         return std::vector{t.dx};
     }},
    {"linear_backward_parameters",
     [](Device& d, const Tensors& t) {
         d.linear_backward_parameters(t.dy, t.x, t.dw, t.db);
         return std::vector{t.dw, t.db};
     }},
    {"linear_backward_parameters that adds",
     [](Device& d, const Tensors& t) {
         d.linear_backward_parameters(t.dy, t.x, t.dw, t.db, Write::add);
         return std::vector{t.dw, t.db};
     }},
    {"convolve",
     [](Device& d, const Tensors& t) {
         d.convolve(kImages, t.images, t.kernel, {}, Activation::relu, t.image_y);
         return std::vector{t.image_y};
     },
     true},
    {"convolve_backward_input",
     [](Device& d, const Tensors& t) {
         d.convolve_backward_input(kImages, t.image_dy, t.kernel, t.image_dx);
         return std::vector{t.image_dx};
     },
     true},
    {"convolve_backward_parameters",
     [](Device& d, const Tensors& t) {
         d.convolve_backward_parameters(kImages, t.image_dy, t.images, t.image_dw, {});
         return std::vector{t.image_dw};
     },
     true},
};

// Each on a new device, so that no memory kept for another operation hides what it takes.
std::vector<std::vector<float>> results_of(const Case& one, Bf16Products way) {
    const auto device = open_cpu_with(way, 2);
    std::vector<std::vector<float>> results;
    {
        const Tensors tensors(*device);
        if (one.takes_scratch)
            device->reserve_convolution_scratch(device->convolution_scratch(kImages, 3, Type::bf16));
        const std::int64_t before = device->memory().held();
        const auto made = one.work(*device, tensors);
        EXPECT_EQ(device->memory().held() > before, way == Bf16Products::on_copies) << one.name << ": copies";
        for (const Tensor& tensor : made) results.push_back(floats_of(*device, tensor));
    }
    EXPECT_TRUE(device->status()) << one.name << ": " << device->status().error().message;
    return results;
}

TEST(NativeBf16, TakesNoCopiesAndMeansWhatCopiesMean) {
    if (bf16_products_here() != Bf16Products::native) GTEST_SKIP() << "this processor multiplies no bf16";
    for (const Case& one : kCases) {
        const auto native = results_of(one, Bf16Products::native),
                   copied = results_of(one, Bf16Products::on_copies);
        ASSERT_EQ(native.size(), copied.size());
        for (std::size_t i = 0; i < native.size(); ++i) {
            const std::vector<double> reference(copied[i].begin(), copied[i].end());
            // Either is rounded; linear_gelu_backward_input() natively twice.
            expect_close(native[i], reference, 0x1p-8, one.name, 2 * kBfloat16Rounding);
        }
        EXPECT_EQ(results_of(one, Bf16Products::native), native) << one.name << ": other bits";
    }
}

}  // namespace
}  // namespace dp::trainer
