// SPDX-License-Identifier: Apache-2.0
//
// cuBLASLt of the emulated GPU: what the trainer's gemm.cpp calls of it, as its manual says. Whatever the
// trainer sets that has no meaning here, or contradicts the manual, ends the program. DP_CUDA_EMULATOR_PRODUCTS=bad: of several
// algorithms for a product, the first fails whenever it is used, and the second where the product is added to something; failing,
// they leave CUDA's error. =no-memory: a product finds no memory.
#include <cublasLt.h>
#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <vector>

#include "blocks.hpp"
#include "queues.hpp"

using dp::cuda_emulator::Range;

namespace {

void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "emulated cuBLASLt: %s\n", what);
    std::abort();
}

struct Layout {
    cudaDataType_t type = CUDA_R_32F;
    std::int64_t rows = 0, columns = 0, leading = 0;
};
struct Operation {
    cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    const void* bias = nullptr;
    cudaDataType_t bias_type = CUDA_R_32F;
    void* auxiliary = nullptr;
    std::int64_t auxiliary_leading = 0;

    bool is(std::initializer_list<cublasLtEpilogue_t> some) const {
        return std::find(some.begin(), some.end(), epilogue) != some.end();
    }
    bool has_bias() const {
        return is({CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_RELU_BIAS, CUBLASLT_EPILOGUE_GELU_AUX_BIAS});
    }
    bool has_bias_gradient() const { return is({CUBLASLT_EPILOGUE_BGRADB}); }
    bool has_auxiliary() const { return is({CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU}); }
};
struct Preference {
    std::uint64_t workspace = 0;
    std::uint32_t alignment = 256;  // the least of those that were promised
};
// What lies in the bytes of an algorithm.
struct Chosen {
    std::int64_t rows, columns;  // of the result
    std::uint32_t alignment;
    enum Fails : std::uint32_t { never, adding, always } fails;
};
static_assert(sizeof(Chosen) <= sizeof(cublasLtMatmulAlgo_t));

template <typename T>
T& at(const void* handle) {
    return *static_cast<T*>(const_cast<void*>(handle));
}
template <typename T, typename Handle>
cublasStatus_t make(Handle* handle, T value) {
    *handle = reinterpret_cast<Handle>(new T(value));
    return CUBLAS_STATUS_SUCCESS;
}
template <typename T>
cublasStatus_t end(void* handle) {
    delete static_cast<T*>(handle);
    return CUBLAS_STATUS_SUCCESS;
}
template <typename T>
void set(T& to, const void* from, std::size_t bytes) {
    require(bytes == sizeof to, "an attribute of another size");
    std::memcpy(&to, from, sizeof to);
}

float number(const void* matrix, cudaDataType_t type, std::int64_t place) {
    if (type == CUDA_R_32F) return static_cast<const float*>(matrix)[place];
    return __bfloat162float(static_cast<const __nv_bfloat16*>(matrix)[place]);
}
void store(void* matrix, cudaDataType_t type, std::int64_t place, double value) {
    if (type == CUDA_R_32F) {
        static_cast<float*>(matrix)[place] = static_cast<float>(value);
    } else {
        static_cast<__nv_bfloat16*>(matrix)[place] = __float2bfloat16_rn(static_cast<float>(value));
    }
}

double gelu(double x) {
    return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x) {
    const double t = std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
    return (1 + t) / 2 + x / 2 * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

// op(matrix), row after row.
std::vector<float> operand(const void* matrix, const Layout& layout, cublasOperation_t operation) {
    std::vector<float> numbers;
    const bool transposed = operation == CUBLAS_OP_T;
    const std::int64_t rows = transposed ? layout.columns : layout.rows,
                       columns = transposed ? layout.rows : layout.columns;
    numbers.reserve(static_cast<std::size_t>(rows * columns));
    for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t column = 0; column < columns; ++column)
            numbers.push_back(
                number(matrix, layout.type,
                       transposed ? row * layout.leading + column : column * layout.leading + row));
    return numbers;
}

// A product as it was asked for: who asked may use the descriptions for the next.
struct Product {
    Operation operation;
    Layout a_layout, b_layout, layout;
    float alpha, beta;
    const void *a, *b, *c;
    void* d;
    char* workspace;
    std::size_t workspace_bytes;

    void operator()() const;
    std::vector<Range> ranges() const;
};

std::size_t bytes_of(const Layout& layout) {
    const std::int64_t numbers = (layout.columns - 1) * layout.leading + layout.rows;
    return static_cast<std::size_t>(numbers) * (layout.type == CUDA_R_32F ? 4 : 2);
}

std::vector<Range> Product::ranges() const {
    std::vector<Range> all{{a, bytes_of(a_layout), false},
                           {b, bytes_of(b_layout), false},
                           {d, bytes_of(layout), true},
                           {workspace, workspace_bytes, true}};
    if (beta != 0) all.push_back({c, bytes_of(layout), false});
    if (operation.has_bias())
        all.push_back({operation.bias, bytes_of({layout.type, layout.rows, 1, layout.rows}), false});
    if (operation.has_bias_gradient())
        all.push_back(
            {operation.bias, bytes_of({operation.bias_type, layout.columns, 1, layout.columns}), true});
    if (operation.has_auxiliary())
        all.push_back({operation.auxiliary,
                       bytes_of({layout.type, layout.rows, layout.columns, operation.auxiliary_leading}),
                       operation.is({CUBLASLT_EPILOGUE_GELU_AUX_BIAS})});
    return all;
}

void Product::operator()() const {
    const auto left = operand(a, a_layout, operation.a), right = operand(b, b_layout, operation.b);
    const std::int64_t rows = layout.rows, columns = layout.columns,
                       inner = static_cast<std::int64_t>(left.size()) / rows;
    require(inner * columns == static_cast<std::int64_t>(right.size()) &&
                inner * rows == static_cast<std::int64_t>(left.size()),
            "matrices that do not fit");
    if (workspace_bytes > 0) {  // it is the product's to write in
        workspace[0] = 1;
        workspace[workspace_bytes - 1] = 1;
    }
    if (operation.has_bias_gradient()) {  // the sums of b's columns, which replace what was there
        for (std::int64_t column = 0; column < columns; ++column) {
            double sum = 0;
            for (std::int64_t k = 0; k < inner; ++k)
                sum += right[static_cast<std::size_t>(k * columns + column)];
            store(const_cast<void*>(operation.bias), operation.bias_type, column, sum);
        }
    }
    const double factor = alpha, kept = beta;
    std::vector<double> sums(static_cast<std::size_t>(columns));
    for (std::int64_t row = 0; row < rows; ++row) {
        std::fill(sums.begin(), sums.end(), 0.0);
        for (std::int64_t k = 0; k < inner; ++k) {
            const double own = left[static_cast<std::size_t>(row * inner + k)];
            const float* others = &right[static_cast<std::size_t>(k * columns)];
            for (std::int64_t column = 0; column < columns; ++column)
                sums[static_cast<std::size_t>(column)] += own * static_cast<double>(others[column]);
        }
        for (std::int64_t column = 0; column < columns; ++column) {
            const std::int64_t place = column * layout.leading + row;
            double value = factor * sums[static_cast<std::size_t>(column)];
            if (kept != 0) value += kept * static_cast<double>(number(c, layout.type, place));
            if (operation.has_bias()) value += static_cast<double>(number(operation.bias, layout.type, row));
            const std::int64_t kept_at = column * operation.auxiliary_leading + row;
            if (operation.epilogue == CUBLASLT_EPILOGUE_RELU_BIAS && value < 0) value = 0;
            if (operation.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
                store(operation.auxiliary, layout.type, kept_at, value);
                value = gelu(value);
            }
            if (operation.epilogue == CUBLASLT_EPILOGUE_DGELU)
                value *= gelu_slope(number(operation.auxiliary, layout.type, kept_at));
            store(d, layout.type, place, value);
        }
    }
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
    return make(handle, 0);
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    return end<int>(handle);
}
std::size_t cublasLtGetVersion() {
    return 1;
}
const char* cublasLtGetStatusString(cublasStatus_t) {
    return "an error";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* handle, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
    require(compute == CUBLAS_COMPUTE_32F && scale == CUDA_R_32F, "sums are to be of fp32");
    return make(handle, Operation{});
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t handle) {
    return end<Operation>(handle);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              std::size_t bytes) {
    auto& operation = at<Operation>(handle);
    switch (attribute) {
        case CUBLASLT_MATMUL_DESC_TRANSA:
            set(operation.a, value, bytes);
            break;
        case CUBLASLT_MATMUL_DESC_TRANSB:
            set(operation.b, value, bytes);
            break;
        case CUBLASLT_MATMUL_DESC_EPILOGUE:
            set(operation.epilogue, value, bytes);
            break;
        case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
            set(operation.bias, value, bytes);
            break;
        case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
            set(operation.bias_type, value, bytes);
            break;
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
            set(operation.auxiliary, value, bytes);
            break;
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
            set(operation.auxiliary_leading, value, bytes);
            break;
        default:
            require(false, "an attribute of a product that is not emulated");
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* handle, cudaDataType_t type,
                                          std::uint64_t rows, std::uint64_t columns, std::int64_t leading) {
    const Layout layout{type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns), leading};
    require(leading >= layout.rows, "columns that overlap");
    return make(handle, layout);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t handle) {
    return end<Layout>(handle);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* handle) {
    return make(handle, Preference{});
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t handle) {
    return end<Preference>(handle);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t bytes) {
    auto& preference = at<Preference>(handle);
    std::uint32_t number = 0;
    switch (attribute) {
        case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
            set(preference.workspace, value, bytes);
            break;
        case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
            set(number, value, bytes);
            break;
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
            set(number, value, bytes);
            preference.alignment = std::min(preference.alignment, number);
            break;
        default:
            require(false, "a preference that is not emulated");
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t* found, int* count) {
    const auto factors = at<Layout>(a).type, result = at<Layout>(c).type;
    require(factors == at<Layout>(b).type && result == at<Layout>(d).type &&
                (factors == CUDA_R_16BF || (factors == CUDA_R_32F && result == CUDA_R_32F)),
            "types that cuBLASLt does not multiply");
    // As on machines whose cuBLASLt has no fused form.
    *count = 0;
    if (std::getenv("DP_CUDA_EMULATOR_NO_EPILOGUES") != nullptr &&
        at<Operation>(operation).epilogue != CUBLASLT_EPILOGUE_DEFAULT)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    const char* said = std::getenv("DP_CUDA_EMULATOR_PRODUCTS");
    std::vector<Chosen::Fails> offered{Chosen::never};
    if (most >= 3 && said != nullptr && std::strcmp(said, "bad") == 0)
        offered = {Chosen::always, Chosen::adding, Chosen::never};
    for (const Chosen::Fails fails : offered) {
        const Chosen chosen{at<Layout>(c).rows, at<Layout>(c).columns, at<Preference>(preference).alignment,
                            fails};
        found[*count] = {};
        std::memcpy(&found[(*count)++].algo, &chosen, sizeof chosen);
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t c,
                                       cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
    Chosen chosen;
    std::memcpy(&chosen, algorithm, sizeof chosen);
    *result = {};
    const auto& layout = at<Layout>(c);
    return chosen.rows == layout.rows && chosen.columns == layout.columns ? CUBLAS_STATUS_SUCCESS
                                                                          : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation_handle, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_handle, const void* b,
                              cublasLtMatrixLayout_t b_handle, const void* beta, const void* c,
                              cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t d_handle,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
    const auto& operation = at<Operation>(operation_handle);
    const auto& layout = at<Layout>(d_handle);
    Chosen chosen;
    std::memcpy(&chosen, algorithm, sizeof chosen);
    require(chosen.rows == layout.rows && chosen.columns == layout.columns,
            "the algorithm of another product");
    const char* said = std::getenv("DP_CUDA_EMULATOR_PRODUCTS");
    if (said != nullptr && std::strcmp(said, "no-memory") == 0) return CUBLAS_STATUS_ALLOC_FAILED;
    if (chosen.fails == Chosen::always ||
        (chosen.fails == Chosen::adding && *static_cast<const float*>(beta) != 0)) {
        dp::cuda_emulator::note(cudaErrorInvalidValue);
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    const void* bias = operation.has_bias() || operation.has_bias_gradient() ? operation.bias : nullptr;
    const void* auxiliary = operation.has_auxiliary() ? operation.auxiliary : nullptr;
    for (const void* place : {a, b, c, static_cast<const void*>(d), bias, auxiliary})
        require(reinterpret_cast<std::uintptr_t>(place) % chosen.alignment == 0 ||
                    dp::cuda_emulator::place_in_allocation(place) % chosen.alignment == 0,
                "less alignment than was promised");
    require(operation.epilogue == CUBLASLT_EPILOGUE_DEFAULT || operation.has_bias() ||
                operation.has_bias_gradient() || operation.epilogue == CUBLASLT_EPILOGUE_DGELU,
            "an epilogue that is not emulated");
    if (operation.has_bias() || operation.has_bias_gradient())
        require(operation.bias != nullptr && operation.bias_type == layout.type,
                "an epilogue without its bias");
    if (operation.has_auxiliary())
        require(operation.auxiliary_leading >= layout.rows && operation.auxiliary_leading % 8 == 0 &&
                    operation.auxiliary != nullptr &&
                    reinterpret_cast<std::uintptr_t>(operation.auxiliary) % 16 == 0,
                "what GELU is kept for does not lie as the manual wants it");
    const Product product{operation,
                          at<Layout>(a_handle),
                          at<Layout>(b_handle),
                          layout,
                          *static_cast<const float*>(alpha),
                          *static_cast<const float*>(beta),
                          a,
                          b,
                          c,
                          d,
                          static_cast<char*>(workspace),
                          workspace_bytes};
    const cudaError_t queued = dp::cuda_emulator::queue(dp::cuda_emulator::Did::kernel, stream,
                                                        {"a matrix product"}, product.ranges(), product);
    return queued == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
}
