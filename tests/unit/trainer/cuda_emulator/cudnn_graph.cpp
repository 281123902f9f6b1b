// SPDX-License-Identifier: Apache-2.0
//
// cuDNN's back-end API of the emulated GPU: what the trainer's attention_graph.cpp calls of it. A graph is computed operation by
// operation, each as cuDNN's manual describes it, so it comes to what its operations say. The numbers between them are doubles,
// but for those that the graph has in bf16. DP_CUDA_EMULATOR_ATTENTION says how it answers: none: there is no engine. fails: no
// engine can make a plan. large: every plan needs more workspace than there is. wrong: the numbers are others. noted: cuDNN says
// that they may change. changing: they are others each time. breaks: a plan cannot be run.
#include <cuda_bf16.h>
#include <cudnn.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "queues.hpp"

namespace {

using Dimensions = std::array<std::int64_t, 4>;
using Numbers = std::vector<double>;

constexpr std::int64_t kWorkspace = 100, kTooMuch = std::int64_t{8} << 30;

void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "emulated cuDNN: %s\n", what);
    std::abort();
}

bool answers(const char* how) {
    const char* said = std::getenv("DP_CUDA_EMULATOR_ATTENTION");
    return said != nullptr && std::string(said) == how;
}

std::size_t size_of(cudnnBackendAttributeType_t type) {
    switch (type) {
        case CUDNN_TYPE_BOOLEAN:
            return sizeof(bool);
        case CUDNN_TYPE_INT64:
            return sizeof(std::int64_t);
        case CUDNN_TYPE_HANDLE:
        case CUDNN_TYPE_VOID_PTR:
        case CUDNN_TYPE_BACKEND_DESCRIPTOR:
            return sizeof(void*);
        case CUDNN_TYPE_DATA_TYPE:
        case CUDNN_TYPE_POINTWISE_MODE:
        case CUDNN_TYPE_REDUCTION_OPERATOR_TYPE:
        case CUDNN_TYPE_HEUR_MODE:
            return sizeof(int);
        default:
            require(false, "an attribute's type that is not emulated");
            return 0;
    }
}

struct Descriptor {
    cudnnBackendDescriptorType_t type;
    bool is_finished = false;
    std::map<cudnnBackendAttributeName_t, std::vector<std::byte>> attributes;

    bool has(cudnnBackendAttributeName_t name) const { return attributes.contains(name); }
    template <typename T>
    std::vector<T> all(cudnnBackendAttributeName_t name) const {
        const auto& bytes = found(name);
        std::vector<T> values(bytes.size() / sizeof(T));
        std::memcpy(values.data(), bytes.data(), bytes.size());
        return values;
    }
    template <typename T>
    T one(cudnnBackendAttributeName_t name) const {
        const auto& bytes = found(name);
        require(bytes.size() == sizeof(T), "an attribute with several values");
        T value{};
        std::memcpy(&value, bytes.data(), sizeof value);
        return value;
    }
    const std::vector<std::byte>& found(cudnnBackendAttributeName_t name) const {
        const auto place = attributes.find(name);
        require(place != attributes.end(), "an attribute that was not set");
        return place->second;
    }
    const Descriptor& part(cudnnBackendAttributeName_t name) const {
        const auto* found = static_cast<const Descriptor*>(one<void*>(name));
        require(found != nullptr && found->is_finished, "a part that is not finished");
        return *found;
    }
};

struct Tensor {
    std::int64_t id;
    cudnnDataType_t type;
    Dimensions size, strides;
    bool is_inside, is_given;

    explicit Tensor(const Descriptor& of)
        : id(of.one<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID)),
          type(of.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE)),
          size(four(of, CUDNN_ATTR_TENSOR_DIMENSIONS)),
          strides(four(of, CUDNN_ATTR_TENSOR_STRIDES)),
          is_inside(of.one<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL)),
          is_given(of.one<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE)) {}

    // Of numbers without gaps.
    std::size_t place(const Dimensions& at) const {
        return static_cast<std::size_t>(((at[0] * size[1] + at[1]) * size[2] + at[2]) * size[3] + at[3]);
    }
    // Where one dimension has one number, it is for all.
    std::size_t shared_place(Dimensions at) const {
        for (std::size_t i = 0; i < 4; ++i)
            if (size[i] == 1) at[i] = 0;
        return place(at);
    }
    std::size_t numbers() const { return static_cast<std::size_t>(size[0] * size[1] * size[2] * size[3]); }
    std::int64_t offset(const Dimensions& at) const {
        std::int64_t sum = 0;
        for (std::size_t i = 0; i < 4; ++i) sum += at[i] * strides[i];
        return sum;
    }
    std::size_t bytes() const {
        const std::int64_t last = offset({size[0] - 1, size[1] - 1, size[2] - 1, size[3] - 1});
        return static_cast<std::size_t>(last + 1) * (type == CUDNN_DATA_BFLOAT16 ? 2 : 4);
    }

 private:
    static Dimensions four(const Descriptor& of, cudnnBackendAttributeName_t name) {
        const auto values = of.all<std::int64_t>(name);
        require(values.size() == 4, "not four dimensions");
        return {values[0], values[1], values[2], values[3]};
    }
};

template <typename Work>
void for_each(const Dimensions& size, Work work) {
    for (std::int64_t i = 0; i < size[0]; ++i)
        for (std::int64_t j = 0; j < size[1]; ++j)
            for (std::int64_t k = 0; k < size[2]; ++k)
                for (std::int64_t l = 0; l < size[3]; ++l) work(Dimensions{i, j, k, l});
}

double rounded(double value, cudnnDataType_t type) {
    if (type != CUDNN_DATA_BFLOAT16) return value;
    return static_cast<double>(__bfloat162float(__float2bfloat16_rn(static_cast<float>(value))));
}

// One run of a graph.
class Run {
 public:
    explicit Run(std::map<std::int64_t, void*> places) : places_(std::move(places)) {}

    void operation(const Descriptor& of) {
        switch (of.type) {
            case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
                return product(of);
            case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
                return pointwise(of);
            case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
                return reduce(of);
            case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
                return reshape(of);
            default:
                require(false, "an operation that is not emulated");
        }
    }

 private:
    std::map<std::int64_t, void*> places_;
    std::map<std::int64_t, Numbers> inside_;

    void* place_of(const Tensor& tensor) const {
        const auto found = places_.find(tensor.id);
        require(found != places_.end() && found->second != nullptr, "a tensor without a place");
        return found->second;
    }
    Numbers read(const Tensor& tensor) const {
        if (tensor.is_inside) {
            const auto found = inside_.find(tensor.id);
            require(found != inside_.end(), "a tensor that no operation has written");
            return found->second;
        }
        const void* from = place_of(tensor);
        Numbers numbers(tensor.numbers());
        for_each(tensor.size, [&](const Dimensions& at) {
            const std::int64_t offset = tensor.offset(at);
            numbers[tensor.place(at)] =
                tensor.type == CUDNN_DATA_BFLOAT16
                    ? static_cast<double>(__bfloat162float(static_cast<const __nv_bfloat16*>(from)[offset]))
                    : static_cast<double>(static_cast<const float*>(from)[offset]);
        });
        return numbers;
    }
    void write(const Tensor& tensor, Numbers numbers) {
        require(!tensor.is_given && numbers.size() == tensor.numbers(), "a result without room");
        for (double& number : numbers) number = rounded(number, tensor.type);
        if (!tensor.is_inside) {
            void* to = place_of(tensor);
            for_each(tensor.size, [&](const Dimensions& at) {
                const auto value = static_cast<float>(numbers[tensor.place(at)]);
                if (tensor.type == CUDNN_DATA_BFLOAT16) {
                    static_cast<__nv_bfloat16*>(to)[tensor.offset(at)] = __float2bfloat16_rn(value);
                } else {
                    require(tensor.type == CUDNN_DATA_FLOAT, "a type that is not emulated");
                    static_cast<float*>(to)[tensor.offset(at)] = value;
                }
            });
        }
        // What is outside is read there again: it may have been overwritten.
        require(inside_.emplace(tensor.id, tensor.is_inside ? std::move(numbers) : Numbers()).second,
                "a tensor that is written twice");
    }

    void product(const Descriptor& of) {
        const Tensor a(of.part(CUDNN_ATTR_OPERATION_MATMUL_ADESC)),
            b(of.part(CUDNN_ATTR_OPERATION_MATMUL_BDESC)), c(of.part(CUDNN_ATTR_OPERATION_MATMUL_CDESC));
        require(of.part(CUDNN_ATTR_OPERATION_MATMUL_DESC).one<cudnnDataType_t>(CUDNN_ATTR_MATMUL_COMP_TYPE) ==
                    CUDNN_DATA_FLOAT,
                "a product that does not add up in fp32");
        require(a.size[2] == c.size[2] && a.size[3] == b.size[2] && b.size[3] == c.size[3],
                "shapes that do not fit");
        const Numbers x = read(a), y = read(b);
        Numbers z(c.numbers());
        for_each(c.size, [&](const Dimensions& at) {
            double sum = 0;
            for (std::int64_t i = 0; i < a.size[3]; ++i)
                sum += rounded(x[a.place({at[0], at[1], at[2], i})], CUDNN_DATA_BFLOAT16) *
                       y[b.place({at[0], at[1], i, at[3]})];
            z[c.place(at)] = sum;
        });
        write(c, std::move(z));
    }

    static double combined(cudnnPointwiseMode_t mode, double x, double b) {
        switch (mode) {
            case CUDNN_POINTWISE_ADD:
                return x + b;
            case CUDNN_POINTWISE_SUB:
                return x - b;
            case CUDNN_POINTWISE_MUL:
                return x * b;
            case CUDNN_POINTWISE_DIV:
                return x / b;
            case CUDNN_POINTWISE_EXP:
                return std::exp(x);
            case CUDNN_POINTWISE_LOG:
                return std::log(x);
            case CUDNN_POINTWISE_CMP_GE:
                return x >= b ? 1 : 0;
            default:
                require(false, "a pointwise mode that is not emulated");
                return 0;
        }
    }
    void pointwise(const Descriptor& of) {
        const Descriptor& how = of.part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
        const auto mode = how.one<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
        const Tensor x(of.part(CUDNN_ATTR_OPERATION_POINTWISE_XDESC)),
            y(of.part(CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
        const Numbers from = read(x);
        Numbers to(y.numbers());
        const bool has_other = of.has(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
        const Tensor other(has_other ? of.part(CUDNN_ATTR_OPERATION_POINTWISE_BDESC)
                                     : of.part(CUDNN_ATTR_OPERATION_POINTWISE_XDESC));
        const Numbers others = read(other);
        if (mode == CUDNN_POINTWISE_GEN_INDEX) {
            const auto axis = static_cast<std::size_t>(how.one<std::int64_t>(CUDNN_ATTR_POINTWISE_AXIS));
            for_each(y.size, [&](const Dimensions& at) { to[y.place(at)] = static_cast<double>(at[axis]); });
        } else if (mode == CUDNN_POINTWISE_BINARY_SELECT) {
            const Tensor selected(of.part(CUDNN_ATTR_OPERATION_POINTWISE_TDESC));
            const Numbers holds = read(selected);
            for_each(y.size, [&](const Dimensions& at) {
                to[y.place(at)] = holds[selected.place(at)] != 0 ? from[x.shared_place(at)]
                                                                 : others[other.shared_place(at)];
            });
        } else {
            require(has_other == (mode != CUDNN_POINTWISE_EXP && mode != CUDNN_POINTWISE_LOG),
                    "not as many operands as the mode has");
            for_each(y.size, [&](const Dimensions& at) {
                to[y.place(at)] = combined(mode, from[x.shared_place(at)], others[other.shared_place(at)]);
            });
        }
        write(y, std::move(to));
    }

    void reduce(const Descriptor& of) {
        const auto how = of.part(CUDNN_ATTR_OPERATION_REDUCTION_DESC)
                             .one<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR);
        const Tensor x(of.part(CUDNN_ATTR_OPERATION_REDUCTION_XDESC)),
            y(of.part(CUDNN_ATTR_OPERATION_REDUCTION_YDESC));
        const bool is_sum = how == CUDNN_REDUCE_TENSOR_ADD;
        require(is_sum || how == CUDNN_REDUCE_TENSOR_MAX, "a reduction that is not emulated");
        const Numbers from = read(x);
        Numbers to(y.numbers(), is_sum ? 0 : -HUGE_VAL);
        for_each(x.size, [&](const Dimensions& at) {
            double& result = to[y.shared_place(at)];
            result = is_sum ? result + from[x.place(at)] : std::max(result, from[x.place(at)]);
        });
        write(y, std::move(to));
    }

    // cuDNN's attention takes it as a transposition of the last two dimensions.
    void reshape(const Descriptor& of) {
        const Tensor x(of.part(CUDNN_ATTR_OPERATION_RESHAPE_XDESC)),
            y(of.part(CUDNN_ATTR_OPERATION_RESHAPE_YDESC));
        require(x.size[2] == y.size[3] && x.size[3] == y.size[2], "a reshape that is no transposition");
        const Numbers from = read(x);
        Numbers to(y.numbers());
        for_each(y.size, [&](const Dimensions& at) {
            to[y.place(at)] = from[x.place({at[0], at[1], at[3], at[2]})];
        });
        write(y, std::move(to));
    }
};

Descriptor& at(cudnnBackendDescriptor_t handle) {
    require(handle != nullptr, "a descriptor that is null");
    return *static_cast<Descriptor*>(handle);
}

// The engine's number, or a plan's workspace.
void give(std::int64_t value, std::int64_t* count, void* to) {
    *static_cast<std::int64_t*>(to) = value;
    if (count != nullptr) *count = 1;
}

// What an operation reads and writes outside the graph.
std::vector<Tensor> tensors_of(const Descriptor& operation, bool written) {
    std::vector<Tensor> found;
    for (const auto name : {CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC,
                            CUDNN_ATTR_OPERATION_MATMUL_CDESC, CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                            CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
                            CUDNN_ATTR_OPERATION_REDUCTION_XDESC, CUDNN_ATTR_OPERATION_REDUCTION_YDESC,
                            CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_ATTR_OPERATION_RESHAPE_YDESC}) {
        const bool is_result =
            name == CUDNN_ATTR_OPERATION_MATMUL_CDESC || name == CUDNN_ATTR_OPERATION_POINTWISE_YDESC ||
            name == CUDNN_ATTR_OPERATION_REDUCTION_YDESC || name == CUDNN_ATTR_OPERATION_RESHAPE_YDESC;
        if (is_result != written || !operation.has(name)) continue;
        const Tensor tensor(operation.part(name));
        if (!tensor.is_inside && !tensor.is_given) found.push_back(tensor);
    }
    return found;
}

// Of the first number that the graph writes in bf16: where it is wrong.
void spoil(const std::vector<Tensor>& results, const std::map<std::int64_t, void*>& places) {
    static float times = 0;
    ++times;
    for (const Tensor& tensor : results) {
        if (tensor.type != CUDNN_DATA_BFLOAT16) continue;
        auto& number = *static_cast<__nv_bfloat16*>(places.at(tensor.id));
        const float was = __bfloat162float(number);
        if (answers("wrong")) number = __float2bfloat16_rn(was + 100);
        if (answers("changing")) number = __float2bfloat16_rn(was * (1 + times / 64));
        return;
    }
}

}  // namespace

extern "C" {

std::size_t cudnnGetVersion() {
    return CUDNN_VERSION;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
    *descriptor = new Descriptor{type, false, {}};
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
    delete static_cast<Descriptor*>(descriptor);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t count,
                                       const void* values) {
    require(!at(descriptor).is_finished, "an attribute of what is finished");
    const auto* bytes = static_cast<const std::byte*>(values);
    at(descriptor).attributes[name] = {bytes, bytes + static_cast<std::size_t>(count) * size_of(type)};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
    Descriptor& of = at(descriptor);
    require(!of.is_finished, "what is finished twice");
    if (of.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && answers("fails"))
        return CUDNN_STATUS_NOT_SUPPORTED;
    if (of.type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
        require(of.one<cudnnHandle_t>(CUDNN_ATTR_OPERATIONGRAPH_HANDLE) != nullptr, "a graph without a GPU");
    of.is_finished = true;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                       cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t,
                                       std::int64_t most, std::int64_t* count, void* values) {
    const Descriptor& of = at(descriptor);
    require(of.is_finished, "what is not finished is asked");
    switch (name) {
        case CUDNN_ATTR_ENGINEHEUR_RESULTS:
            // Like cuDNN, it counts those that then turn out to be of no use.
            *count = 2;
            if (values == nullptr) return CUDNN_STATUS_SUCCESS;
            require(most >= 2, "no room for all engines");
            *count = answers("none") ? 0 : 1;
            if (*count > 0) {
                Descriptor& first = at(static_cast<cudnnBackendDescriptor_t*>(values)[0]);
                first.attributes = of.attributes;
                first.is_finished = true;
            }
            return CUDNN_STATUS_SUCCESS;
        case CUDNN_ATTR_ENGINECFG_ENGINE:
            at(*static_cast<cudnnBackendDescriptor_t*>(values)).is_finished = true;
            *count = 1;
            return CUDNN_STATUS_SUCCESS;
        case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
            give(2, count, values);
            return CUDNN_STATUS_SUCCESS;
        case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
            require(most >= 1, "no room for a note");
            *count = answers("noted") ? 1 : 0;
            if (*count > 0)
                *static_cast<cudnnBackendNumericalNote_t*>(values) = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
            return CUDNN_STATUS_SUCCESS;
        case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
            give(answers("large") ? kTooMuch : kWorkspace, count, values);
            return CUDNN_STATUS_SUCCESS;
        default:
            require(false, "an attribute that is not emulated");
            return CUDNN_STATUS_BAD_PARAM;
    }
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
    if (answers("breaks")) return CUDNN_STATUS_EXECUTION_FAILED;
    const Descriptor& graph =
        at(plan).part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).part(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    const auto ids = at(pack).all<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const auto pointers = at(pack).all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    auto* const workspace = at(pack).one<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    require(ids.size() == pointers.size(), "not a pointer for each tensor");
    std::map<std::int64_t, void*> places;
    for (std::size_t i = 0; i < ids.size(); ++i)
        require(places.emplace(ids[i], pointers[i]).second, "two pointers for a tensor");

    // The descriptors may end before a late work runs; the pack does.
    std::vector<Descriptor> operations;
    std::vector<dp::cuda_emulator::Range> ranges{{workspace, kWorkspace, true}};
    std::vector<Tensor> results;
    for (void* one : graph.all<void*>(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
        const Descriptor& operation = at(one);
        operations.push_back(operation);
        for (const bool written : {false, true})
            for (const Tensor& tensor : tensors_of(operation, written)) {
                ranges.push_back({places.at(tensor.id), tensor.bytes(), written});
                require(reinterpret_cast<std::uintptr_t>(places.at(tensor.id)) %
                                (tensor.type == CUDNN_DATA_BFLOAT16 ? 16 : 4) ==
                            0,
                        "a tensor that is not aligned");
                if (written) results.push_back(tensor);
            }
    }
    // Numbers that are given are the host's, and taken now.
    std::map<std::int64_t, float> given;
    for (const std::int64_t id : ids)
        if (id >= 50) given.emplace(id, *static_cast<const float*>(places.at(id)));
    const auto work = [=]() mutable {
        for (auto& [id, number] : given) places.at(id) = &number;
        Run run(places);
        for (const Descriptor& operation : operations) {
            run.operation(operation);
            std::memset(workspace, 0xFF, kWorkspace);  // NaN: it may write anywhere there
        }
        spoil(results, places);
    };
    dp::cuda_emulator::queue(dp::cuda_emulator::Did::kernel, *reinterpret_cast<cudaStream_t*>(handle),
                             {"attention by cuDNN"}, std::move(ranges), work);
    return CUDNN_STATUS_SUCCESS;
}
}
