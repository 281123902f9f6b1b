// SPDX-License-Identifier: Apache-2.0
//
// The CUDA device: cuBLASLt for matrix products (gemm.cpp), cuDNN for convolutions (convolution.cpp), our
// own kernels for the rest (*.cu), all on one stream. Our kernels give the same bits for the same inputs on
// one kind of GPU, even without --deterministic: only their length decides how sums are split, and nothing
// uses atomic adds.
#include "trainer/devices/cuda/cuda_device.hpp"

#include <algorithm>

#include "trainer/devices/cuda/attention.hpp"
#include "trainer/devices/cuda/image_kernels.hpp"
#include "trainer/devices/cuda/kernels.hpp"
#include "trainer/devices/cuda/loss_kernels.hpp"
#include "trainer/devices/cuda/sequence_kernels.hpp"
#include "trainer/devices/gpu_kernels.hpp"

namespace dp::trainer {
namespace {

std::string number(int value) {
    return std::to_string(value);
}

}  // namespace

Result<std::unique_ptr<Device>> CudaDevice::open(const GpuShare& gpu) {
    std::unique_ptr<CudaDevice> device(new CudaDevice);
    FirstFailure& failure = device->failure_;
    int count = 0;
    const cudaError_t found = cudaGetDeviceCount(&count);
    if (found != cudaErrorNoDevice && !failure.check(found, "looking for GPUs"))
        return tl::unexpected(*failure.error());
    if (count == 0) return fail(Fault::device, "no GPU is visible (CUDA_VISIBLE_DEVICES, or Slurm's --gres)");
    const int index = gpu.gpu % count;
    cudaDeviceProp properties{};
    const bool opened =
        failure.check(cudaSetDevice(index), "choosing the GPU") &&
        failure.check(cudaGetDeviceProperties(&properties, index), "asking for the GPU's properties");
    if (!opened) return tl::unexpected(*failure.error());
    device->model_ =
        std::string(properties.name) + ", sm_" + number(properties.major) + number(properties.minor);
    const int capability = 10 * properties.major + properties.minor;
    if (!has_kernels_for(DP_TRAINER_CUDA_ARCHITECTURES, capability))
        return fail(Fault::device,
                    no_kernels_text(device->model_, DP_TRAINER_CUDA_ARCHITECTURES, capability));
    device->description_ = "cuda:" + number(index) + ", " + device->model_;
    if (gpu.is_part()) {
        auto partition = SmPartition::make(index, gpu);
        if (partition) {
            device->partition_ = std::move(*partition);
            device->stream_ = device->partition_->stream();
        }
        device->description_ += partition
                                    ? ", " + device->partition_->description()
                                    : ", all its SMs (they are not partitioned: " + partition.error().message + ")";
    }
    if (!device->partition_ &&
        !failure.check(cudaStreamCreateWithFlags(&device->stream_, cudaStreamNonBlocking), "making a stream"))
        return tl::unexpected(*failure.error());
    device->gemm_ = std::make_unique<Gemm>(
        failure, device->stream_, device->partition_ ? device->partition_->sms() : 0, device->choices());
    device->workspace_ = std::make_unique<Workspace>(failure);
    device->convolutions_ = std::make_unique<CudaConvolutions>(failure, device->stream_);
    if (failure.failed()) return tl::unexpected(*failure.error());
    return device;
}

CudaDevice::~CudaDevice() {
    gemm_.reset();
    convolutions_.reset();
    workspace_.reset();
    if (stream_ != nullptr && !partition_)
        cudaStreamDestroy(stream_);  // nobody is left to tell about a failure
}

// Without the number of the GPU: the fastest choices are the same on the next one.
DeviceFacts CudaDevice::facts() const {
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    return {"cuda, " + model_ + (partition_ ? ", " + number(partition_->sms()) + " SMs" : ""),
            "driver for CUDA " + number(driver) + ", runtime " + number(runtime) + ", cuBLASLt " +
                std::to_string(cublasLtGetVersion())};
}

Result<void> CudaDevice::status() const {
    if (failure_.failed()) return tl::unexpected(*failure_.error());
    return {};
}

void CudaDevice::synchronize() {
    if (!failure_.failed()) failure_.check(cudaStreamSynchronize(stream_), "waiting for the GPU");
}

void* CudaDevice::allocate(std::size_t bytes) {
    if (failure_.failed()) return nullptr;
    void* memory = nullptr;
    const std::size_t rounded = std::max<std::size_t>(bytes, 1);
    const cudaError_t result = cudaMalloc(&memory, rounded);
    if (result == cudaErrorMemoryAllocation) return out_of_memory(bytes);
    if (!failure_.check(result, "allocating memory")) return nullptr;
    failure_.check(cudaMemsetAsync(memory, 0, rounded, stream_), "clearing memory");
    return memory;
}

void* CudaDevice::out_of_memory(std::size_t bytes) {
    memory().note_exhausted();
    failure_.keep(Error{Fault::device, out_of_memory_message("cuda", bytes)});
    return nullptr;
}

std::optional<std::int64_t> CudaDevice::available_memory(std::int64_t) const {
    std::size_t free = 0, total = 0;
    if (failure_.failed() || cudaMemGetInfo(&free, &total) != cudaSuccess) return std::nullopt;
    return static_cast<std::int64_t>(free);
}

// cudaFree waits for queued work, so nothing uses the memory any more.
void CudaDevice::release(void* memory) noexcept {
    if (memory != nullptr) cudaFree(memory);
}

void CudaDevice::upload(const void* from, const Tensor& to) {
    if (failure_.failed() || to.bytes() == 0) return;
    // From pageable memory this returns once the bytes are staged, so `from` may be reused.
    failure_.check(cudaMemcpyAsync(to.data<void>(), from, to.bytes(), cudaMemcpyHostToDevice, stream_),
                   "copying to the GPU");
}

void CudaDevice::download(const Tensor& from, void* to) {
    if (failure_.failed() || from.bytes() == 0) return;
    failure_.check(cudaMemcpyAsync(to, from.data<void>(), from.bytes(), cudaMemcpyDeviceToHost, stream_),
                   "copying from the GPU");
    synchronize();
}

void CudaDevice::zero(const Tensor& tensor) {
    if (failure_.failed()) return;
    failure_.check(cudaMemsetAsync(tensor.data<void>(), 0, tensor.bytes(), stream_), "clearing memory");
}

void CudaDevice::gather(const Tensor& data, const Tensor& indices, Affine affine, const Tensor& out) {
    if (failure_.failed()) return;
    kernels::gather(data, indices, affine, out, stream_);
    queued("gathering a batch");
}

void CudaDevice::linear(const Tensor& x, const Tensor& w, const Tensor& b, Activation activation,
                        const Tensor& y) {
    if (failure_.failed()) return;
    const bool relu = activation == Activation::relu;
    Product product{y.rows(), w.rows(), x.columns(), false, true, CUBLASLT_EPILOGUE_DEFAULT};
    if (b) {
        product.epilogue = relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
        if (gemm_->multiply(product, x, w, y, {.bias = b})) return;
        // No fused form for this shape: adds the product to the bias, so that it is rounded once.
        product.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
        if (!failure_.failed()) kernels::repeat_row(b, y, stream_);
    }
    if (!gemm_->multiply(product, x, w, y, {.added = b ? y : Tensor{}})) return;
    if (relu) kernels::relu(y, stream_);
    queued("a linear layer");
}

void CudaDevice::linear_backward_input(const Tensor& dy, const Tensor& w, const Tensor& dx) {
    if (failure_.failed()) return;
    gemm_->multiply({dx.rows(), dx.columns(), w.rows(), false, false, CUBLASLT_EPILOGUE_DEFAULT}, dy, w, dx);
}

void CudaDevice::linear_backward_parameters(const Tensor& dy, const Tensor& x, const Tensor& dw,
                                            const Tensor& db, Write write) {
    if (failure_.failed()) return;
    gemm_->multiply({dw.rows(), dw.columns(), dy.rows(), true, false, CUBLASLT_EPILOGUE_DEFAULT}, dy, x, dw,
                    {.added = write == Write::add ? dw : Tensor{}});
    if (!db || failure_.failed()) return;
    kernels::sum_rows(dy, write, db, *workspace_, stream_);
    queued("summing the gradient of a bias");
}

void CudaDevice::linear_add(const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& added,
                            const Tensor& y) {
    if (failure_.failed()) return;
    const auto epilogue = b ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    const Product product{y.rows(), w.rows(), x.columns(), false, true, epilogue};
    if (gemm_->multiply(product, x, w, y, {.bias = b, .added = added})) return;
    Device::linear_add(x, w, b, added, y);
}

void CudaDevice::linear_gelu(const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& up,
                             const Tensor& y) {
    if (failure_.failed()) return;
    const Product product{y.rows(), w.rows(), x.columns(), false, true, CUBLASLT_EPILOGUE_GELU_AUX_BIAS};
    if (b && fuses_gelu(up) && gemm_->multiply(product, x, w, y, {.bias = b, .before_gelu = up})) return;
    Device::linear_gelu(x, w, b, up, y);
}

void CudaDevice::linear_gelu_backward_input(const Tensor& dy, const Tensor& w, const Tensor& up,
                                            const Tensor& d_up) {
    if (failure_.failed()) return;
    const Product product{d_up.rows(), d_up.columns(), w.rows(), false, false, CUBLASLT_EPILOGUE_DGELU};
    if (fuses_gelu(up) && gemm_->multiply(product, dy, w, d_up, {.before_gelu = up})) return;
    Device::linear_gelu_backward_input(dy, w, up, d_up);
}

// Only in bf16: cuBLASLt's tanh is not more precise than that. Its manual requires such rows and alignment.
bool CudaDevice::fuses_gelu(const Tensor& up) {
    return up.type() == Type::bf16 && up.columns() % 8 == 0 &&
           reinterpret_cast<std::uintptr_t>(up.data<void>()) % 16 == 0;
}

void CudaDevice::gelu(const Tensor& x, const Tensor& y) {
    if (failure_.failed()) return;
    kernels::gelu(x, y, stream_);
    queued("GELU");
}

void CudaDevice::gelu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx) {
    if (failure_.failed()) return;
    kernels::gelu_backward(x, dy, dx, stream_);
    queued("the gradient of GELU");
}

void CudaDevice::embed(const Tensor& tokens, const Tensor& table, const Tensor& positions, const Tensor& y) {
    if (failure_.failed()) return;
    kernels::embed(tokens, table, positions, y, stream_);
    queued("embedding tokens");
}

void CudaDevice::embed_backward(const Tensor& tokens, const Tensor& dy, const Tensor& d_table,
                                const Tensor& d_positions) {
    if (failure_.failed()) return;
    kernels::embed_backward(tokens, dy, d_table, d_positions, *workspace_, stream_);
    queued("the gradient of embedding");
}

void CudaDevice::layer_norm(const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& y,
                            const Tensor& saved) {
    if (failure_.failed()) return;
    kernels::layer_norm(x, w, b, y, saved, stream_);
    queued("layer norm");
}

void CudaDevice::layer_norm_backward(const Tensor& x, const Tensor& w, const Tensor& saved, const Tensor& dy,
                                     const Tensor& dx, const Tensor& dw, const Tensor& db) {
    if (failure_.failed()) return;
    kernels::layer_norm_backward(x, w, saved, dy, dx, dw, db, *workspace_, stream_);
    queued("the gradient of layer norm");
}

void CudaDevice::attention(const Attention& a, const Tensor& qkv, const Tensor& y, const Tensor& sums) {
    if (failure_.failed() || !fits(a, y)) return;
    if (qkv.type() == Type::bf16) {
        kernels::tensor_attention(a, qkv, y, sums, stream_);
    } else {
        kernels::attention(a, y.rows(), y.columns(), qkv.data<float>(), y.data<float>(), sums.data<float>(),
                           stream_);
    }
    queued("attention");
}

void CudaDevice::attention_backward(const Attention& a, const Tensor& qkv, const Tensor& y,
                                    const Tensor& sums, const Tensor& dy, const Tensor& d_qkv) {
    if (failure_.failed() || !fits(a, y)) return;
    if (qkv.type() == Type::bf16) {
        kernels::tensor_attention_backward(a, qkv, y, sums, dy, d_qkv, *workspace_, stream_);
    } else {
        kernels::attention_backward(a, y.rows(), y.columns(), qkv.data<float>(), y.data<float>(),
                                    sums.data<float>(), dy.data<float>(), d_qkv.data<float>(), stream_);
    }
    queued("the gradient of attention");
}

bool CudaDevice::fits(const Attention& a, const Tensor& y) {
    const std::int64_t size = y.columns() / a.heads;
    if (size <= kernels::kLargestHead) return true;
    failure_.keep("attention on a GPU takes heads of up to " + std::to_string(kernels::kLargestHead) +
                  " numbers, and these have " + std::to_string(size) + "; give more --num-attention-heads");
    return false;
}

void CudaDevice::convolve(const Convolution& c, const Tensor& x, const Tensor& w, const Tensor& b,
                          Activation activation, const Tensor& y) {
    convolutions_->forward(c, x, w, y);
    if (failure_.failed()) return;
    if (b || activation != Activation::none) kernels::add_channel_bias(c.y(), b, activation, y, stream_);
    queued("a convolution");
}

void CudaDevice::convolve_backward_input(const Convolution& c, const Tensor& dy, const Tensor& w,
                                         const Tensor& dx) {
    convolutions_->backward_input(c, dy, w, dx);
    queued("the gradient of a convolution's input");
}

void CudaDevice::convolve_backward_parameters(const Convolution& c, const Tensor& dy, const Tensor& x,
                                              const Tensor& dw, const Tensor& db) {
    convolutions_->backward_parameters(c, dy, x, dw);
    if (failure_.failed()) return;
    if (db) kernels::sum_channels(c.y(), dy, db, *workspace_, stream_);
    queued("the gradient of a convolution's parameters");
}

void CudaDevice::add_channels(ImageShape shape, const Tensor& b, const Tensor& y) {
    if (failure_.failed()) return;
    kernels::add_channel_bias(shape, b, Activation::none, y, stream_);
    queued("adding to channels");
}

void CudaDevice::sum_channels(ImageShape shape, const Tensor& dy, const Tensor& db) {
    if (failure_.failed()) return;
    kernels::sum_channels(shape, dy, db, *workspace_, stream_);
    queued("summing channels");
}

void CudaDevice::batch_norm_sums(const BatchNorm& norm, const Tensor& x, const Tensor& sums) {
    if (failure_.failed()) return;
    kernels::batch_norm_sums(norm, x, sums, *workspace_, stream_);
    queued("the sums of batch norm");
}

void CudaDevice::batch_norm(const BatchNorm& norm, const Tensor& x, const Tensor& sums, std::int64_t rows,
                            const Tensor& w, const Tensor& b, const Tensor& running, const Tensor& saved,
                            const Tensor& y) {
    if (failure_.failed()) return;
    kernels::batch_norm(norm, x, sums, rows, w, b, running, saved, y, stream_);
    queued("batch norm");
}

void CudaDevice::batch_norm_inference(const BatchNorm& norm, const Tensor& x, const Tensor& w,
                                      const Tensor& b, const Tensor& running, const Tensor& y) {
    if (failure_.failed()) return;
    kernels::batch_norm_inference(norm, x, w, b, running, y, stream_);
    queued("batch norm with running statistics");
}

void CudaDevice::batch_norm_backward_sums(const BatchNorm& norm, const Tensor& x, const Tensor& y,
                                          const Tensor& saved, const Tensor& dy, const Tensor& dx,
                                          const Tensor& sums, const Tensor& dw, const Tensor& db) {
    if (failure_.failed()) return;
    kernels::batch_norm_backward_sums(norm, x, y, saved, dy, dx, sums, dw, db, *workspace_, stream_);
    queued("the sums of batch norm's gradient");
}

void CudaDevice::batch_norm_backward(const BatchNorm& norm, const Tensor& x, const Tensor& w,
                                     const Tensor& saved, const Tensor& sums, std::int64_t rows,
                                     const Tensor& dx) {
    if (failure_.failed()) return;
    kernels::batch_norm_backward(norm, x, w, saved, sums, rows, dx, stream_);
    queued("the gradient of batch norm");
}

void CudaDevice::max_pool(ImageShape x_shape, const Tensor& x, const Tensor& y, const Tensor& picked) {
    if (failure_.failed()) return;
    kernels::max_pool(x_shape, x, y, picked, stream_);
    queued("pooling");
}

void CudaDevice::max_pool_backward(ImageShape x_shape, const Tensor& dy, const Tensor& picked,
                                   const Tensor& dx) {
    zero(dx);
    if (failure_.failed()) return;
    kernels::max_pool_backward(x_shape, dy, picked, dx, stream_);
    queued("the gradient of pooling");
}

void CudaDevice::dropout(const Tensor& x, Dropout dropout, const Tensor& y) {
    if (failure_.failed()) return;
    kernels::dropout(x, dropout, y, stream_);
    queued("dropout");
}

void CudaDevice::relu_backward(const Tensor& y, const Tensor& dy, const Tensor& dx) {
    if (failure_.failed()) return;
    kernels::relu_backward(y, dy, dx, stream_);
    queued("the gradient of ReLU");
}

void CudaDevice::softmax_cross_entropy(const Tensor& logits, std::int64_t classes, const Tensor& labels,
                                       float scale, const Tensor& metrics, const Tensor& d_logits) {
    if (failure_.failed()) return;
    kernels::softmax_cross_entropy(logits, classes, labels, scale, metrics, d_logits, *workspace_, stream_);
    queued("softmax cross-entropy");
}

void CudaDevice::squared_error(const Tensor& prediction, const Tensor& target, float scale,
                               const Tensor& metrics, const Tensor& d_prediction) {
    if (failure_.failed()) return;
    kernels::squared_error(prediction, target, scale, metrics, d_prediction, *workspace_, stream_);
    queued("squared error");
}

void CudaDevice::sigmoid_dice(const Tensor& logits, const Tensor& target, float scale, const Tensor& metrics,
                              const Tensor& d_logits) {
    if (failure_.failed()) return;
    kernels::sigmoid_dice(logits, target, scale, metrics, d_logits, *workspace_, stream_);
    queued("Dice's loss");
}

void CudaDevice::copy_columns(const Tensor& from, std::int64_t from_column, const Tensor& to,
                              std::int64_t to_column, std::int64_t columns, Write write) {
    if (failure_.failed()) return;
    kernels::copy_columns(from, from_column, to, to_column, columns, write, stream_);
    queued("copying columns");
}

void CudaDevice::convert(const Tensor& from, const Tensor& to) {
    if (failure_.failed()) return;
    kernels::convert(from, to, stream_);
    queued("converting numbers");
}

void CudaDevice::add(const Tensor& x, const Tensor& y) {
    if (failure_.failed()) return;
    kernels::add(x, y, stream_);
    queued("adding gradients");
}

void CudaDevice::scale(const Tensor& x, float factor) {
    if (failure_.failed()) return;
    kernels::scale(x.data<float>(), x.elements(), factor, stream_);
    queued("scaling gradients");
}

void CudaDevice::square_sum(const Tensor& x, const Tensor& sums) {
    if (failure_.failed()) return;
    kernels::square_sum(x.data<float>(), x.elements(), sums.data<double>(), stream_);
    queued("the norm of the gradients");
}

void CudaDevice::sgd(const Tensor& parameters, const Tensor& gradients, const Tensor& velocity,
                     SgdStep step) {
    if (failure_.failed()) return;
    kernels::sgd(parameters.data<float>(), gradients.data<float>(), velocity.data<float>(),
                 parameters.elements(), step, stream_);
    queued("a step of SGD");
}

void CudaDevice::adam(const Tensor& parameters, const Tensor& gradients, const Tensor& m, const Tensor& v,
                      AdamStep step) {
    if (failure_.failed()) return;
    kernels::adam(parameters.data<float>(), gradients.data<float>(), m.data<float>(), v.data<float>(),
                  parameters.elements(), step, stream_);
    queued("a step of Adam");
}

}  // namespace dp::trainer
