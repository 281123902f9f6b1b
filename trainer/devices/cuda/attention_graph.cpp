// SPDX-License-Identifier: Apache-2.0
#include "trainer/devices/cuda/attention_graph.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

#include "trainer/devices/cuda/cudnn_library.hpp"

namespace dp::trainer {
namespace {

using Handle = cudnnBackendDescriptor_t;
using Dimensions = std::array<std::int64_t, 4>;

constexpr const char* kDescribingAttention = "describing attention";
constexpr std::int64_t kRowAlignment = 16;  // bytes, of bf16

// Unique ids: those of tensors outside the plan count from 1, then come numbers that the host gives, then what is inside.
constexpr std::int64_t kFirstId = 1, kScaleId = 50, kHiddenId = 51, kOneId = 52, kFirstInside = 100;
constexpr float kHiddenScore = -std::numeric_limits<float>::infinity(), kOneNumber = 1;

template <typename T>
constexpr cudnnBackendAttributeType_t type_of() {
    if constexpr (std::is_same_v<T, std::int64_t>) return CUDNN_TYPE_INT64;
    if constexpr (std::is_same_v<T, bool>) return CUDNN_TYPE_BOOLEAN;
    if constexpr (std::is_same_v<T, char>) return CUDNN_TYPE_CHAR;
    if constexpr (std::is_same_v<T, cudnnDataType_t>) return CUDNN_TYPE_DATA_TYPE;
    if constexpr (std::is_same_v<T, cudnnPointwiseMode_t>) return CUDNN_TYPE_POINTWISE_MODE;
    if constexpr (std::is_same_v<T, cudnnReduceTensorOp_t>) return CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
    if constexpr (std::is_same_v<T, cudnnBackendHeurMode_t>) return CUDNN_TYPE_HEUR_MODE;
    if constexpr (std::is_same_v<T, cudnnHandle_t>) return CUDNN_TYPE_HANDLE;
    return CUDNN_TYPE_BACKEND_DESCRIPTOR;
}

// Makes descriptors, and keeps them and the first failure.
class Maker {
 public:
    Handle make(cudnnBackendDescriptorType_t type) {
        Handle made = nullptr;
        check(cudnn().cudnnBackendCreateDescriptor(type, &made));
        made_.emplace_back(made);
        return made;
    }
    template <typename T>
    void set(Handle of, cudnnBackendAttributeName_t name, std::span<const T> values) {
        if (status_ == CUDNN_STATUS_SUCCESS)
            check(cudnn().cudnnBackendSetAttribute(of, name, type_of<T>(),
                                                   static_cast<std::int64_t>(values.size()), values.data()));
    }
    template <typename T>
    void set(Handle of, cudnnBackendAttributeName_t name, const T& value) {
        set(of, name, std::span<const T>(&value, 1));
    }
    void finish(Handle of) {
        if (status_ == CUDNN_STATUS_SUCCESS) check(cudnn().cudnnBackendFinalize(of));
    }
    cudnnStatus_t status() const { return status_; }
    std::vector<CudnnDescriptor> take() { return std::move(made_); }

 private:
    std::vector<CudnnDescriptor> made_;
    cudnnStatus_t status_ = CUDNN_STATUS_SUCCESS;

    void check(cudnnStatus_t result) {
        if (status_ == CUDNN_STATUS_SUCCESS) status_ = result;
    }
};

// All tensors have four dimensions: sequence, head, and two more.
class Graph {
 public:
    Graph(Maker& maker, const AttentionShape& shape) : maker_(maker), s_(shape) {}

    // y = softmax(hidden(queries keysᵀ scale)) values, and the sums.
    Handle forward() {
        const Handle scores = masked(scaled(product(queries(), columns_of(kKeys))));
        const Handle largest = reduced(CUDNN_REDUCE_TENSOR_MAX, scores, inside(by_query()));
        const Handle powers = pointwise(CUDNN_POINTWISE_EXP, pointwise(CUDNN_POINTWISE_SUB, scores, largest));
        const Handle sum = reduced(CUDNN_REDUCE_TENSOR_ADD, powers, inside(by_query()));
        const Handle logarithm = pointwise(CUDNN_POINTWISE_LOG, sum, nullptr, inside(by_query()));
        pointwise(CUDNN_POINTWISE_ADD, largest, logarithm, sums());
        const Handle weights =
            pointwise(CUDNN_POINTWISE_DIV, powers, sum, inside(scores_, CUDNN_DATA_BFLOAT16));
        product(weights, rows_of(kValues), outside(kY, rows_, y_strides_));
        return whole();
    }

    // Dao et al. 2022, algorithm 4.
    Handle backward() {
        const Handle d_y = outside(kDY, rows_, y_strides_), q = queries(), keys = columns_of(kKeys);
        const Handle both =
            pointwise(CUDNN_POINTWISE_MUL, d_y, outside(kY, rows_, y_strides_), inside(rows_));
        const Handle products = outside(kProducts, by_query(), of_queries(), CUDNN_DATA_FLOAT);
        pointwise(CUDNN_POINTWISE_MUL, reduced(CUDNN_REDUCE_TENSOR_ADD, both, inside(by_query())),
                  given(kOneId), products);
        const Handle scores = masked(pointwise(CUDNN_POINTWISE_SUB, scaled(product(q, keys)), sums()));
        const Handle weights = pointwise(CUDNN_POINTWISE_EXP, scores);
        product(turned(weights), d_y, outside(kDValues, rows_, qkv_strides_));
        const Handle d_weights = product(d_y, columns_of(kValues));
        const Handle d_scores = scaled(
            pointwise(CUDNN_POINTWISE_MUL, pointwise(CUDNN_POINTWISE_SUB, d_weights, products), weights));
        product(turned(d_scores), q, outside(kDKeys, rows_, qkv_strides_));
        const Handle keys_again =
            tensor(next_++, rows_, qkv_strides_, CUDNN_DATA_BFLOAT16, kRowAlignment, true, false);
        reshape(keys, keys_again);
        product(d_scores, keys_again, outside(kDQueries, rows_, qkv_strides_));
        return whole();
    }

 private:
    Maker& maker_;
    const AttentionShape s_;
    std::vector<Handle> operations_;
    std::int64_t next_ = kFirstInside;
    const std::int64_t columns_ = s_.heads * s_.size;  // of y; qkv has three times as many
    const Dimensions rows_{s_.sequences, s_.heads, s_.sequence, s_.size};
    const Dimensions scores_{s_.sequences, s_.heads, s_.sequence, s_.sequence};
    const Dimensions y_strides_{s_.sequence * columns_, s_.size, columns_, 1};
    const Dimensions qkv_strides_{3 * s_.sequence * columns_, s_.size, 3 * columns_, 1};
    Handle scale_ = nullptr;

    Dimensions by_query() const { return {s_.sequences, s_.heads, s_.sequence, 1}; }
    Dimensions of_queries() const { return {s_.heads * s_.sequence, s_.sequence, 1, 1}; }

    Handle tensor(std::int64_t id, const Dimensions& dimensions, const Dimensions& strides,
                  cudnnDataType_t type, std::int64_t alignment, bool is_inside, bool is_given) {
        const Handle made = maker_.make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
        maker_.set(made, CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
        maker_.set(made, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
        maker_.set(made, CUDNN_ATTR_TENSOR_DIMENSIONS, std::span<const std::int64_t>(dimensions));
        maker_.set(made, CUDNN_ATTR_TENSOR_STRIDES, std::span<const std::int64_t>(strides));
        maker_.set(made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment);
        maker_.set(made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, is_inside);
        maker_.set(made, CUDNN_ATTR_TENSOR_IS_BY_VALUE, is_given);
        maker_.finish(made);
        return made;
    }
    Handle outside(AttentionTensor which, const Dimensions& dimensions, const Dimensions& strides,
                   cudnnDataType_t type = CUDNN_DATA_BFLOAT16) {
        const std::int64_t alignment = type == CUDNN_DATA_FLOAT ? sizeof(float) : kRowAlignment;
        return tensor(kFirstId + which, dimensions, strides, type, alignment, false, false);
    }
    Handle inside(const Dimensions& d, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
        return tensor(next_++, d, {d[1] * d[2] * d[3], d[2] * d[3], d[3], 1}, type, kRowAlignment, true,
                      false);
    }
    Handle given(std::int64_t id) {
        return tensor(id, {1, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_FLOAT, sizeof(float), false, true);
    }
    Handle rows_of(AttentionTensor which) { return outside(which, rows_, qkv_strides_); }
    Handle queries() { return rows_of(kQueries); }
    Handle sums() { return outside(kSums, by_query(), of_queries(), CUDNN_DATA_FLOAT); }
    // The same numbers, transposed.
    Handle columns_of(AttentionTensor which) {
        const auto swapped = [](Dimensions d) {
            std::swap(d[2], d[3]);
            return d;
        };
        return outside(which, swapped(rows_), swapped(qkv_strides_));
    }

    Handle operation(cudnnBackendDescriptorType_t type,
                     std::initializer_list<std::pair<cudnnBackendAttributeName_t, Handle>> parts) {
        const Handle made = maker_.make(type);
        for (const auto& [name, part] : parts)
            if (part != nullptr) maker_.set(made, name, part);
        maker_.finish(made);
        operations_.push_back(made);
        return made;
    }
    // y = x mode b, number by number; where `selected` is given, x where it holds, else b.
    Handle pointwise(cudnnPointwiseMode_t mode, Handle x, Handle b, Handle y, Handle selected = nullptr,
                     cudnnDataType_t type = CUDNN_DATA_FLOAT, std::int64_t axis = -1) {
        const Handle how = maker_.make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
        maker_.set(how, CUDNN_ATTR_POINTWISE_MODE, mode);
        maker_.set(how, CUDNN_ATTR_POINTWISE_MATH_PREC, type);
        if (axis >= 0) maker_.set(how, CUDNN_ATTR_POINTWISE_AXIS, axis);
        maker_.finish(how);
        operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
                  {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how},
                   {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x},
                   {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b},
                   {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y},
                   {CUDNN_ATTR_OPERATION_POINTWISE_TDESC, selected}});
        return y;
    }
    // Of scores.
    Handle pointwise(cudnnPointwiseMode_t mode, Handle x, Handle b = nullptr) {
        return pointwise(mode, x, b, inside(scores_));
    }
    Handle product(Handle a, Handle b, Handle c) {
        const Handle how = maker_.make(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
        maker_.set(how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
        maker_.finish(how);
        operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, {{CUDNN_ATTR_OPERATION_MATMUL_ADESC, a},
                                                              {CUDNN_ATTR_OPERATION_MATMUL_BDESC, b},
                                                              {CUDNN_ATTR_OPERATION_MATMUL_CDESC, c},
                                                              {CUDNN_ATTR_OPERATION_MATMUL_DESC, how}});
        return c;
    }
    Handle product(Handle a, Handle b) { return product(a, b, inside(scores_)); }
    Handle reduced(cudnnReduceTensorOp_t operator_, Handle x, Handle y) {
        const Handle how = maker_.make(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
        maker_.set(how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
        maker_.set(how, CUDNN_ATTR_REDUCTION_OPERATOR, operator_);
        maker_.finish(how);
        operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, {{CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x},
                                                                 {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y},
                                                                 {CUDNN_ATTR_OPERATION_REDUCTION_DESC, how}});
        return y;
    }
    void reshape(Handle x, Handle y) {
        operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
                  {{CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x}, {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y}});
    }
    // Scores, transposed and in bf16, for a product.
    Handle turned(Handle scores) {
        const std::int64_t side = s_.sequence;
        const Handle y = tensor(next_++, scores_, {s_.heads * side * side, side * side, 1, side},
                                CUDNN_DATA_BFLOAT16, kRowAlignment, true, false);
        reshape(scores, y);
        return y;
    }
    Handle scaled(Handle scores) {
        if (scale_ == nullptr) scale_ = given(kScaleId);
        return pointwise(CUDNN_POINTWISE_MUL, scores, scale_);
    }
    // A query sees the keys up to its own place.
    Handle masked(Handle scores) {
        const Handle query = inside(scores_, CUDNN_DATA_INT32), key = inside(scores_, CUDNN_DATA_INT32),
                     seen = inside(scores_, CUDNN_DATA_BOOLEAN);
        pointwise(CUDNN_POINTWISE_GEN_INDEX, scores, nullptr, query, nullptr, CUDNN_DATA_FLOAT, 2);
        pointwise(CUDNN_POINTWISE_GEN_INDEX, scores, nullptr, key, nullptr, CUDNN_DATA_FLOAT, 3);
        pointwise(CUDNN_POINTWISE_CMP_GE, query, key, seen, nullptr, CUDNN_DATA_BOOLEAN);
        return pointwise(CUDNN_POINTWISE_BINARY_SELECT, scores, given(kHiddenId), inside(scores_), seen);
    }
    Handle whole() {
        const Handle graph = maker_.make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
        maker_.set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, std::span<const Handle>(operations_));
        return graph;
    }
};

// What cuDNN has for an attribute; 0 where it does not say.
std::int64_t number(Handle of, cudnnBackendAttributeName_t name) {
    std::int64_t value = 0, count = 0;
    cudnn().cudnnBackendGetAttribute(of, name, CUDNN_TYPE_INT64, 1, &count, &value);
    return value;
}

// By cuDNN's own notes of the engine.
bool is_deterministic(Handle engine) {
    std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
    std::int64_t count = 0;
    if (cudnn().cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                         notes.size(), &count, notes.data()) != CUDNN_STATUS_SUCCESS)
        return true;  // it has none
    const auto end = notes.begin() + std::clamp<std::int64_t>(count, 0, notes.size());
    return std::find(notes.begin(), end, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) == end;
}

// Engines with their settings, the one that should be fastest first; those that cannot do it on that GPU are left out.
std::vector<Handle> engines_for(Handle heuristics, Maker& maker) {
    const auto ask = [&](std::int64_t most, std::int64_t& count, Handle* found) {
        return cudnn().cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                CUDNN_TYPE_BACKEND_DESCRIPTOR, most, &count, found);
    };
    std::int64_t count = 0;
    if (ask(0, count, nullptr) != CUDNN_STATUS_SUCCESS || count <= 0) return {};
    std::vector<Handle> found;
    for (std::int64_t i = 0; i < count; ++i) found.push_back(maker.make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    std::int64_t usable = 0;
    if (ask(count, usable, found.data()) != CUDNN_STATUS_SUCCESS) return {};
    found.resize(static_cast<std::size_t>(std::clamp<std::int64_t>(usable, 0, count)));
    return found;
}

}  // namespace

void EndCudnnDescriptor::operator()(void* descriptor) const {
    cudnn().cudnnBackendDestroyDescriptor(descriptor);
}

Try<AttentionPlan> AttentionPlan::make(const AttentionShape& shape, AttentionPass pass, const CudnnGpu& gpu,
                                       std::int64_t most_workspace) {
    Maker maker;
    Graph graph(maker, shape);
    const Handle described = pass == AttentionPass::forward ? graph.forward() : graph.backward();
    Handle properties = nullptr;
    if (gpu.handle != nullptr) {
        maker.set(described, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, gpu.handle);
    } else {
        properties = maker.make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
        maker.set(properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                  std::span<const char>(gpu.properties));
        maker.finish(properties);
    }
    maker.finish(described);
    const Handle heuristics = maker.make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    maker.set(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, described);
    maker.set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_HEUR_MODE_INSTANT);
    if (properties != nullptr) maker.set(heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, properties);
    maker.finish(heuristics);
    DP_TRY(cudnn_done(maker.status(), kDescribingAttention));

    std::int64_t least_workspace = std::numeric_limits<std::int64_t>::max();
    cudnnStatus_t said = CUDNN_STATUS_NOT_SUPPORTED;
    bool is_refused_for_bits = false;
    for (const Handle engine : engines_for(heuristics, maker)) {
        Maker attempt;
        const Handle plan = attempt.make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        attempt.set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine);
        if (properties != nullptr) {
            attempt.set(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, properties);
        } else {
            attempt.set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, gpu.handle);
        }
        attempt.finish(plan);
        said = attempt.status();
        if (said != CUDNN_STATUS_SUCCESS) continue;
        AttentionPlan made;
        made.workspace_ = number(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
        least_workspace = std::min(least_workspace, made.workspace_);
        if (made.workspace_ > most_workspace) continue;
        const Handle which = maker.make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
        std::int64_t count = 0;
        Handle taken = which;
        cudnn().cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                         1, &count, &taken);
        if (!is_deterministic(which)) {
            is_refused_for_bits = true;
            continue;
        }
        made.engine_ = number(which, CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
        made.scale_ = 1 / std::sqrt(static_cast<float>(shape.size));
        made.is_backward_ = pass == AttentionPass::backward;
        made.made_ = maker.take();
        for (CudnnDescriptor& one : attempt.take()) made.made_.push_back(std::move(one));
        return made;
    }
    if (is_refused_for_bits) return dp::fail("cuDNN says that it may give other bits each time");
    if (least_workspace < std::numeric_limits<std::int64_t>::max())
        return dp::fail("cuDNN's engines need a workspace of " + std::to_string(least_workspace) +
                        " bytes, but there are " + std::to_string(most_workspace));
    return dp::fail(std::string("cuDNN has no engine for it (") + cudnn().cudnnGetErrorString(said) + ")");
}

cudnnStatus_t AttentionPlan::run(cudnnHandle_t handle, const AttentionPlaces& places, void* workspace) const {
    std::vector<std::int64_t> ids;
    std::vector<const void*> numbers;
    const auto add = [&](std::int64_t id, const void* place) {
        ids.push_back(id);
        numbers.push_back(place);
    };
    for (std::size_t i = 0; i < places.size(); ++i)
        if (places[i] != nullptr) add(kFirstId + static_cast<std::int64_t>(i), places[i]);
    add(kScaleId, &scale_);
    add(kHiddenId, &kHiddenScore);
    if (is_backward_) add(kOneId, &kOneNumber);

    Maker maker;
    const Handle pack = maker.make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    maker.set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::span<const std::int64_t>(ids));
    const auto point = [&](cudnnBackendAttributeName_t name, std::size_t count, const void* pointers) {
        return cudnn().cudnnBackendSetAttribute(pack, name, CUDNN_TYPE_VOID_PTR,
                                                static_cast<std::int64_t>(count), pointers);
    };
    cudnnStatus_t status = maker.status();
    if (status == CUDNN_STATUS_SUCCESS)
        status = point(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, numbers.size(), numbers.data());
    if (status == CUDNN_STATUS_SUCCESS) status = point(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 1, &workspace);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    maker.finish(pack);
    if (maker.status() != CUDNN_STATUS_SUCCESS) return maker.status();
    return cudnn().cudnnBackendExecute(handle, made_.back().get(), pack);
}

}  // namespace dp::trainer
