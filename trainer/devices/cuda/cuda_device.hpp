// SPDX-License-Identifier: Apache-2.0
//
// A CUDA GPU as a device. module.cpp opens it; nccl_communicator.cpp queues collectives on the same stream.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <string>

#include "trainer/devices/cuda/check.hpp"
#include "trainer/devices/cuda/convolution.hpp"
#include "trainer/devices/cuda/gemm.hpp"
#include "trainer/devices/cuda/sm_partition.hpp"
#include "trainer/devices/cuda/workspace.hpp"
#include "trainer/devices/device.hpp"

namespace dp::trainer {

class CudaDevice final : public Device {
 public:
    // Opens that GPU, limited to the share's SMs if the share is a part of the GPU and the
    // driver supports it.
    static Result<std::unique_ptr<Device>> open(const GpuShare& gpu);
    ~CudaDevice() override;

    cudaStream_t stream() const { return stream_; }

    std::string_view name() const override { return "cuda"; }
    DeviceFacts facts() const override;
    std::string description() const override { return description_; }
    Result<void> status() const override;
    void synchronize() override;

    void* allocate(std::size_t bytes) override;
    void release(void* memory) noexcept override;
    void* out_of_memory(std::size_t bytes) override;
    std::optional<std::int64_t> available_memory(std::int64_t ranks_of_host) const override;
    void upload(const void* from, const Tensor& to) override;
    void download(const Tensor& from, void* to) override;
    void zero(const Tensor& tensor) override;

    void gather(const Tensor& data, const Tensor& indices, Affine affine, const Tensor& out) override;
    void linear(const Tensor& x, const Tensor& w, const Tensor& b, Activation activation,
                const Tensor& y) override;
    void linear_backward_input(const Tensor& dy, const Tensor& w, const Tensor& dx) override;
    void linear_backward_parameters(const Tensor& dy, const Tensor& x, const Tensor& dw, const Tensor& db,
                                    Write write) override;
    void gelu(const Tensor& x, const Tensor& y) override;
    void gelu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx) override;
    void embed(const Tensor& tokens, const Tensor& table, const Tensor& positions, const Tensor& y) override;
    void embed_backward(const Tensor& tokens, const Tensor& dy, const Tensor& d_table,
                        const Tensor& d_positions) override;
    void layer_norm(const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& y,
                    const Tensor& saved) override;
    void layer_norm_backward(const Tensor& x, const Tensor& w, const Tensor& saved, const Tensor& dy,
                             const Tensor& dx, const Tensor& dw, const Tensor& db) override;
    void attention(const Attention& a, const Tensor& qkv, const Tensor& y, const Tensor& sums) override;
    void attention_backward(const Attention& a, const Tensor& qkv, const Tensor& y, const Tensor& sums,
                            const Tensor& dy, const Tensor& d_qkv) override;
    void convolve(const Convolution& c, const Tensor& x, const Tensor& w, const Tensor& b,
                  Activation activation, const Tensor& y) override;
    void convolve_backward_input(const Convolution& c, const Tensor& dy, const Tensor& w,
                                 const Tensor& dx) override;
    void convolve_backward_parameters(const Convolution& c, const Tensor& dy, const Tensor& x,
                                      const Tensor& dw, const Tensor& db) override;
    void add_channels(ImageShape shape, const Tensor& b, const Tensor& y) override;
    void sum_channels(ImageShape shape, const Tensor& dy, const Tensor& db) override;
    void batch_norm_sums(const BatchNorm& norm, const Tensor& x, const Tensor& sums) override;
    void batch_norm(const BatchNorm& norm, const Tensor& x, const Tensor& sums, std::int64_t rows,
                    const Tensor& w, const Tensor& b, const Tensor& running, const Tensor& saved,
                    const Tensor& y) override;
    void batch_norm_inference(const BatchNorm& norm, const Tensor& x, const Tensor& w, const Tensor& b,
                              const Tensor& running, const Tensor& y) override;
    void batch_norm_backward_sums(const BatchNorm& norm, const Tensor& x, const Tensor& y,
                                  const Tensor& saved, const Tensor& dy, const Tensor& dx, const Tensor& sums,
                                  const Tensor& dw, const Tensor& db) override;
    void batch_norm_backward(const BatchNorm& norm, const Tensor& x, const Tensor& w, const Tensor& saved,
                             const Tensor& sums, std::int64_t rows, const Tensor& dx) override;
    void max_pool(ImageShape x_shape, const Tensor& x, const Tensor& y, const Tensor& picked) override;
    void max_pool_backward(ImageShape x_shape, const Tensor& dy, const Tensor& picked,
                           const Tensor& dx) override;
    void dropout(const Tensor& x, Dropout dropout, const Tensor& y) override;
    void linear_add(const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& added,
                    const Tensor& y) override;
    void linear_gelu(const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& up,
                     const Tensor& y) override;
    void linear_gelu_backward_input(const Tensor& dy, const Tensor& w, const Tensor& up,
                                    const Tensor& d_up) override;
    void relu_backward(const Tensor& y, const Tensor& dy, const Tensor& dx) override;
    void softmax_cross_entropy(const Tensor& logits, std::int64_t classes, const Tensor& labels, float scale,
                               const Tensor& metrics, const Tensor& d_logits) override;
    void squared_error(const Tensor& prediction, const Tensor& target, float scale, const Tensor& metrics,
                       const Tensor& d_prediction) override;
    void sigmoid_dice(const Tensor& logits, const Tensor& target, float scale, const Tensor& metrics,
                      const Tensor& d_logits) override;
    void copy_columns(const Tensor& from, std::int64_t from_column, const Tensor& to, std::int64_t to_column,
                      std::int64_t columns, Write write) override;
    void convert(const Tensor& from, const Tensor& to) override;
    void add(const Tensor& x, const Tensor& y) override;
    void scale(const Tensor& x, float factor) override;
    void square_sum(const Tensor& x, const Tensor& sums) override;
    void sgd(const Tensor& parameters, const Tensor& gradients, const Tensor& velocity,
             SgdStep step) override;
    void adam(const Tensor& parameters, const Tensor& gradients, const Tensor& m, const Tensor& v,
              AdamStep step) override;

 private:
    FirstFailure failure_;
    std::string model_, description_;
    std::unique_ptr<SmPartition> partition_;  // null: all SMs
    cudaStream_t stream_ = nullptr;           // partition_'s, or our own
    std::unique_ptr<Gemm> gemm_;
    std::unique_ptr<CudaConvolutions> convolutions_;
    std::unique_ptr<Workspace> workspace_;

    CudaDevice() = default;
    bool fits(const Attention& a, const Tensor& y);
    // Whether GELU of this tensor can be fused into products.
    static bool fuses_gelu(const Tensor& up);
    // Call it after queueing a kernel: records whether that failed.
    void queued(const char* what) { failure_.check(cudaGetLastError(), what); }
};

}  // namespace dp::trainer
