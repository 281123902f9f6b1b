// SPDX-License-Identifier: Apache-2.0
#include "common/node_environment.hpp"

#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace dp {
namespace {

// A user's own of these stand in the environment when the step begins; what came after that is another
// plugin's, as pyxis brings it along from a container's image and hooks: nobody's wish, and guessed.
bool is_of_world(std::string_view name) {
    return std::find(kNamesOfWorld.begin(), kNamesOfWorld.end(), name) != kNamesOfWorld.end();
}

// ---- patterns: texts in which control characters stand for a task's words and then for its tiles' ----

constexpr char kFirstHole = '\1', kLastHole = '\x1f';
constexpr size_t kMostTiles = kLastHole - kFirstHole + 1 - kWords;

std::string hole(size_t index) {
    return std::string(1, static_cast<char>(kFirstHole + static_cast<char>(index)));
}

bool is_hole(char c) {
    return c >= kFirstHole && c <= kLastHole;
}

bool is_set_by_slurm(const TaskVariable& variable) {
    return variable.whose == TaskVariable::Whose::slurm;
}

// Whether a task's variable is the node's, and its value can be written.
bool fits(const TaskVariable& of_node, const TaskVariable& of_task) {
    return of_node.name == of_task.name && of_node.whose == of_task.whose &&
           (is_hole(of_node.value[0]) || of_node.value == of_task.value);
}

// What each blank has room for at least, and how long the word of each hole may be.
constexpr size_t kBlank = 16;
constexpr size_t kBlankOfTiles = 64;  // where tasks may have other tiles, and longer lists of them
constexpr size_t kPort = 5;
constexpr size_t kNumber = 10;
constexpr size_t kRoom[kWords] = {INET6_ADDRSTRLEN,
                                  kPort,
                                  INET6_ADDRSTRLEN + 3 + kPort,
                                  kPort,
                                  INET6_ADDRSTRLEN,
                                  kNumber,
                                  kNumber,
                                  kNumber,
                                  kNumber,
                                  kNumber,
                                  kNumber};
static_assert(kRoom[kWords - 1] != 0, "one for each word");

// `word_at` yields the word of a hole by its index.
template <typename WordAt>
size_t filled_size(const std::string& pattern, WordAt word_at) {
    size_t size = 0;
    for (char c : pattern) size += is_hole(c) ? word_at(static_cast<size_t>(c - kFirstHole)).size() : 1;
    return size;
}

// With a zero behind it.
template <typename WordAt>
void fill_in(const std::string& pattern, WordAt word_at, char* text) {
    for (char c : pattern) {
        if (is_hole(c)) {
            const auto& word = word_at(static_cast<size_t>(c - kFirstHole));
            text = std::copy(word.begin(), word.end(), text);
        } else {
            *text++ = c;
        }
    }
    *text = '\0';
}

bool is_launchers(const std::string& name) {
    return std::find(kLauncherVariables.begin(), kLauncherVariables.end(), name) != kLauncherVariables.end();
}

size_t count_of(char* const* environment) {
    size_t count = 0;
    while (environment && environment[count]) ++count;
    return count;
}

}  // namespace

NodeEnvironment node_environment(const TaskFacts& any, const TilesOfTasks& tiles, const GetVariable& get) {
    TaskWords words;
    for (size_t word = 0; word < kWords; ++word) words[word] = hole(word);
    // The same in each task, mostly, so no blanks.
    if (any.sizes.tensor == 1) words[kTensorRank] = "0";
    if (any.sizes.pipeline == 1) words[kPipelineRank] = "0";

    NodeEnvironment node;
    std::array<size_t, kMostTiles> room_of_tiles{};
    std::span<const TaskVariable> of_first;
    if (!tiles.variables.empty() && tiles.variables.front().size() <= kMostTiles)
        of_first = tiles.variables.front();
    for (size_t place = 0; place < of_first.size(); ++place) {
        if (is_set_by_slurm(of_first[place])) continue;
        size_t room = tiles.settled ? 0 : kBlankOfTiles;
        bool is_same_in_all = true;
        for (const auto& task : tiles.variables) {
            is_same_in_all &= place < task.size() && task[place] == of_first[place];
            if (place < task.size()) room = std::max(room, task[place].value.size());
        }
        const size_t index = node.tiles_.size();
        node.tiles_.push_back(of_first[place]);
        if (is_same_in_all) continue;
        node.tiles_[index].value = hole(kWords + index);
        room_of_tiles[index] = room;
    }
    const auto room = [&](size_t index) {
        return std::string(index < kWords ? kRoom[index] : room_of_tiles[index - kWords], ' ');
    };

    TaskFacts task = any;
    task.tiles = node.tiles_;
    const TaskEnvironment environment = task_environment(task, words, get);
    node.has_patterns_ = environment.warnings.empty();
    for (const EnvironmentChange& change : environment.changes) {
        NodeEnvironment::Made made{change.name, change.value, get(change.name.c_str()), "", {}};
        if (!change.value && !is_launchers(change.name)) node.has_patterns_ = false;
        if (change.value && std::any_of(change.value->begin(), change.value->end(), is_hole)) {
            made.pattern = *change.value;
            made.now = std::string(std::max(filled_size(made.pattern, room), kBlank), ' ');
        }
        node.made_.push_back(std::move(made));
    }
    for (const std::string& name : environment.kept)
        node.kept_.push_back({name + "=" + get(name.c_str()).value_or(""), 0});
    for (std::string_view name : kNamesOfWorld) {
        const bool is_made = node.place_of(name) < node.made_.size();
        const auto of_user = get(std::string(name).c_str());
        if (!is_made && of_user) node.made_.push_back({std::string(name), of_user, of_user, "", {}});
    }
    return node;
}

std::vector<EnvironmentChange> NodeEnvironment::changes() const {
    std::vector<EnvironmentChange> all;
    all.reserve(made_.size());
    for (const Made& made : made_) all.push_back({made.name, made.now});
    return all;
}

void NodeEnvironment::find_in(char** environment) {
    if (made_.empty()) return;
    const EnvironmentList list(environment);
    const size_t nowhere = count_of(environment);
    for (Made& made : made_)
        if (made.now) made.found = {made.name + "=" + *made.now, list.place(made.name).value_or(nowhere)};
    for (Found& kept : kept_)
        kept.place = list.place(kept.text.substr(0, kept.text.find('='))).value_or(nowhere);
}

// Finds them again: where they were, or, if other variables have gone since and they have moved, by name.
class NodeEnvironment::Finder {
 public:
    explicit Finder(char** environment) : environment_(environment), count_(count_of(environment)) {}

    // Null where it is not there as it was.
    char* find(const Found& found) {
        if (found.place < count_ && found.text == environment_[found.place]) return environment_[found.place];
        if (!list_) list_.emplace(environment_);
        const auto place = list_->place(found.text.substr(0, found.text.find('=')));
        return place && found.text == environment_[*place] ? environment_[*place] : nullptr;
    }

 private:
    char** environment_;
    size_t count_;
    std::optional<EnvironmentList> list_;
};

std::optional<std::vector<EnvironmentChange>> NodeEnvironment::fill(char** environment,
                                                                    const TaskFacts& facts,
                                                                    const NodePlan& plan) const {
    if (!has_patterns_ || facts.cpus == 0) return std::nullopt;
    std::array<const TaskVariable*, kMostTiles> tiles{};
    size_t found_tiles = 0;
    std::vector<EnvironmentChange> left;
    for (const TaskVariable& variable : facts.tiles) {
        if (is_set_by_slurm(variable)) {
            left.push_back({variable.name, variable.value});
        } else {
            if (found_tiles == tiles_.size() || !fits(tiles_[found_tiles], variable)) return std::nullopt;
            tiles[found_tiles++] = &variable;
        }
    }
    if (found_tiles < tiles_.size()) return std::nullopt;
    Finder finder(environment);
    for (const Found& kept : kept_)
        if (!finder.find(kept)) return std::nullopt;

    const TaskWords words = words_of(facts, plan);
    const auto word_at = [&](size_t index) -> const std::string& {
        return index < kWords ? words[index] : tiles[index - kWords]->value;
    };
    std::vector<std::pair<const Made*, char*>> blanks;
    blanks.reserve(made_.size());
    for (const Made& made : made_) {
        char* const there = made.now ? finder.find(made.found) : nullptr;
        if (made.now && !there) return std::nullopt;
        if (made.pattern.empty()) continue;
        if (filled_size(made.pattern, word_at) > made.now->size()) return std::nullopt;
        blanks.emplace_back(&made, there + made.name.size() + 1);
    }
    for (const auto& [made, blank] : blanks) fill_in(made->pattern, word_at, blank);
    return left;
}

size_t NodeEnvironment::place_of(std::string_view name) const {
    const auto found =
        std::find_if(made_.begin(), made_.end(), [&](const Made& made) { return made.name == name; });
    return static_cast<size_t>(found - made_.begin());
}

std::optional<std::string> NodeEnvironment::get(const char* name, const GetVariable& inherited) const {
    auto there = inherited(name);
    const size_t place = place_of(name);
    const bool is_ours = place < made_.size() && (there == made_[place].now || is_of_world(name));
    return is_ours ? made_[place].before : there;
}

std::vector<EnvironmentChange> NodeEnvironment::left_of(const std::vector<EnvironmentChange>& changes_of_task,
                                                        const GetVariable& inherited) const {
    std::vector<EnvironmentChange> left;
    std::vector<char> is_decided(made_.size() + 1);
    for (const auto& change : changes_of_task) {
        is_decided[place_of(change.name)] = 1;
        if (inherited(change.name.c_str()) != change.value) left.push_back(change);
    }
    for (size_t i = 0; i < made_.size(); ++i) {
        if (is_decided[i]) continue;
        const auto there = inherited(made_[i].name.c_str());
        if (there != made_[i].before && (there == made_[i].now || is_of_world(made_[i].name)))
            left.push_back({made_[i].name, made_[i].before});
    }
    return left;
}

std::vector<EnvironmentChange> NodeEnvironment::without_blanks(char** environment) const {
    Finder finder(environment);
    std::vector<EnvironmentChange> back;
    for (const Made& made : made_) {
        const bool is_of_tiles = std::any_of(tiles_.begin(), tiles_.end(), [&](const TaskVariable& variable) {
            return variable.name == made.name;
        });
        if ((!made.pattern.empty() || is_of_tiles) && finder.find(made.found))
            back.push_back({made.name, made.before});
    }
    return back;
}

}  // namespace dp
