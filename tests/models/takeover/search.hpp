// Breadth-first search over all states of a model, in the order of the steps: the first violation has a shortest trace.
//
// A model has a `State` of bytes without padding, one `Step` for each transition, and two functions:
//   const char* broken_by(const State&)            the invariant that a state breaks, or nullptr; asked once a state
//   void steps_from(const State&, Search&)         calls `reach` for each state that is one step away
// A step may break an invariant itself, whatever the state behind it: `reach` is told then.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

using u8 = std::uint8_t;

// Words on the command line: a switch by itself (`without-wait`), or a number (`epochs=2`).
class Arguments {
 public:
  Arguments(int count, char** words) : words_(words + 1, words + count), known_(words_.size()) {}

  void clear(const char* name, bool& flag) { if (find(name, false)) flag = false; }
  void set(const char* name, bool& flag) { if (find(name, false)) flag = true; }
  void number(const char* name, int& value) { if (const char* text = find(name, true)) value = std::atoi(text); }
  // `digits`: one a place, as in rounds=211.
  void digits(const char* name, int* values, int places) {
    const char* text = find(name, true);
    for (int i = 0; text && i < places && text[i]; i++) values[i] = text[i] - '0';
  }
  // Whoever mistypes a switch would believe that a run without a clause found nothing.
  void refuse_others() const {
    for (std::size_t i = 0; i < words_.size(); i++)
      if (!known_[i]) { std::fprintf(stderr, "unknown: %s\n", words_[i].c_str()); std::exit(2); }
  }
  const std::vector<std::string>& words() const { return words_; }

 private:
  const char* find(const char* name, bool has_value) {
    const std::size_t length = std::strlen(name);
    for (std::size_t i = 0; i < words_.size(); i++) {
      const std::string& word = words_[i];
      if (has_value ? word.compare(0, length, name) == 0 && word[length] == '=' : word == name) {
        known_[i] = true;
        return word.c_str() + length + has_value;
      }
    }
    return nullptr;
  }
  std::vector<std::string> words_;
  std::vector<bool> known_;
};

// A vector that never moves what it has: a copy while it grows would take half as much memory again.
template <class T>
class Pile {
 public:
  T& operator[](std::size_t i) { return chunks_[i >> BITS][i & (SIZE - 1)]; }
  const T& operator[](std::size_t i) const { return chunks_[i >> BITS][i & (SIZE - 1)]; }
  std::size_t size() const { return size_; }
  void push_back(const T& value) {
    if (size_ >> BITS == chunks_.size()) chunks_.push_back(std::make_unique<T[]>(SIZE));
    (*this)[size_++] = value;
  }

 private:
  static constexpr int BITS = 14;
  static constexpr std::size_t SIZE = 1 << BITS;
  std::vector<std::unique_ptr<T[]>> chunks_;
  std::size_t size_ = 0;
};

template <class Model>
class Search {
 public:
  using State = typename Model::State;
  using Step = typename Model::Step;
  static_assert(std::has_unique_object_representations_v<State>, "states are compared by their bytes");

  explicit Search(Model& model) : model_(model) { grow(); }
  std::size_t states_max = 30'000'000;
  bool keeps_edges = false;  // for unreachable_from

  // The state `next` is one step away: `owner` (from 0) does it, `detail` says which round, or how many.
  // `broken`: the invariant that the step breaks. Such a step counts where its state is known, too.
  void reach(const State& next, Step step, int owner, int detail = 0, const char* broken = nullptr) {
    steps_++;
    std::uint64_t at = hash(next) & mask_;
    for (; table_[at] != NONE; at = (at + 1) & mask_)
      if (!std::memcmp(&states_[table_[at]], &next, sizeof next) && !(broken && !broken_)) {
        if (keeps_edges) edges_.push_back({current_, table_[at]});
        return;
      }
    const auto number = static_cast<std::uint32_t>(states_.size());
    table_[at] = number;
    states_.push_back(next);
    came_from_.push_back(current_);
    by_.push_back({static_cast<u8>(step), static_cast<u8>(owner), static_cast<u8>(detail)});
    if (keeps_edges) edges_.push_back({current_, number});
    if (!broken_) {
      broken_ = broken ? broken : model_.broken_by(next);
      broken_at_ = number;
    }
    if (2 * states_.size() > table_.size()) grow();
  }

  // Look at all states that can be reached; print the verdict, and a trace to a violation.
  // The exit status is 0 for no violation, 1 for one, 3 if states_max was reached before all states were seen.
  int run(const char* name, const Arguments& arguments, const State& first) {
    reach(first, Step{}, 0);
    bool is_complete = true;
    for (current_ = 0; current_ < states_.size() && !broken_; current_++) {
      if (states_.size() > states_max) { is_complete = false; break; }
      model_.steps_from(states_[current_], *this);
    }
    std::printf("%s", name);
    for (const std::string& word : arguments.words()) std::printf(" %s", word.c_str());
    std::printf(": %zu states, %ld steps, %s; late answers %ld\n", states_.size(), steps_,
                broken_ ? "violation" : is_complete ? "complete, no violation" : "bound reached, no violation", late_answers);
    if (broken_) {
      std::printf("  %s\n", broken_);
      print_trace(broken_at_);
    }
    is_done_ = is_complete && !broken_;
    return broken_ ? 1 : is_complete ? 0 : 3;
  }

  // After a complete run that kept its edges: from how many states none with `is_goal` can be reached. 0: there is
  // always a way on. Prints a trace to the first.
  int unreachable_from(const char* goal, const std::function<bool(const State&)>& is_goal) {
    if (!is_done_ || !keeps_edges) return 0;
    std::vector<std::uint32_t> first(states_.size() + 1, 0), sources(edges_.size());
    for (const auto& [from, to] : edges_) first[to + 1]++;
    for (std::size_t i = 0; i < states_.size(); i++) first[i + 1] += first[i];
    std::vector<std::uint32_t> free(first.begin(), first.end() - 1);
    for (const auto& [from, to] : edges_) sources[free[to]++] = from;
    std::vector<bool> gets_there(states_.size());
    std::vector<std::uint32_t> open;
    for (std::uint32_t i = 0; i < states_.size(); i++)
      if (is_goal(states_[i])) { gets_there[i] = true; open.push_back(i); }
    const std::size_t goals = open.size();
    while (!open.empty()) {
      const std::uint32_t to = open.back();
      open.pop_back();
      for (std::uint32_t i = first[to]; i < first[to + 1]; i++)
        if (!gets_there[sources[i]]) { gets_there[sources[i]] = true; open.push_back(sources[i]); }
    }
    std::size_t stuck = 0;
    std::uint32_t example = 0;
    for (std::uint32_t i = 0; i < states_.size(); i++)
      if (!gets_there[i] && !stuck++) example = i;
    std::printf("  progress: %zu states where %s; from %zu of %zu states it cannot be reached\n", goals, goal, stuck,
                states_.size());
    if (stuck) print_trace(example);
    return stuck ? 1 : 0;
  }

  long late_answers = 0;  // steps in which an answer is given that rests on a look of before a claim

 private:
  struct By { u8 step, owner, detail; };
  static constexpr std::uint32_t NONE = 0xffffffffu;

  static std::uint64_t hash(const State& state) {
    const u8* bytes = reinterpret_cast<const u8*>(&state);
    std::uint64_t h = 1469598103934665603ull;  // FNV-1a, then mixed: the table takes the low bits
    for (std::size_t i = 0; i < sizeof state; i++) h = (h ^ bytes[i]) * 1099511628211ull;
    h = (h ^ (h >> 29)) * 0xbf58476d1ce4e5b9ull;
    return h ^ (h >> 32);
  }

  void grow() {
    table_.assign(table_.empty() ? 1 << 20 : 2 * table_.size(), NONE);
    mask_ = table_.size() - 1;
    for (std::uint32_t i = 0; i < states_.size(); i++) {
      std::uint64_t at = hash(states_[i]) & mask_;
      while (table_[at] != NONE) at = (at + 1) & mask_;
      table_[at] = i;
    }
  }

  void print_trace(std::uint32_t last) const {
    std::vector<std::uint32_t> way;
    for (std::uint32_t i = last; i; i = came_from_[i]) way.push_back(i);
    int number = 1;
    for (auto i = way.rbegin(); i != way.rend(); ++i) {
      const By& by = by_[*i];
      std::printf("   %2d. %s[%d] %s (%d)\n", number++, Model::time_of(states_[*i]).c_str(), by.owner + 1,
                  Model::text_of(static_cast<Step>(by.step)), by.detail);
    }
  }

  Model& model_;
  Pile<State> states_;
  Pile<std::uint32_t> came_from_;
  Pile<By> by_;
  std::vector<std::uint32_t> table_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> edges_;
  std::uint64_t mask_ = 0;
  std::uint32_t current_ = 0, broken_at_ = 0;
  const char* broken_ = nullptr;
  bool is_done_ = false;
  long steps_ = 0;
};
