// SPDX-License-Identifier: Apache-2.0
#include "trainer/models/parameters.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "trainer/base/random.hpp"

namespace dp::trainer {
namespace {

// Every parameter begins at 256 bytes, which lets cuBLASLt use its widest loads.
constexpr std::int64_t kAlignment = 64;

// The elements that it takes in memory, in this shape with so many rows.
std::int64_t room_of(const Shape& shape, std::int64_t rows) {
    if (shape.at(0) == 0) return 0;  // another rank has it
    return (elements_of(shape) / shape.at(0) * rows + kAlignment - 1) / kAlignment * kAlignment;
}
std::int64_t room_of(const Parameter& parameter) {
    return room_of(parameter.shape, parameter.spare.rows_of(parameter.shape.at(0), parameter.spare.least));
}
std::int64_t whole_room_of(const Parameter& parameter) {
    const Shape& whole = parameter.part.whole;
    return room_of(whole, parameter.spare.rows_of(whole.at(0)));
}

// In memory matrices, which have weight decay, come before biases and the like, and these before what is frozen.
enum class Order { decayed, others, frozen };
constexpr std::array kOrders{Order::decayed, Order::others, Order::frozen};
Order order_of(const Parameter& parameter) {
    if (parameter.is_frozen) return Order::frozen;
    return parameter.shape.size() > 1 ? Order::decayed : Order::others;
}

// How often drawing one number calls Random::bits().
std::uint64_t draws_of(Initial::Kind kind) {
    return kind == Initial::Kind::uniform ? 1 : kind == Initial::Kind::normal ? 3 : 0;
}

float draw(const Initial& initial, Random& random) {
    if (initial.kind == Initial::Kind::uniform) return random.uniform(-initial.size, initial.size);
    return initial.kind == Initial::Kind::normal ? initial.size * random.normal() : initial.size;
}

// The part's numbers of the whole parameter's.
void draw_values(const Parameter& parameter, std::uint64_t seed, std::span<float> values) {
    for (const Extent& extent : extents_of(parameter.part)) {
        Random random(seed, parameter.number);
        random.skip(static_cast<std::uint64_t>(extent.there) * draws_of(parameter.initial.kind));
        std::generate_n(values.begin() + extent.here, extent.count,
                        [&] { return draw(parameter.initial, random); });
    }
}

}  // namespace

Parameter& ParameterSet::add(std::string name, ParameterPart part, Initial initial, SpareRows spare) {
    Shape shape = part.shape();
    return parameters_.emplace_back(
        Parameter{std::move(name), std::move(part), std::move(shape), initial, parameters_.size(), spare});
}

Buffer& ParameterSet::add_buffer(std::string name, Shape shape, std::vector<float> initial) {
    return all_buffers_.emplace_back(Buffer{std::move(name), std::move(shape), std::move(initial), {}});
}

void ParameterSet::place(Device& device, std::optional<std::uint64_t> seed, Type compute_type) {
    const std::int64_t total = padded_count();
    std::vector<float> initial(seed ? static_cast<std::size_t>(total) : 0, 0.0f);
    values_ = device.make_of_node(Type::f32, {total});
    compute_copy_ = compute_type == Type::f32 ? values_ : device.make_of_node(compute_type, {total});
    gradients_ = device.make_to_sum(Type::f32, {learned_count()});
    const Tensor unread =
        unread_count() > 0 ? device.make(Type::f32, {unread_count()}) : Tensor({}, Type::f32, {0});
    std::int64_t at = 0, whole_at = 0;
    for (const Order order : kOrders) {
        for (Parameter& parameter : parameters_) {
            if (order_of(parameter) != order) continue;
            if (seed) draw_values(parameter, *seed, std::span(initial).subspan(static_cast<std::size_t>(at)));
            parameter.first = at;
            parameter.whole_first = whole_at;
            parameter.value = values_.view(at, parameter.shape);
            parameter.compute_copy = compute_copy_.view(at, parameter.shape);
            parameter.gradient = parameter.is_frozen
                                     ? unread.view(parameter.number % 2 * unread_room(0), parameter.shape)
                                     : gradients_.view(at, parameter.shape);
            at += room_of(parameter);
            whole_at += whole_room_of(parameter);
        }
        if (order == Order::decayed) decayed_ = at;
    }
    const Tensor room = compute_type == Type::f32 || adapters_.empty()
                            ? Tensor()
                            : device.make(Type::f32, {largest_adapted()});
    for (LowRank& one : adapters_) one.place(device, compute_type, room);
    if (seed) {
        device.upload(initial.data(), values_);
        refresh_compute_copy(device);
    }

    if (all_buffers_.empty()) return;
    std::vector<float> buffers;
    for (const auto& buffer : all_buffers_)
        buffers.insert(buffers.end(), buffer.initial.begin(), buffer.initial.end());
    const auto count = static_cast<std::int64_t>(buffers.size());
    buffers_ = device.copy_of<float>(Type::f32, {count}, buffers);
    at = 0;
    for (auto& buffer : all_buffers_) {
        buffer.value = buffers_.view(at, buffer.shape);
        at += elements_of(buffer.shape);
    }
}

void ParameterSet::refresh_compute_copy(Device& device, const Shard& part) const {
    if (compute_copy_.type() == values_.type() || part.count == 0) return;
    device.convert(values_.view(part.first, {part.count}), compute_copy_.view(part.first, {part.count}));
}

std::vector<Shard> ParameterSet::gradients_of(std::vector<const Parameter*> parameters) {
    std::ranges::sort(parameters, {}, &Parameter::first);
    std::vector<Shard> ranges;
    for (const Parameter* one : parameters) {
        if (one->is_frozen) continue;
        if (ranges.empty() || ranges.back().first + ranges.back().count < one->first)
            ranges.push_back({one->first, 0});
        ranges.back().count += room_of(*one);
    }
    return ranges;
}

void ParameterSet::merge_adapters(Device& device) const {
    for (const LowRank& one : adapters_) one.merge(device);
}

std::int64_t ParameterSet::largest_adapted() const {
    std::int64_t largest = 0;
    for (const LowRank& one : adapters_) largest = std::max(largest, elements_of(one.weight().shape));
    return largest;
}

std::int64_t ParameterSet::merged_bytes(Type compute_type) const {
    std::int64_t numbers = 0;
    for (const LowRank& one : adapters_) numbers += elements_of(one.weight().shape);
    const std::int64_t room =
        compute_type == Type::f32 ? 0 : largest_adapted() * static_cast<std::int64_t>(sizeof(float));
    return numbers * static_cast<std::int64_t>(size_of(compute_type)) + room;
}

std::int64_t ParameterSet::count() const {
    std::int64_t total = 0;
    for (const auto& parameter : parameters_) total += elements_of(parameter.shape);
    return total;
}

std::int64_t ParameterSet::whole_count() const {
    std::int64_t total = 0;
    for (const auto& parameter : parameters_) total += elements_of(parameter.part.whole);
    return total;
}

std::int64_t ParameterSet::padded_count() const {
    std::int64_t total = 0;
    for (const auto& parameter : parameters_) total += room_of(parameter);
    return total;
}

std::int64_t ParameterSet::whole_padded_count() const {
    std::int64_t total = 0;
    for (const auto& parameter : parameters_) total += whole_room_of(parameter);
    return total;
}

std::int64_t ParameterSet::learned_count() const {
    std::int64_t total = 0;
    for (const auto& parameter : parameters_) total += parameter.is_frozen ? 0 : room_of(parameter);
    return total;
}

std::int64_t ParameterSet::whole_learned_count() const {
    std::int64_t total = 0;
    for (const auto& parameter : parameters_) total += parameter.is_frozen ? 0 : whole_room_of(parameter);
    return total;
}

// Enough for the largest. There are two, in turns: a layer's weight and bias, which one operation writes, do not have the same.
std::int64_t ParameterSet::unread_room(std::size_t parity) const {
    std::int64_t room = 0;
    for (const auto& parameter : parameters_)
        if (parameter.is_frozen && parameter.number % 2 == parity) room = std::max(room, room_of(parameter));
    return room;
}

void ParameterSet::adapt(Parameter& weight, std::int64_t rank, std::int64_t alpha) {
    const std::string name = weight.name.substr(0, weight.name.rfind('.'));
    const std::int64_t outputs = weight.shape.at(0), inputs = weight.shape.at(1);
    Parameter& a = add(name + ".lora_A.weight", {rank, inputs}, Initial::by_inputs(inputs));
    Parameter& b = add(name + ".lora_B.weight", {outputs, rank}, Initial::constant(0));
    a.is_adapter = b.is_adapter = weight.is_frozen = true;
    weight.adapter =
        &adapters_.emplace_back(weight, a, b, static_cast<float>(alpha) / static_cast<float>(rank));
}

void ParameterSet::freeze(const std::function<bool(const Parameter&)>& is_meant) {
    for (auto& parameter : parameters_) parameter.is_frozen |= is_meant(parameter);
}

std::vector<float> ParameterSet::download(Device& device) const {
    std::vector<float> values;
    values.reserve(static_cast<std::size_t>(count()));
    for (const auto& parameter : parameters_) {
        const auto part = device.values_of<float>(parameter.value);
        values.insert(values.end(), part.begin(), part.end());
    }
    return values;
}

std::uint64_t hash_of(const std::vector<float>& values) {
    std::uint64_t hash = 0xCBF29CE484222325u;
    for (float value : values) {
        const auto bits = std::bit_cast<std::uint32_t>(value);
        for (int byte = 0; byte < 4; ++byte) hash = (hash ^ ((bits >> (8 * byte)) & 0xFFu)) * 0x100000001B3u;
    }
    return hash;
}

}  // namespace dp::trainer
