// SPDX-License-Identifier: Apache-2.0
//
// The CUDA device: cuBLASLt for matrix products (gemm.cpp), cuDNN for convolutions (convolution.cpp) and, where that was found to be
// faster, for attention (cudnn_attention.cpp), our own kernels for the rest (*.cu), all on one stream. Our kernels give the same bits
// for the same inputs on one kind of GPU, even without --deterministic: sums are split by their length alone, without atomic adds.
//
// The memory account has tensors and workspaces. It cannot have what CUDA and its libraries allocate for
// themselves later (contexts, code, NCCL's channels), so a training that fits exactly may still fail.
#include "trainer/devices/cuda/cuda_device.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "trainer/devices/cuda/convolution.hpp"
#include "trainer/devices/cuda/cudnn_attention.hpp"
#include "trainer/devices/cuda/cudnn_library.hpp"
#include "trainer/devices/cuda/event_timestamps.hpp"
#include "trainer/devices/cuda/gemm.hpp"
#include "trainer/devices/cuda/pinned_download.hpp"
#include "trainer/devices/cuda/refusals.hpp"
#include "trainer/devices/cuda/sm_partition.hpp"
#include "trainer/devices/cuda/stream_timer.hpp"
#include "trainer/devices/cuda/timeline.hpp"
#include "trainer/devices/cuda/workspace_part.hpp"
#include "trainer/devices/gpu_kernels.hpp"
#include "trainer/devices/profiled.hpp"

namespace dp::trainer {
namespace {

constexpr std::int64_t kLargestHead = 128;

// Whether GELU of this tensor can be fused into products. Only in bf16: cuBLASLt's tanh is not more precise
// than that. Its manual requires such rows and alignment.
bool fuses_gelu(In up) {
    return up.type() == Type::bf16 && up.columns() % 8 == 0 &&
           reinterpret_cast<std::uintptr_t>(up.data<void>()) % 16 == 0;
}

tl::unexpected<Error> refused(cudaError_t said) {
    cudaGetLastError();
    GpuSituation here;
    if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) here.visible = visible;
    cudaDriverGetVersion(&here.driver);
    cudaRuntimeGetVersion(&here.needed);
    return fail(Fault::device, refusal_text(said, cudaGetErrorString(said), here));
}

// "0000:17:00.0"; "" where CUDA does not say.
std::string pci_address(int gpu) {
    std::array<char, 32> address{};
    if (cudaDeviceGetPCIBusId(address.data(), static_cast<int>(address.size()), gpu) == cudaSuccess)
        return address.data();
    cudaGetLastError();
    return "";
}

}  // namespace

CudaDevice::CudaDevice() = default;

Result<std::unique_ptr<Device>> CudaDevice::open(const GpuShare& gpu, OperationLog* log) {
    static OperationLog nobody_reads;  // it has names alone
    const bool only_names = log == nullptr && has_nvtx_tool();
    if (only_names) log = &nobody_reads;
    std::unique_ptr<CudaDevice> device(log == nullptr ? new CudaDevice : new Profiled<CudaDevice>(*log));
    device->is_logged_ = log != nullptr;  // operation by operation
    int count = 0;
    if (const auto found = cudaGetDeviceCount(&count); found != cudaSuccess || count == 0)
        return refused(found);
    const int index = gpu.gpu % count;
    cudaDeviceProp properties{};
    if (const auto taken = cudaSetDevice(index); taken != cudaSuccess) return refused(taken);
    if (const auto read = cudaGetDeviceProperties(&properties, index); read != cudaSuccess)
        return refused(read);
    device->place_ = pci_address(index);
    device->most_shared_ = properties.sharedMemPerBlockOptin;
    device->all_sms_ = properties.multiProcessorCount;
    device->major_ = properties.major;
    device->model_ = std::string(properties.name) + ", sm_" + std::to_string(properties.major) +
                     std::to_string(properties.minor);
    const int capability = 10 * properties.major + properties.minor;
    if (!has_kernels_for(DP_TRAINER_CUDA_ARCHITECTURES, capability))
        return fail(Fault::device,
                    no_kernels_text(device->model_, DP_TRAINER_CUDA_ARCHITECTURES, capability));
    device->description_ = "cuda:" + std::to_string(index) + ", " + device->model_;
    if (gpu.is_part()) {
        auto partition = SmPartition::make(index, gpu);
        device->description_ +=
            ", " + (partition ? (*partition)->description()
                              : "all its SMs (not partitioned: " + partition.error().message + ")");
        if (partition) device->partition_ = std::move(*partition);
    }
    if (device->partition_) {
        device->stream_ = device->partition_->stream();
    } else {
        device->check(cudaStreamCreateWithFlags(&device->stream_, cudaStreamNonBlocking),
                      "creating a stream");
    }
    device->uploads_.make();
    DP_TRY(device->status());
    device->gemm_ = std::make_unique<Gemm>(*device);
    device->convolutions_ = std::make_unique<CudaConvolutions>(*device);
    device->cudnn_attention_ = std::make_unique<CudnnAttention>(*device);
    // Now, because the estimate counts all of it, and growing it later waits for the GPU (cudaFree).
    device->workspace_of(kernels_workspace(device->sms_or_all()));
    DP_TRY(device->status());
    if (log != nullptr)
        log->set_timeline(only_names ? name_ranges() : DP_TRY(open_timeline(device->stream_)));
    if (only_names) log->announce_all();
    return device;
}

CudaDevice::~CudaDevice() {
    gemm_.reset();
    convolutions_.reset();
    cudnn_attention_.reset();
    workspace_ = {};
    if (stream_ != nullptr && !partition_)
        cudaStreamDestroy(stream_);  // ignored: the process is about to end
}

int CudaDevice::sms() const {
    return partition_ ? partition_->sms() : 0;
}

int CudaDevice::sms_or_all() const {
    return partition_ ? partition_->sms() : all_sms_;
}

// Without the number of the GPU: the fastest choices are the same on the next one.
DeviceFacts CudaDevice::facts() const {
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    return {"cuda, " + model_ + (partition_ ? ", " + std::to_string(partition_->sms()) + " SMs" : ""),
            "driver for CUDA " + std::to_string(driver) + ", runtime " + std::to_string(runtime) +
                ", cuBLASLt " + std::to_string(cublasLtGetVersion()) +
                (cudnn().missing == nullptr ? ", cuDNN " + std::to_string(cudnn().cudnnGetVersion())
                                            : std::string(", no cuDNN"))};
}

bool CudaDevice::check(cudaError_t result, const char* what) {
    if (result == cudaSuccess) return true;
    cudaGetLastError();  // else the next call that asks for it would be blamed
    if (result == cudaErrorMemoryAllocation) memory().note_exhausted();
    const std::string advice = result == cudaErrorMemoryAllocation ? "; give a smaller --batch-size" : "";
    keep_failure(std::string(what) + ": " + cudaGetErrorString(result) + advice);
    return false;
}

void CudaDevice::synchronize() {
    if (!failed()) check(cudaStreamSynchronize(stream()), "waiting for the GPU");
}

// Whoever measures algorithms makes calls in between. Of a kernel whose arguments are set in a graph CUDA's manual does not say that
// it keeps the stream's SMs.
void CudaDevice::begin_step() {
    if (!captures_ || choices().is_measuring()) return;
    if (partition_)
        step_.refuse("this rank has a part of a GPU, which graphs might leave");
    else
        step_.begin(stream_);
}

std::unique_ptr<Timestamps> CudaDevice::make_timestamps() {
    return std::make_unique<EventTimestamps>(*this);
}

// cudaFree waits for queued work, so nothing uses the memory any more.
std::shared_ptr<void> CudaDevice::allocate(std::size_t bytes) {
    if (failed()) return nullptr;
    void* memory = nullptr;
    const std::size_t rounded = std::max<std::size_t>(bytes, 1);
    const cudaError_t result = cudaMalloc(&memory, rounded);
    if (result == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        return nullptr;
    }
    if (!check(result, "allocating memory")) return nullptr;
    check(cudaMemsetAsync(memory, 0, rounded, stream()), "clearing memory");
    return {memory, [this](void* place) {
                step_.flush();
                cudaFree(place);
            }};
}

void* CudaDevice::workspace_of(std::int64_t bytes) {
    if (failed()) return nullptr;
    if (!workspace_ || bytes > workspace_.elements()) {
        workspace_ = {};  // before more is asked for
        workspace_ = make(Type::u8, {bytes});
    }
    return workspace_part(workspace_.data<void>(), bytes);
}

std::int64_t CudaDevice::workspace_bytes() const {
    return Gemm::kWorkspace + kernels_workspace(sms_or_all());
}

std::optional<std::int64_t> CudaDevice::available_memory(std::int64_t) const {
    std::size_t free = 0, total = 0;
    if (failed() || cudaMemGetInfo(&free, &total) != cudaSuccess) return std::nullopt;
    return static_cast<std::int64_t>(free) + memory().held();
}

void CudaDevice::upload(const void* from, Out to) {
    if (to.bytes() == 0) return;
    const bool has_room = uploads_.has_room_for(to.bytes());
    if (failed()) return;
    if (has_room && !check(uploads_.copy(from, to.bytes(), stream(), &from), "waiting for copies to the GPU"))
        return;
    check(cudaMemcpyAsync(to.data<void>(), from, to.bytes(), cudaMemcpyHostToDevice, stream()),
          "copying to the GPU");
    if (!has_room) synchronize();  // the caller may use the memory for something else
}

void CudaDevice::download(In from, void* to) {
    if (failed() || from.bytes() == 0) return;
    check(cudaMemcpyAsync(to, from.data<void>(), from.bytes(), cudaMemcpyDeviceToHost, stream()),
          "copying from the GPU");
    synchronize();
}

std::unique_ptr<Download> CudaDevice::make_download(std::size_t bytes) {
    return std::make_unique<PinnedDownload>(*this, bytes);
}

void CudaDevice::zero(Out tensor) {
    if (failed()) return;
    const MemoryClear call{tensor.data<void>(), tensor.bytes(), stream_};
    check(static_cast<cudaError_t>(step_.queue(call)), "clearing memory");
}

void CudaDevice::linear(In x, In w, In b, Activation activation, Out y) {
    const bool relu_after = activation == Activation::relu;
    Product product{y.rows(), w.rows(), x.columns(), false, true, CUBLASLT_EPILOGUE_DEFAULT};
    if (b) {
        product.epilogue = relu_after ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
        if (gemm_->multiply(product, x, w, y, {.bias = b})) return;
        // No fused form for this shape: adds the product to the bias, so that it is rounded once.
        product.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
        repeat_row(b, y);
    }
    if (gemm_->multiply(product, x, w, y, {.added = b ? y : Tensor{}}) && relu_after) relu(y);
}

void CudaDevice::linear_backward_input(In dy, In w, Out dx) {
    gemm_->multiply({dx.rows(), dx.columns(), w.rows(), false, false, CUBLASLT_EPILOGUE_DEFAULT}, dy, w, dx);
}

void CudaDevice::linear_backward_parameters(In dy, In x, Out dw, Out db, Write write) {
    const Product product{dw.rows(), dw.columns(), dy.rows(), true, false, CUBLASLT_EPILOGUE_DEFAULT};
    const auto apart = [&] {
        gemm_->multiply(product, dy, x, dw, {.added = write == Write::add ? dw : Tensor{}});
        if (db) sum_rows(dy, write, db);
        return !failed();
    };
    // The product reads dy anyway, and can add up its rows beside. `trainer compile` finds out whether that is faster.
    const auto beside = [&] {
        Product summing = product;
        summing.epilogue = CUBLASLT_EPILOGUE_BGRADB;
        return gemm_->multiply(summing, dy, x, dw, {.bias = db});
    };
    if (db && write == Write::set) {
        const std::string name = "bias gradient " + std::to_string(dw.rows()) + " " +
                                 std::to_string(dw.columns()) + " " + std::to_string(dy.rows()) + " " +
                                 std::to_string(static_cast<int>(dy.type()));
        if (choices().is_measuring() && !choices().find(name))
            choices().set(name, is_faster(beside, apart, stream_) ? "beside" : "apart");
        if (const auto known = choices().find(name); known && *known == "beside" && beside()) return;
    }
    apart();
}

void CudaDevice::linear_add(In x, In w, In b, In added, Out y) {
    const auto epilogue = b ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    const Product product{y.rows(), w.rows(), x.columns(), false, true, epilogue};
    if (!gemm_->multiply(product, x, w, y, {.bias = b, .added = added}))
        Device::linear_add(x, w, b, added, y);
}

void CudaDevice::linear_gelu(In x, In w, In b, Out up, Out y) {
    const Product product{y.rows(), w.rows(), x.columns(), false, true, CUBLASLT_EPILOGUE_GELU_AUX_BIAS};
    if (b && fuses_gelu(up) && gemm_->multiply(product, x, w, y, {.bias = b, .before_gelu = up})) return;
    Device::linear_gelu(x, w, b, up, y);
}

void CudaDevice::linear_gelu_backward_input(In dy, In w, In up, Out d_up) {
    const Product product{d_up.rows(), d_up.columns(), w.rows(), false, false, CUBLASLT_EPILOGUE_DGELU};
    if (fuses_gelu(up) && gemm_->multiply(product, dy, w, d_up, {.before_gelu = up})) return;
    Device::linear_gelu_backward_input(dy, w, up, d_up);
}

BackwardShape CudaDevice::backward_shape(const Attention& a, In y) const {
    return {y.rows() / a.sequence * a.heads, a.sequence, y.columns() / a.heads, sms_or_all(),
            static_cast<std::int64_t>(most_shared_)};
}

bool CudaDevice::fits(const Attention& a, In y) {
    const std::int64_t size = y.columns() / a.heads;
    if (size <= kLargestHead) return true;
    keep_failure("attention on a GPU supports heads of up to " + std::to_string(kLargestHead) +
                 " dimensions, but these have " + std::to_string(size) +
                 "; give a larger --num-attention-heads");
    return false;
}

void CudaDevice::add_channels(ImageShape shape, In b, InOut y) {
    add_channel_bias(shape, b, Activation::none, y);
}

}  // namespace dp::trainer
