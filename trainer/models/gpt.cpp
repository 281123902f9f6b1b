// SPDX-License-Identifier: Apache-2.0
//
// gpt: GPT-2 (Radford et al. 2019): learned positions, layer norm before attention and before the two linear
// layers with GELU, and a head that shares its weights with the token embedding. A sample is a sequence of
// tokens, its target the same shifted by one; its loss is the mean over the tokens.
#include "trainer/models/gpt.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "trainer/base/random.hpp"
#include "trainer/models/pipeline_split.hpp"

namespace dp::trainer {
namespace {

// Logits are computed for some tokens at a time: for all tokens they would be by far the largest tensor. Each
// chunk reads and writes the gradient of the embedding once, so a chunk takes a small fraction of the
// activations. For many tokens, a multiple of the tiles of a GPU's matrix products.
constexpr std::int64_t kLogits = std::int64_t{32} << 20, kPartOfActivations = 32, kTile = 128;

constexpr std::int64_t kQueriesKeysValues = 3;  // the blocks of outputs of attention's first linear layer

// How ranks divide a linear layer: each has some of its outputs (column parallel), or some of its inputs and so a part of each
// output's sum (row parallel).
enum class Cut { none, outputs, inputs };

struct Weights {
    Parameter* weight;
    Parameter* bias;
    Cut cut = Cut::none;
};

// The parameters of a layer.
struct Block {
    Weights norm1, qkv, project, norm2, up, down;
};

// The activations that a layer's backward pass needs.
struct Activations {
    Tensor norm1, saved1, qkv, mixed, sums, middle, norm2, saved2, up, active;
};

// The activations of a micro-batch between its forward and its backward pass through a chunk of this stage's layers.
struct Slot {
    std::int64_t chunk = 0;
    Shard layers = {0, 0};
    std::vector<Tensor> stream;  // the residual stream before each of the layers, and after the last of them
    Tensor sent;                 // of the stream: what another stage may not have yet
    std::vector<Activations> kept;  // of each layer; where layers are recomputed, they share one elsewhere
    Tensor last, saved;             // of the last norm: what it makes, and its statistics
    Tensor starts;                  // of the tokens' documents, where they see nothing of others
    std::int64_t tokens = 0;
    std::int64_t sequence = 0;  // tokens of one of its sequences
    // In training. It determines dropout, so a recomputed layer drops the same.
    std::optional<BatchDraw> draw = {};
};

class Gpt final : public LanguageModel, public Stage {
 public:
    explicit Gpt(const GptShape& shape)
        : shape_(shape),
          layout_(with_layers(shape)),
          most_layers_(layout_.most_layers()),
          width_(layout_.share(shape.hidden)),
          heads_(layout_.share(shape.heads)),
          words_(shard_of(shape.vocabulary, layout_.tensor_rank, layout_.tensor_ranks)) {
        const std::int64_t c = shape.hidden;
        const Initial normal = Initial::normal(shape.initial_deviation);
        // As GPT-2: weights that add to the residual stream begin smaller, the more layers there are.
        const Initial added =
            Initial::normal(shape.initial_deviation / std::sqrt(2.0f * static_cast<float>(shape.layers)));
        // The first stage embeds with it, and the last one makes logits with it.
        const bool is_first = layout_.is_first_stage(), is_last = layout_.is_last_stage();
        ParameterPart table = row_part({shape.vocabulary, c}, 1, layout_.tensor_rank, layout_.tensor_ranks);
        table.is_copy = !is_first;
        table_ = &parameters_.add(
            "wte", part_of(is_first || is_last, std::move(table)), normal,
            {kAlignedLogits,
             rounded_up(largest_shard(shape.vocabulary, layout_.tensor_ranks), kAlignedLogits)});
        positions_ = &parameters_.add("wpe", part_of(is_first, of_all({shape.sequence, c})), normal);
        positions_->is_final_with_earlier = true;
        for (std::int64_t number = 0; number < shape.layers; ++number) {
            const std::string name = "h." + std::to_string(number);
            is_here_ = layout_.chunk_with(number).has_value();
            blocks_.push_back({norm(name + ".ln_1"),
                               column_parallel(name + ".attn.c_attn", {3 * c, c}, normal, kQueriesKeysValues),
                               row_parallel(name + ".attn.c_proj", {c, c}, added), norm(name + ".ln_2"),
                               column_parallel(name + ".mlp.c_fc", {4 * c, c}, normal),
                               row_parallel(name + ".mlp.c_proj", {c, 4 * c}, added)});
        }
        is_here_ = is_last;
        last_norm_ = norm("ln_f");
        if (shape.lora_rank > 0) parameters_.freeze([](const Parameter& one) { return !one.is_adapter; });
    }

    void place(Device& device, std::optional<std::uint64_t> seed, std::int64_t rows, Type type) override {
        device_ = &device;
        parameters_.place(device, seed, type);
        first_learning_ = find_first_learning();
        const std::int64_t r = rows * shape_.sequence, own = rows * own_tokens(), c = shape_.hidden;
        auto numbers = [&](std::int64_t tokens, std::int64_t columns) {
            return device.make(type, {tokens, columns});
        };
        auto statistics = [&](std::int64_t tokens, std::int64_t columns) {
            return device.make(Type::f32, {tokens, columns});
        };
        const auto of_a_layer = [&] {
            return Activations{numbers(own, c),       statistics(own, 2),    numbers(r, 3 * width_),
                               numbers(r, width_),    statistics(r, heads_), numbers(own, c),
                               numbers(own, c),       statistics(own, 2),    numbers(r, 4 * width_),
                               numbers(r, 4 * width_)};
        };
        slots_.clear();
        for (std::int64_t i = 0; i < layout_.slots; ++i) {
            Slot& slot = slots_.emplace_back();
            for (std::int64_t layer = 0; layer <= most_layers_; ++layer)
                slot.stream.push_back(numbers(own, c));
            for (std::int64_t layer = 0; layer < most_layers_ && !shape_.recompute; ++layer)
                slot.kept.push_back(of_a_layer());
            if (has_documents()) slot.starts = device.make(Type::i32, {r});
            if (!layout_.is_last_stage()) continue;
            slot.last = numbers(own, c);
            slot.saved = statistics(own, 2);
        }
        now_ = &slots_.front();
        if (shape_.recompute) recomputed_ = of_a_layer();
        gradients_ = {numbers(own, c), numbers(r, wide_columns()), {}};
        for (std::int64_t i = 0; i < streams(); ++i) gradients_.streams.push_back(numbers(own, c));
        if (layout_.divides_tokens) exchanged_ = numbers(r, c);
        if (!layout_.is_last_stage()) return;
        logits_ = device.make(type, {chunk_of(r), logits_length()});
        if (layout_.divides_layers())
            notes_ = device.make(Type::f32, {layout_.tensor_ranks, chunk_of(r) * kSoftmaxNumbers});
    }

    void evaluate(const Batch& batch, const Tensor& metrics) override {
        now_ = &slots_.front();
        for (std::int64_t chunk = 0; chunk < layout_.chunks; ++chunk) forward(chunk, batch.x, {});
        if (layout_.is_last_stage()) head(batch, 0, metrics);
    }

    void evaluate_last(const Batch& batch, std::int64_t count, const Tensor& metrics) override {
        forward(0, batch.x, {});
        head(batch, 0, metrics, now_->tokens - count);
    }

    void forward_backward(const Batch& batch, float scale, const Tensor& metrics) override {
        forward(0, 0, batch);
        backward(0, batch, scale, metrics);
    }

    Stage* stage() override { return layout_.stages > 1 ? this : nullptr; }
    const Parameter* shared() const override {
        const bool is_end = layout_.is_first_stage() || layout_.is_last_stage();
        return is_end && !table_->is_frozen ? table_ : nullptr;
    }

    std::vector<Shard> gradients_of(std::int64_t chunk) const override {
        std::vector<const Parameter*> made;
        const auto add = [&](const Weights& w) { made.insert(made.end(), {w.weight, w.bias}); };
        if (layout_.begins(chunk) || layout_.ends(chunk)) made.push_back(table_);
        if (layout_.begins(chunk)) made.push_back(positions_);
        const auto [first, count] = layout_.layers_of(chunk);
        for (std::int64_t number = first; number < first + count; ++number) {
            const Block& b = block(number);
            for (const Weights& w : {b.norm1, b.qkv, b.project, b.norm2, b.up, b.down}) add(w);
        }
        if (layout_.ends(chunk)) add(last_norm_);
        return parameters_.gradients_of(std::move(made));
    }

    void forward(std::int64_t slot, std::int64_t chunk, const Batch& batch) override {
        now_ = &slots_[static_cast<std::size_t>(slot)];
        forward(chunk, batch.x, batch.draw);
    }

    void backward(std::int64_t slot, const Batch& batch, float scale, const Tensor& metrics) override {
        now_ = &slots_[static_cast<std::size_t>(slot)];
        const Tensor dx =
            own(gradients_.streams[passes_++ % gradients_.streams.size()]);  // each layer adds to it
        wait_send(dx);
        if (layout_.ends(now_->chunk)) {
            head(batch, scale / static_cast<float>(shape_.sequence), metrics);
            device_->zero(dx);
            norm_backward(last_norm_, stream_after(), own(now_->saved), own(gradients_.narrow), dx);
            parameters_.completed(*last_norm_.weight);
        } else {
            neighbours_.receive(dx, StageNeighbours::Side::after);
        }
        for (std::int64_t number = now_->layers.first + now_->layers.count; number-- > now_->layers.first;) {
            if (number >= first_learning_) {
                if (shape_.recompute) layer(number);
                layer_backward(number, dx);
            }
            parameters_.completed(*block(number).norm1.weight);
        }
        if (!layout_.begins(now_->chunk)) return neighbours_.start_send(dx, StageNeighbours::Side::before);
        if (table_->is_frozen && positions_->is_frozen) return parameters_.completed(*table_);
        drop(kEmbedding, dx, dx);
        device_->zero(positions_->gradient);
        if (!layout_.is_last_stage()) device_->zero(table_->gradient);  // else the head has begun it
        const Tensor all = gather(dx);
        if (layout_.divides_layers())
            device_->embed_part_backward(batch.x, all, words_, table_->gradient, positions_->gradient);
        else
            device_->embed_backward(batch.x, all, table_->gradient, positions_->gradient);
        parameters_.completed(*table_);
    }

    Tensor next_logits(const Tensor& tokens) override {
        forward(0, tokens, {});
        const Tensor x = now_->last.view((now_->tokens - 1) * shape_.hidden, {1, shape_.hidden});
        device_->linear(x, head_weights(), {}, Activation::none, logits_.first_rows(1));
        return logits_.view(0, {1, shape_.vocabulary});
    }

    std::map<std::string, std::int64_t> shape() const override {
        std::map<std::string, std::int64_t> all{{"num_layers", shape_.layers},
                                                {"hidden_size", shape_.hidden},
                                                {"num_attention_heads", shape_.heads},
                                                {"seq_length", shape_.sequence},
                                                {"vocab_size", shape_.vocabulary}};
        if (shape_.lora_rank > 0)
            all.insert({{"lora_rank", shape_.lora_rank}, {"lora_alpha", shape_.lora_alpha}});
        if (has_documents()) all.insert({"document_begins", shape_.document_begins});
        return all;
    }

    std::int64_t targets_per_sample() const override { return shape_.sequence; }

    // 2 per parameter and token, plus the scores: as in Chowdhery et al. 2022, appendix B.
    double forward_flops_per_sample() const override {
        const double a_token = 2.0 * static_cast<double>(parameters_.whole_count()) +
                               2.0 * static_cast<double>(shape_.layers * shape_.hidden * shape_.sequence);
        return a_token * static_cast<double>(shape_.sequence);
    }
    std::int64_t activations_per_sample() const override {
        const std::int64_t c = shape_.hidden, last = layout_.is_last_stage() ? c : 0,
                           exchanged = layout_.divides_tokens ? c : 0;
        return own_tokens() * (layout_.slots * ((most_layers_ + 1) * c + last) + kept_layers() * 3 * c +
                               (streams() + 1) * c) +
               shape_.sequence * (kept_layers() * 12 * width_ + wide_columns() + exchanged) +
               statistics_per_sample();
    }
    std::int64_t statistics_per_sample() const override {
        const std::int64_t last = layout_.is_last_stage() ? 2 : 0;
        const std::int64_t starts = has_documents() ? layout_.slots : 0;
        return own_tokens() * (kept_layers() * 4 + layout_.slots * last) +
               shape_.sequence * (kept_layers() * heads_ + starts + 1);
    }
    std::int64_t scratch(std::int64_t rows) const override {
        if (!layout_.is_last_stage()) return 0;
        const std::int64_t notes = layout_.divides_layers() ? layout_.tensor_ranks * kSoftmaxNumbers : 0;
        return chunk_of(rows * shape_.sequence) * (logits_length() + notes);
    }
    std::int64_t widest_operation(std::int64_t rows) const override {
        const std::int64_t r = rows * shape_.sequence, c = shape_.hidden, chunk = chunk_of(r);
        const std::int64_t embedding = (shape_.vocabulary + shape_.sequence + r) * c;
        const std::int64_t up_and_gelu = r * c + 8 * r * width_ + 4 * width_ * c + 4 * width_;
        const std::int64_t head = (chunk + shape_.vocabulary) * c + chunk * logits_length();
        return std::max({embedding, up_and_gelu, head});
    }

 private:
    GptShape shape_;
    Layout layout_;
    std::int64_t most_layers_;    // of a chunk of this stage
    std::int64_t width_, heads_;  // of this rank: its part of the hidden size, in whole heads
    Shard words_;                 // and of the vocabulary
    Parameter *table_ = nullptr, *positions_ = nullptr;
    std::vector<Block> blocks_;  // of all layers; other stages have the parameters of the others
    Weights last_norm_ = {};
    // Of the whole model. Layers before it, and the embedding, learn nothing and have no backward pass. A stage still sends the one
    // before a gradient, which nobody reads.
    std::int64_t first_learning_ = 0;
    bool is_here_ = true;  // while parameters are declared: this stage has them
    Device* device_ = nullptr;
    std::vector<Slot> slots_;
    Slot* now_ = nullptr;  // whose pass it is
    Activations recomputed_;
    struct {
        Tensor narrow, wide;
        std::vector<Tensor> streams;  // of the residual stream, in turn
    } gradients_;
    std::size_t passes_ = 0;  // backward ones
    Tensor logits_;           // of some tokens at a time: a chunk
    Tensor notes_;            // of these, from all ranks that divide the vocabulary (Device::softmax_part())
    // Where ranks divide the tokens: what all have gathered last, or each of them has a part of the sum of.
    Tensor exchanged_;

    static Layout with_layers(const GptShape& shape) {
        Layout layout = shape.layout;
        layout.chunk_layers = chunk_layers(shape);
        return layout;
    }

    // The places of dropout: after the embedding, per layer where attention and the two linear layers join
    // the residual stream, and per layer attention's weights.
    static constexpr std::uint64_t kEmbedding = 0;
    static std::uint64_t after_attention(std::int64_t layer) { return 2 * unsigned_of(layer) + 1; }
    static std::uint64_t after_linear(std::int64_t layer) { return 2 * unsigned_of(layer) + 2; }
    std::uint64_t inside_attention(std::int64_t layer) const {
        return 2 * blocks_.size() + 1 + unsigned_of(layer);
    }
    static std::uint64_t unsigned_of(std::int64_t layer) { return static_cast<std::uint64_t>(layer); }

    // Of a micro-batch's tokens from `first` on.
    Dropout dropout(float rate, std::uint64_t place, std::int64_t first = 0) const {
        if (!now_->draw || rate == 0) return {};
        return {rate, Random(now_->draw->key, place).bits(), now_->draw->first_row * now_->sequence + first};
    }
    // A stage sends what the last backward pass made while it makes the next. Where the stages are a ring, each may wait for the other
    // to take what it has sent before, so there are two.
    std::int64_t streams() const { return layout_.chunks > 1 ? 2 : 1; }
    bool has_documents() const { return shape_.document_begins >= 0; }
    bool drops() const { return now_->draw && shape_.hidden_dropout > 0; }
    // Applies dropout; also its own backward pass. `to` may be x.
    void drop(std::uint64_t place, const Tensor& x, const Tensor& to) const {
        if (drops()) device_->dropout(x, dropout(shape_.hidden_dropout, place, own_part().first), to);
    }
    // The gradient of what joined the stream there: x itself, or computed from it in `memory`.
    Tensor undropped(std::uint64_t place, const Tensor& x, const Tensor& memory) const {
        drop(place, x, memory);
        return drops() ? memory : x;
    }
    Attention attention(std::int64_t layer) const {
        return {now_->sequence,
                heads_,
                dropout(shape_.attention_dropout, inside_attention(layer)),
                layout_.tensor_rank * heads_,
                shape_.heads,
                has_documents() ? now_->starts.data<std::int32_t>() : nullptr};
    }

    // What every rank of a layer has whole, and an earlier stage perhaps, too.
    ParameterPart of_all(Shape shape, bool is_copy = false) const {
        return whole_part(std::move(shape), is_copy || !layout_.is_first());
    }
    static ParameterPart part_of(bool is_here, ParameterPart part) {
        return is_here ? part : absent_part(std::move(part.whole));
    }
    Weights linear(const std::string& name, ParameterPart weight, ParameterPart bias, Initial initial,
                   Cut cut) {
        return {&parameters_.add(name + ".weight", part_of(is_here_, std::move(weight)), initial),
                &parameters_.add(name + ".bias", part_of(is_here_, std::move(bias)), Initial::constant(0)),
                cut};
    }
    Weights norm(const std::string& name) {
        const auto add = [&](const char* what, float initial) {
            Parameter& one = parameters_.add(name + what, part_of(is_here_, of_all({shape_.hidden})),
                                             Initial::constant(initial));
            one.is_of_some_tokens = layout_.divides_tokens;
            return &one;
        };
        Parameter* weight = add(".weight", 1);
        return {weight, add(".bias", 0), Cut::none};
    }
    // `blocks` of outputs, of each of which a rank has its share.
    Weights column_parallel(const std::string& name, Shape weight, Initial initial, std::int64_t blocks = 1) {
        const auto share = [&](Shape shape) {
            return row_part(std::move(shape), blocks, layout_.tensor_rank, layout_.tensor_ranks);
        };
        const std::int64_t outputs = weight[0];
        Weights w = linear(name, share(std::move(weight)), share({outputs}), initial, Cut::outputs);
        if (blocks == kQueriesKeysValues && shape_.lora_rank > 0)
            parameters_.adapt(*w.weight, shape_.lora_rank, shape_.lora_alpha);
        return w;
    }
    Weights row_parallel(const std::string& name, Shape weight, Initial initial) {
        const std::int64_t outputs = weight[0];
        return linear(name, column_part(std::move(weight), layout_.tensor_rank, layout_.tensor_ranks),
                      of_all({outputs}), initial, Cut::inputs);
    }

    // GPT-2's vocabulary is 50257. Matrix units want numbers by the 16 bytes: rows that begin so, and as many columns and rows;
    // of an odd number of logits, cuBLASLt's products took five times as long on an H100. So there are logits of a few tokens that
    // do not exist: their weights, and with them the logits and their gradients, are zeros.
    static constexpr std::int64_t kAlignedLogits = 8;
    static std::int64_t rounded_up(std::int64_t number, std::int64_t multiple) {
        return (number + multiple - 1) / multiple * multiple;
    }
    // From one token's logits to the next: a multiple of 128 bytes. All ranks that divide the vocabulary have as many, and so take as
    // many tokens at a time.
    std::int64_t logits_length() const {
        return rounded_up(largest_shard(shape_.vocabulary, layout_.tensor_ranks), 64);
    }
    Tensor head_weights() const { return table_->with_spare_rows(table_->compute_copy); }
    // The number of tokens whose logits are computed at a time.
    std::int64_t chunk_of(std::int64_t tokens) const {
        const std::int64_t held = activations_per_sample() / shape_.sequence * tokens;
        std::int64_t piece = std::max(kLogits, held / kPartOfActivations) / logits_length();
        if (piece > kTile) piece -= piece % kTile;
        return std::clamp<std::int64_t>(piece, 1, tokens);
    }
    // Layers whose activations are kept, of all slots.
    std::int64_t kept_layers() const { return shape_.recompute ? 1 : layout_.slots * most_layers_; }
    const Block& block(std::int64_t layer) const { return blocks_[static_cast<std::size_t>(layer)]; }
    // In this chunk, from 0.
    std::size_t place_of(std::int64_t layer) const {
        return static_cast<std::size_t>(layer - now_->layers.first);
    }
    const Activations& activations(std::int64_t layer) const {
        return shape_.recompute ? recomputed_ : now_->kept[place_of(layer)];
    }
    Tensor stream_before(std::int64_t layer) const { return own(now_->stream[place_of(layer)]); }
    Tensor stream_after() const { return stream_before(now_->layers.first + now_->layers.count); }
    // The part of a buffer that the batch's tokens fill.
    Tensor first(const Tensor& buffer) const { return buffer.first_rows(now_->tokens); }
    // The same memory with another number of columns.
    Tensor narrowed(const Tensor& buffer, std::int64_t columns) const {
        return buffer.view(0, {now_->tokens, columns});
    }
    // Columns of the wide gradients; the stream's are there, too.
    std::int64_t wide_columns() const { return std::max(4 * width_, shape_.hidden / layout_.token_parts()); }
    // A rank's own of as many tokens as a sequence has.
    std::int64_t own_tokens() const { return shape_.sequence / layout_.token_parts(); }

    // Norms, dropout and the residual stream work token by token. Where ranks divide the tokens (sequence parallelism, Korthikanti et
    // al. 2022) each has its own of them there: before a layer of which each rank has some outputs all gather them, and after one of
    // which each has a part of the sums, each gets those of its own tokens. Elsewhere a rank's own tokens are all: nothing is gathered,
    // and all get the sums of all.
    Shard own_part() const { return layout_.own_of(now_->tokens); }
    Tensor own(const Tensor& buffer) const { return buffer.first_rows(own_part().count); }
    // All tokens' rows of what each rank has its own of; valid until the next gather() or parts_of().
    Tensor gather(const Tensor& x) const {
        if (!layout_.divides_tokens) return x;
        const Tensor all = first(exchanged_);
        device_->convert(x, own_of(all));
        tensor_ranks_.gather(all);
        return all;
    }
    // Where this rank's part of all tokens' sums goes, of which scatter_sums() makes y.
    Tensor parts_of(const Tensor& y) const { return layout_.divides_tokens ? first(exchanged_) : y; }
    void scatter_sums(const Tensor& parts, const Tensor& y) const {
        if (!layout_.divides_tokens) {
            start_sum(parts);
            return wait_sums();
        }
        tensor_ranks_.scatter_sums(parts);
        device_->convert(own_of(parts), y);
    }
    Tensor own_of(const Tensor& all) const {
        const auto [from, count] = own_part();
        return all.view(from * all.columns(), {count, all.columns()});
    }

    // `draw`: in training.
    void forward(std::int64_t chunk, const Tensor& tokens, const std::optional<BatchDraw>& draw) {
        if (now_->sent) wait_send(now_->sent);
        now_->chunk = chunk;
        now_->layers = layout_.layers_of(chunk);
        now_->tokens = tokens.elements();
        now_->sequence = tokens.columns();
        now_->draw = draw;
        if (has_documents())
            device_->document_starts(tokens, static_cast<std::int32_t>(shape_.document_begins),
                                     first(now_->starts));
        const Tensor in = own(now_->stream.front()), out = stream_after();
        if (layout_.begins(chunk)) {
            embed(tokens, in);
            drop(kEmbedding, in, in);
        } else {
            neighbours_.receive(in, StageNeighbours::Side::before);
        }
        for (std::int64_t i = 0; i < now_->layers.count; ++i) layer(now_->layers.first + i);
        if (layout_.ends(chunk)) return apply_norm(last_norm_, out, own(now_->last), own(now_->saved));
        now_->sent = out;
        neighbours_.start_send(out, StageNeighbours::Side::after);
    }
    // Where ranks divide the vocabulary each has the rows of some tokens, and one adds the positions.
    void embed(const Tensor& tokens, const Tensor& y) {
        if (!layout_.divides_layers())
            return device_->embed(tokens, table_->compute_copy, positions_->compute_copy, y);
        const Tensor parts = parts_of(y);
        device_->embed_part(tokens, table_->compute_copy, words_,
                            layout_.is_first() ? positions_->compute_copy : Tensor(), parts);
        scatter_sums(parts, y);
    }
    void wait_send(const Tensor& tensor) const {
        if (neighbours_.wait_send) neighbours_.wait_send(tensor);
    }

    void apply_norm(const Weights& norm, const Tensor& x, const Tensor& y, const Tensor& saved) {
        device_->layer_norm(x, norm.weight->value, norm.bias->value, y, saved);
    }
    // Adds to dx.
    void norm_backward(const Weights& norm, const Tensor& x, const Tensor& saved, const Tensor& dy,
                       const Tensor& dx) {
        device_->layer_norm_backward(x, norm.weight->value, saved, dy, dx, norm.weight->gradient,
                                     norm.bias->gradient);
    }

    // Of a divided layer the ranks' parts of the sum, one of which has the bias, are added up.
    void apply(const Weights& w, const Tensor& x, const Tensor& y) {
        const bool sums = w.cut == Cut::inputs, adds_bias = !sums || layout_.is_first();
        const Tensor made = sums ? parts_of(y) : y;
        device_->linear(x, w.weight->compute_copy, adds_bias ? w.bias->compute_copy : Tensor(),
                        Activation::none, made);
        if (sums) scatter_sums(made, y);
    }
    // y = stream + dropout(the layer's output).
    void apply_and_add(const Weights& w, const Tensor& x, std::uint64_t place, const Tensor& stream,
                       const Tensor& y) {
        if (!drops() && !layout_.divides_layers())
            return device_->linear_add(x, w.weight->compute_copy, w.bias->compute_copy, stream, y);
        apply(w, x, y);
        drop(place, y, y);
        device_->add(stream, y);
    }
    // Sets the gradients of the parameters and of x, in other memory than dy. Where each rank has some of the outputs, their parts of
    // the sum are added up while it makes the parameters' gradients; of divided tokens before that, and x, which was not kept for all of them,
    // is gathered again.
    void backward(const Weights& w, const Tensor& dy, const Tensor& x, const Tensor& dx) {
        if (w.cut != Cut::outputs) {
            device_->linear_backward_input(dy, w.weight->compute_copy, dx);
            return backward_parameters(w, dy, x);
        }
        const Tensor parts = parts_of(dx);
        device_->linear_backward_input(dy, w.weight->compute_copy, parts);
        if (layout_.divides_tokens)
            scatter_sums(parts, dx);
        else
            start_sum(dx);
        if (learns(w)) backward_parameters(w, dy, gather(x));
        if (!layout_.divides_tokens) wait_sums();
    }
    std::int64_t find_first_learning() const {
        if (!table_->is_frozen || !positions_->is_frozen) return 0;
        const auto some_learn = [](const Block& b) {
            const std::array all{b.norm1, b.qkv, b.project, b.norm2, b.up, b.down};
            return std::ranges::any_of(all, learns);
        };
        return std::ranges::find_if(blocks_, some_learn) - blocks_.begin();
    }
    static bool learns(const Weights& w) { return w.weight->wants_gradient() || w.bias->wants_gradient(); }
    void start_sum(const Tensor& tensor) const {
        if (tensor_ranks_.start_sum) tensor_ranks_.start_sum(tensor);
    }
    void wait_sums() const {
        if (tensor_ranks_.wait) tensor_ranks_.wait();
    }
    void backward_parameters(const Weights& w, const Tensor& dy, const Tensor& x) {
        if (learns(w)) device_->linear_backward_parameters(dy, x, w.weight->gradient, w.bias->gradient);
        if (w.weight->adapter != nullptr && w.weight->adapter->learns())
            w.weight->adapter->backward(*device_);
    }

    // x + attention(norm(x)), then that + down(gelu(up(norm(that)))).
    void layer(std::int64_t number) {
        const Block& b = block(number);
        const Activations& a = activations(number);
        const Tensor x = stream_before(number), middle = own(a.middle), y = stream_before(number + 1);
        apply_norm(b.norm1, x, own(a.norm1), own(a.saved1));
        apply(b.qkv, gather(own(a.norm1)), first(a.qkv));
        device_->attention(attention(number), first(a.qkv), first(a.mixed), first(a.sums));
        apply_and_add(b.project, first(a.mixed), after_attention(number), x, middle);
        apply_norm(b.norm2, middle, own(a.norm2), own(a.saved2));
        device_->linear_gelu(gather(own(a.norm2)), b.up.weight->compute_copy, b.up.bias->compute_copy,
                             first(a.up), first(a.active));
        apply_and_add(b.down, first(a.active), after_linear(number), middle, y);
    }

    // dx: the gradient of the stream after the layer on entry, before it on return.
    void layer_backward(std::int64_t number, const Tensor& dx) {
        const Block& b = block(number);
        const Activations& a = activations(number);
        const Tensor wide = narrowed(gradients_.wide, 4 * width_), narrow = own(gradients_.narrow),
                     qkv = narrowed(gradients_.wide, 3 * width_), mixed = narrowed(gradients_.narrow, width_);
        const Tensor d_down = gather(undropped(after_linear(number), dx, narrow));
        backward_parameters(b.down, d_down, first(a.active));
        device_->linear_gelu_backward_input(d_down, b.down.weight->compute_copy, first(a.up), wide);
        backward(b.up, wide, own(a.norm2), narrow);
        norm_backward(b.norm2, own(a.middle), own(a.saved2), narrow, dx);
        // The wide buffer is free until attention's gradients.
        const Tensor free = gradients_.wide.view(0, dx.shape());
        backward(b.project, gather(undropped(after_attention(number), dx, free)), first(a.mixed), mixed);
        device_->attention_backward(attention(number), first(a.qkv), first(a.mixed), first(a.sums), mixed,
                                    qkv);
        backward(b.qkv, qkv, own(a.norm1), narrow);
        norm_backward(b.norm1, stream_before(number), own(a.saved1), narrow, dx);
    }

    // The loss of the targets from the first on; in training also the gradients of the table (the head's weights) and the last norm's
    // output.
    void head(const Batch& batch, float scale, const Tensor& metrics, std::int64_t first_target = 0) {
        const std::int64_t chunk = logits_.rows(), c = shape_.hidden;
        // Gathered tokens make room for their gradients' parts, chunk by chunk.
        const Tensor tokens = gather(own(now_->last)), gradients = parts_of(own(gradients_.narrow));
        for (std::int64_t from = first_target; from < now_->tokens; from += chunk) {
            const std::int64_t rows = std::min(chunk, now_->tokens - from);
            const Tensor x = tokens.view(from * c, {rows, c}), logits = logits_.first_rows(rows);
            device_->linear(x, head_weights(), {}, Activation::none, logits);
            loss(logits, batch.target.view(from, {rows, 1}), scale, metrics);
            if (!now_->draw) continue;
            if (!table_->is_frozen)
                device_->linear_backward_parameters(logits, x, table_->with_spare_rows(table_->gradient), {},
                                                    from == 0 ? Write::set : Write::add);
            device_->linear_backward_input(logits, head_weights(), gradients.view(from * c, {rows, c}));
        }
        if (now_->draw) scatter_sums(gradients, own(gradients_.narrow));
    }
    // In training the logits' gradients take their place.
    void loss(const Tensor& logits, const Tensor& labels, float scale, const Tensor& metrics) {
        const Tensor gradients = now_->draw ? logits : Tensor{};
        if (!layout_.divides_layers())
            return device_->softmax_cross_entropy(logits, shape_.vocabulary, labels, scale, metrics,
                                                  gradients);
        const std::int64_t rows = labels.rows(), numbers = rows * kSoftmaxNumbers;
        const Tensor notes = notes_.view(0, {layout_.tensor_ranks, numbers});
        device_->zero(notes);
        device_->softmax_part(logits, words_, labels,
                              notes.view(layout_.tensor_rank * numbers, {rows, kSoftmaxNumbers}));
        start_sum(notes);
        wait_sums();
        device_->softmax_cross_entropy_of_parts(logits, words_, labels, notes, scale, metrics, gradients);
    }
};

}  // namespace

std::unique_ptr<LanguageModel> make_language_model(const GptShape& shape) {
    return std::make_unique<Gpt>(shape);
}

std::unique_ptr<Model> make_gpt(const ModelShape& shape) {
    return make_language_model(shape.gpt);
}

}  // namespace dp::trainer
