// SPDX-License-Identifier: Apache-2.0
//
// A CUDA GPU as a device, with NCCL on its stream; module.cpp opens both. Operations are defined beside their
// kernels, in a .cu file; those of libraries are in cuda_device.cpp and convolution.cpp.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <string>
#include <type_traits>

#include "dp/dp.h"
#include "trainer/base/communicator.hpp"
#include "trainer/devices/attention_passes.hpp"
#include "trainer/devices/cuda/captured_step.hpp"
#include "trainer/devices/cuda/upload_rooms.hpp"
#include "trainer/devices/device.hpp"
#include "trainer/devices/gpu_share.hpp"
#include "trainer/devices/nccl_group.hpp"
#include "trainer/devices/step_capture.hpp"

namespace dp::trainer {

class CudaConvolutions;
class CudnnAttention;
class Gemm;
class OperationLog;
class SmPartition;

class CudaDevice : public Device, public StepCapture {
 public:
    // Opens that GPU, limited to the share's SMs if the share is a part of it and the driver can do that. With a log, which
    // must outlive it, its operations are logged, with the GPU's own times. For a tool of NVIDIA's, they are named.
    static Result<std::unique_ptr<Device>> open(const GpuShare& gpu, OperationLog* log);
    ~CudaDevice() override;

    void set_capture(bool on) override { captures_ = on && !is_logged_; }
    void begin_step() override;
    void end_step() override { step_.end(); }
    void forget_steps() override { step_.forget_all(); }
    const std::string& refusal() const override { return step_.refusal(); }

    // NCCL between the ranks of the group, on this device's stream; both must outlive it.
    Result<std::unique_ptr<Communicator>> open_nccl(dp_context* context, const NcclGroup& group);

    std::string_view name() const override { return "cuda"; }
    // As place_of() (devices/gpu_place.hpp).
    const std::string& place() const { return place_; }

    DeviceFacts facts() const override;
    std::string description() const override { return description_; }
    void synchronize() override;
    std::unique_ptr<Timestamps> make_timestamps() override;

    std::optional<std::int64_t> available_memory(std::int64_t ranks_of_host) const override;
    std::int64_t workspace_bytes() const override;
    void upload(const void* from, Out to) override;
    void download(In from, void* to) override;
    std::unique_ptr<Download> make_download(std::size_t bytes) override;
    void zero(Out tensor) override;

    void gather(In data, In indices, Affine affine, Out out) override;
    void linear(In x, In w, In b, Activation activation, Out y) override;
    void linear_backward_input(In dy, In w, Out dx) override;
    void linear_backward_parameters(In dy, In x, Out dw, Out db, Write write) override;
    void linear_add(In x, In w, In b, In added, Out y) override;
    void linear_gelu(In x, In w, In b, Out up, Out y) override;
    void linear_gelu_backward_input(In dy, In w, In up, Out d_up) override;
    void relu_backward(In y, In dy, Out dx) override;
    void gelu(In x, Out y) override;
    void gelu_backward(In x, In dy, Out dx) override;
    void embed(In tokens, In table, In positions, Out y) override;
    void embed_backward(In tokens, In dy, InOut d_table, InOut d_positions) override;
    void embed_part(In tokens, In table, Shard words, In positions, Out y) override;
    void embed_part_backward(In tokens, In dy, Shard words, InOut d_table, InOut d_positions) override;
    void layer_norm(In x, In w, In b, Out y, Out saved) override;
    void layer_norm_backward(In x, In w, In saved, In dy, InOut dx, Out dw, Out db) override;
    void document_starts(In tokens, std::int32_t end, Out starts) override;
    void attention(const Attention& a, In qkv, Out y, Out sums) override;
    void attention_backward(const Attention& a, In qkv, In y, In sums, In dy, Out d_qkv) override;
    void convolve(const Convolution& c, In x, In w, In b, Activation activation, Out y) override;
    void convolve_backward_input(const Convolution& c, In dy, In w, Out dx) override;
    void convolve_backward_parameters(const Convolution& c, In dy, In x, Out dw, Out db) override;
    std::int64_t convolution_scratch(const Convolution& c, std::int64_t rows, Type type) const override;
    // Else it would grow within the first steps, whose calls would not be those of the later ones.
    void reserve_convolution_scratch(std::int64_t bytes) override { workspace_of(bytes); }
    void add_channels(ImageShape shape, In b, InOut y) override;
    void sum_channels(ImageShape shape, In dy, Out db) override;
    void batch_norm_sums(const BatchNorm& norm, In x, Out sums) override;
    void batch_norm(const BatchNorm& norm, In x, In sums, std::int64_t rows, In w, In b, InOut running,
                    Out saved, Out y) override;
    void batch_norm_inference(const BatchNorm& norm, In x, In w, In b, In running, Out y) override;
    void batch_norm_backward_sums(const BatchNorm& norm, In x, In y, In saved, In dy, Out dx, Out sums,
                                  Out dw, Out db) override;
    void batch_norm_backward(const BatchNorm& norm, In x, In w, In saved, In sums, std::int64_t rows,
                             InOut dx) override;
    void max_pool(ImageShape x_shape, In x, Out y, Out picked) override;
    void max_pool_backward(ImageShape x_shape, In dy, In picked, Out dx) override;
    void dropout(In x, Dropout dropout, Out y) override;
    void softmax_cross_entropy(In logits, std::int64_t classes, In labels, float scale, InOut metrics,
                               Out d_logits) override;
    void softmax_part(In logits, Shard words, In labels, Out notes) override;
    void softmax_cross_entropy_of_parts(In logits, Shard words, In labels, In notes, float scale,
                                        InOut metrics, Out d_logits) override;
    void squared_error(In prediction, In target, float scale, InOut metrics, Out d_prediction) override;
    void sigmoid_dice(In logits, In target, float scale, InOut metrics, Out d_logits) override;
    void copy_columns(In from, std::int64_t from_column, InOut to, std::int64_t to_column,
                      std::int64_t columns, Write write) override;
    void convert(In from, Out to) override;
    void add(In x, InOut y) override;
    void scale(InOut x, float factor) override;
    void square_sum(In x, Out sums) override;
    void clip(In sums, double largest, Out clipping) override;
    void sgd(InOut parameters, In gradients, InOut velocity, SgdStep step) override;
    void adam(InOut parameters, In gradients, InOut m, InOut v, AdamStep step, Out copy) override;

    // ---- for the other files of this folder
    // For whoever queues on it, or waits for it: what the calls of a step are still to queue is queued by then.
    cudaStream_t stream() {
        step_.flush();
        return stream_;
    }
    // As captured_step.hpp has it, on this stream.
    CapturedStep& step() { return step_; }
    cudaStream_t stream_of_step() const { return stream_; }
    int sms() const;  // that the stream's kernels use; 0: all
    int sms_or_all() const;
    std::size_t most_shared() const { return most_shared_; }  // bytes of a block
    int major() const { return major_; }                      // of its compute capability

    using Device::keep_failure;
    // True for success; else keeps the failure. `what` reads like "copying to the GPU".
    bool check(cudaError_t result, const char* what);

    // Queues a kernel, unless the device has failed. The kernel gets a tensor's address; null if it is empty.
    template <typename... Parameters, typename... Arguments>
    void launch(const char* what, void (*kernel)(Parameters...), dim3 blocks, dim3 threads,
                const Arguments&... arguments) {
        launch_with(0, what, kernel, blocks, threads, arguments...);
    }
    // The same with shared memory besides the kernel's own (launched_memory.cuh): together up to most_shared() bytes.
    template <typename... Parameters, typename... Arguments>
    void launch_with(std::size_t shared, const char* what, void (*kernel)(Parameters...), dim3 blocks,
                     dim3 threads, const Arguments&... arguments) {
        if (failed()) return;
        const KernelLaunch<Parameters...> call{kernel, blocks,  threads,
                                               shared, stream_, {parameter<Parameters>(arguments)...}};
        check(static_cast<cudaError_t>(step_.queue(call)), what);
    }

    // Room for `count` T that lasts for one operation: parts of sums, copies in another type. Aligned to 256
    // bytes; null after a failure. It grows to the largest request. One stream uses it, so an operation may
    // have it as soon as the one before is queued.
    template <typename T>
    T* workspace(std::int64_t count) {
        return static_cast<T*>(workspace_of(count * static_cast<std::int64_t>(sizeof(T))));
    }

    // Converts `count` numbers from one type to another.
    void convert_numbers(const void* from, Type from_type, void* to, Type to_type, std::int64_t count);

 protected:
    CudaDevice();

 private:
    std::string model_, description_, place_;
    bool is_logged_ = false, captures_ = false;
    std::unique_ptr<SmPartition> partition_;  // null: all SMs
    cudaStream_t stream_ = nullptr;           // partition_'s, or our own
    std::size_t most_shared_ = 0;
    int all_sms_ = 0, major_ = 0;
    std::unique_ptr<Gemm> gemm_;
    std::unique_ptr<CudaConvolutions> convolutions_;
    std::unique_ptr<CudnnAttention> cudnn_attention_;
    Tensor workspace_;
    UploadRooms uploads_;
    CapturedStep step_{*this};

    std::shared_ptr<void> allocate(std::size_t bytes) override;
    void* workspace_of(std::int64_t bytes);
    template <typename Parameter, typename Argument>
    static Parameter parameter(const Argument& argument) {
        if constexpr (std::is_same_v<Argument, Tensor>) {
            return argument.template data<std::remove_pointer_t<Parameter>>();
        } else {
            return argument;
        }
    }

    // y[r, c] = row[c], and y = max(y, 0): for linear layers for which cuBLASLt has no fused form. Rows of y,
    // and of `in` below, may be longer.
    void repeat_row(In row, Out y);
    void relu(InOut y);
    // sum[c] = or += Σ rows in[r, c], always in the same order.
    void sum_rows(In in, Write write, InOut sum);
    // y[r, channel, i] = act(y[r, channel, i] + bias[channel]); bias may be empty.
    void add_channel_bias(ImageShape shape, In bias, Activation activation, InOut y);
    // On tensor cores (tensor_attention.cu); attention.cu has f32.
    void attention_bf16(const Attention& a, In qkv, Out y, Out sums);
    void attention_bf16_backward(const Attention& a, In qkv, In y, In sums, In dy, Out d_qkv);
    // The same in one pass, where attention_passes.hpp says so (one_pass_attention.cu).
    void attention_bf16_backward_in_one_pass(const Attention& a, In qkv, In y, In sums, In dy, Out d_qkv);
    // By cuDNN, where that was chosen (cudnn_attention.cpp). False: our kernels are to do it.
    bool attention_by_cudnn(const Attention& a, In qkv, Out y, Out sums);
    bool attention_backward_by_cudnn(const Attention& a, In qkv, In y, In sums, In dy, Out d_qkv);
    BackwardShape backward_shape(const Attention& a, In y) const;
    bool fits(const Attention& a, In y);
};

}  // namespace dp::trainer
