// The log: which rounds an owner may answer, and what a later owner reads. There are no clocks in it.
//
// Three owners, one after the other: owner e is one life that claims epoch e (numbered from 0 here, from 1 in traces).
// Any step may come at any time, or never: an owner that makes no step any more has crashed, one that makes it later
// stood still. Requests are taken apart where something may come in between:
//   PUT log/e/p     `copies` of it are on their way (a repetition is a copy). Each lands at any later time, also after
//                   its owner stepped down and after what it wrote was trimmed. Its answer may come after the first
//                   landing, or never.
//   look            for epoch/e+1: it begins, it is carried out, its answer is used: three steps.
//   epoch/, end/    it is created; its creator knows: two steps (a lost answer is found by reading).
//   DELETE          once a base is complete, each object below it may vanish at any later time.
//
// Invariants:
//   I1a  an answered round lies before its epoch's end
//   I1b  an owner that serves has read every answered round of the epochs before
//   I1c  an owner that serves has read exactly what the ends seal, neither more nor less
//   I1d  two owners that serve have read the same of the epochs before both
//   I1e  a base holds no round behind its epoch's end
#include "search.hpp"

namespace {

constexpr int E = 3;           // owners
constexpr int P = 3;           // the most rounds of one
int rounds_of[E] = {2, 1, 1};  // rounds=211: so many rounds does each owner write at most
int copies = 2;                // copies=N: of each PUT

// Clauses of the design, each with the switch that takes it away.
bool numbers_follow = true;      // without-consecutive-epochs: a claim takes the next number, none is left out
bool epochs_stay = true;         // without-keeping-epochs: epoch/E is never deleted
bool ends_stay = true;           // without-keeping-ends: end/E is never deleted
bool look_after_put = true;      // without-looking-after-the-put: the look for epoch/E+1 begins when the PUT is answered
bool all_before = true;          // without-all-before: a round is answered when the PUTs of all before it are, too
bool forgets_404s = true;        // without-new-gets: what a standby did not find is asked for again after the claim
bool lists_after_404 = true;     // without-list-after-404: a 404 is the end if no base lies beyond it
bool gives_up_beyond = true;     // without-giving-up-beyond-the-end: what was read beyond another's end is given up
bool reads_up_to = true;         // without-reading-up-to-the-end: up to another's end, more is read
bool answered_bases = true;      // without-answered-bases: a base holds answered rounds only
bool skips_bases_beyond = false; // bases-checked-by-readers: a reader takes no base beyond its epoch's end. It makes
                                 // up for without-answered-bases, then a base beyond an end is no violation

// What a run leaves out, to be smaller.
bool has_standby = true;  // no-standby: nobody reads before the claim
bool has_trim = true;     // no-trim: no bases, no DELETEs

enum Phase : u8 { NOTHING, CLAIMS, READS, SERVES, STEPPED_DOWN };
enum Reading : u8 { GETS, LISTS_BASES, CREATES_END, LEARNS_END, READS_UP_TO_END };
enum Standby : u8 { NOT_YET, FOLLOWS, NO_LONGER };
enum Look : u8 { NO_LOOK, BEGAN, SAW_NOTHING, SAW_AN_EPOCH };

struct LogState {
  // What the store has.
  u8 epoch[E];      // epoch/e is there
  u8 phase[E];      // of owner e: Phase
  // An owner, or a standby, that reads the log.
  u8 at_epoch[E];   // the epoch that it reads
  u8 at_round[E];   // the round of it that it asks for next
  u8 reading[E];    // Reading
  u8 known[E][E];   // so many rounds of each epoch has it read
  // The rounds of owner e.
  u8 under_way[E][P];  // copies of the PUT that have not landed
  u8 begun[E];         // so many were begun
  u8 has_landed[E][P]; // the PUT was carried out at some time
  u8 stored[E][P];     // log/e/p is there
  u8 is_put[E][P];     // the owner has the PUT's answer
  u8 look[E];          // Look: the newest one for epoch/e+1
  u8 looks_for[E];     // so many rounds is it for
  u8 answered[E];      // so many rounds were answered: clients may have been told
  u8 end[E];           // end/e: 0 it is not there, else 1 + its position
  u8 bases[E];         // bit k: base/e-k is there, which holds k rounds of epoch e, and all before
  u8 standby[E];       // Standby
};

struct LogModel {
  using State = LogState;
  enum class Step : u8 {
    CLAIM, CLAIM_KNOWN, LIST_BASES, GET, LIST_AFTER_404, CREATE_END, END_KNOWN, GET_UP_TO_END, BEGIN_PUT, PUT_LANDS,
    PUT_ANSWERED, LOOK_BEGINS, LOOK_CARRIED_OUT, LOOK_USED, WRITE_BASE, DELETE_ROUND, DELETE_BASE, STANDBY_APPLIES,
    STANDBY_GOES_ON, STANDBY_MISSES, DELETE_END, DELETE_EPOCH
  };
  using Search = ::Search<LogModel>;

  static std::string time_of(const State&) { return ""; }
  static const char* text_of(Step step) {
    static const char* const TEXTS[] = {
        "creates epoch/", "knows that it has claimed", "standby lists base/, and begins to read",
        "GET of the next round", "after a 404: lists base/", "creates end/, or finds it", "knows the end",
        "GET of a round before the end", "begins a PUT", "a copy of the PUT lands", "PUT is answered", "look begins",
        "look is carried out", "look's answer is used", "writes a base", "DELETE of a round is carried out",
        "deletes an older base", "standby applies a round", "standby goes on to the next epoch", "standby gets a 404",
        "its end/ is deleted", "its epoch/ is deleted by a rule"};
    return TEXTS[static_cast<int>(step)];
  }

  const char* broken_by(const State& s) const {
    for (int e = 0; e < E; e++) {
      const int end = s.end[e] - 1;  // -1: not ended
      if (s.end[e] && s.answered[e] > end) return "I1a: an answered round lies behind its epoch's end";
      if (s.phase[e] >= SERVES)
        for (int former = 0; former < e; former++) {
          if (s.known[e][former] < s.answered[former]) return "I1b: a later owner serves without an answered round";
          if (s.end[former] && s.known[e][former] != s.end[former] - 1)
            return "I1c: an owner serves with another history than the sealed one";
          for (int later = e + 1; later < E; later++)
            if (s.phase[later] >= SERVES && s.known[later][former] != s.known[e][former])
              return "I1d: two owners disagree on the history";
        }
      if (s.end[e] && !skips_bases_beyond)
        for (int rounds = end + 1; rounds <= P; rounds++)
          if (has_base(s, e, rounds)) return "I1e: a base holds rounds behind its epoch's end";
    }
    return nullptr;
  }

  void steps_from(const State& s, Search& search) const {
    for (int e = 0; e < E; e++) {
      claim(s, e, search);
      if (has_standby) follow(s, e, search);
      know_claim(s, e, search);
      if (s.phase[e] == READS) read(s, e, search);
      if (s.phase[e] == SERVES) serve(s, e, search);
      if (has_trim && s.phase[e] >= SERVES) write_base(s, e, search);
      land(s, e, search);
      if (has_trim) trim(s, e, search);
      if (!epochs_stay && e > 0 && s.epoch[e] && s.phase[e] >= SERVES) {
        State n = s;
        n.epoch[e] = 0;
        search.reach(n, Step::DELETE_EPOCH, e);
      }
    }
  }

 private:
  static bool has_base(const State& s, int epoch, int rounds) { return s.bases[epoch] >> rounds & 1; }

  // The newest complete base of epochs up to `last`: {epoch, rounds}; {-1, 0}: there is none.
  static std::pair<int, int> newest_base(const State& s, int last, bool checks_ends) {
    for (int epoch = last; epoch >= 0; epoch--)
      for (int rounds = P; rounds >= 0; rounds--)
        if (has_base(s, epoch, rounds) && !(checks_ends && s.end[epoch] && rounds > s.end[epoch] - 1))
          return {epoch, rounds};
    return {-1, 0};
  }

  // Take the newest base, or the beginning; what was known is forgotten. A base holds what its writer had read.
  static void begin_reading(State& n, int e) {
    const auto [epoch, rounds] = newest_base(n, e - 1, skips_bases_beyond);
    n.reading[e] = GETS;
    std::memset(n.known[e], 0, E);
    for (int former = 0; former < epoch; former++) n.known[e][former] = n.known[epoch][former];
    if (epoch >= 0) n.known[e][epoch] = rounds;
    n.at_epoch[e] = epoch < 0 ? 0 : epoch;
    n.at_round[e] = rounds;
  }

  static void go_to_next_epoch(State& n, int e) {
    n.at_epoch[e]++;
    n.at_round[e] = 0;
    n.reading[e] = GETS;
  }

  static void apply_round(State& n, int e, int epoch, int round) {
    n.at_round[e]++;
    n.known[e][epoch] = round + 1;
  }

  // Whoever sees the number before as the highest creates the next one.
  static void claim(const State& s, int e, Search& search) {
    const bool is_next = e > 0 && s.epoch[e - 1];
    const bool leaves_one_out = !numbers_follow && e > 1 && s.epoch[e - 2];
    if (s.epoch[e] || s.phase[e] != NOTHING || !(is_next || leaves_one_out)) return;
    State n = s;
    n.epoch[e] = 1;
    n.phase[e] = CLAIMS;
    search.reach(n, Step::CLAIM, e);
  }

  // A standby reads before its claim. What it read is kept; what it did not find is not.
  static void follow(const State& s, int e, Search& search) {
    if (e > 0 && s.phase[e] <= CLAIMS && s.standby[e] == NOT_YET && s.epoch[e - 1]) {
      State n = s;
      begin_reading(n, e);
      n.standby[e] = FOLLOWS;
      search.reach(n, Step::LIST_BASES, e);
    }
    const int epoch = s.at_epoch[e], round = s.at_round[e];
    if (s.standby[e] != FOLLOWS || s.phase[e] > CLAIMS || epoch >= e || s.reading[e] != GETS) return;
    const bool is_there = round < rounds_of[epoch] && s.stored[epoch][round];
    const bool is_at_end = s.end[epoch] && round >= s.end[epoch] - 1;
    if (is_there && !is_at_end) {
      State n = s;
      apply_round(n, e, epoch, round);
      search.reach(n, Step::STANDBY_APPLIES, e, round);
    }
    if (s.end[epoch] && round == s.end[epoch] - 1 && epoch + 1 < e) {
      State n = s;
      go_to_next_epoch(n, e);
      search.reach(n, Step::STANDBY_GOES_ON, e);
    }
    if (!forgets_404s && !is_there && epoch == e - 1) {
      State n = s;
      n.reading[e] = CREATES_END;
      search.reach(n, Step::STANDBY_MISSES, e, round);
    }
  }

  static void know_claim(const State& s, int e, Search& search) {
    if (s.phase[e] != CLAIMS) return;
    State n = s;
    n.phase[e] = READS;
    if (!s.standby[e]) begin_reading(n, e);
    n.standby[e] = NO_LONGER;
    search.reach(n, Step::CLAIM_KNOWN, e);
  }

  // Take over: read each epoch before up to what is missing, end it, and go by the first end that anybody made.
  static void read(const State& s, int e, Search& search) {
    const int epoch = s.at_epoch[e], round = s.at_round[e], end = s.end[epoch] - 1;
    State n = s;
    if (epoch >= e) {
      n.phase[e] = SERVES;
      n.at_epoch[e] = n.at_round[e] = n.reading[e] = 0;
      search.reach(n, Step::END_KNOWN, e);
      return;
    }
    switch (s.reading[e]) {
      case GETS:
        if (!s.epoch[epoch]) {  // a number that nobody has
          go_to_next_epoch(n, e);
          n.known[e][epoch] = 0;
        } else if (round < rounds_of[epoch] && s.stored[epoch][round]) {
          apply_round(n, e, epoch, round);
        } else {
          n.reading[e] = lists_after_404 ? LISTS_BASES : CREATES_END;
        }
        search.reach(n, Step::GET, e, round);
        break;
      case LISTS_BASES: {
        // It may be missing because it was trimmed below a base of after the reader's first LIST.
        const auto [base_epoch, base_rounds] = newest_base(s, e - 1, skips_bases_beyond);
        if (base_epoch > epoch || (base_epoch == epoch && base_rounds > round)) begin_reading(n, e);
        else n.reading[e] = CREATES_END;
        search.reach(n, Step::LIST_AFTER_404, e, round);
        break;
      }
      case CREATES_END:
        if (!n.end[epoch]) n.end[epoch] = round + 1;
        n.reading[e] = LEARNS_END;
        search.reach(n, Step::CREATE_END, e, round);
        break;
      case LEARNS_END:
        if (!s.end[epoch]) break;
        if (end == round || (end < round && !gives_up_beyond) || (end > round && !reads_up_to)) {
          go_to_next_epoch(n, e);
        } else if (end < round) {
          n.known[e][epoch] = end;
          go_to_next_epoch(n, e);
        } else {
          n.reading[e] = READS_UP_TO_END;
        }
        search.reach(n, Step::END_KNOWN, e, end);
        break;
      case READS_UP_TO_END:
        if (!s.end[epoch]) break;
        if (round == end) go_to_next_epoch(n, e);
        else if (s.stored[epoch][round]) apply_round(n, e, epoch, round);
        else begin_reading(n, e);  // it was trimmed meanwhile
        search.reach(n, Step::GET_UP_TO_END, e, round);
        break;
    }
  }

  // Begin rounds, look for the next epoch, answer.
  static void serve(const State& s, int e, Search& search) {
    const int rounds = rounds_of[e];
    if (s.begun[e] < rounds) {
      State n = s;
      const int round = n.begun[e]++;
      n.under_way[e][round] = copies;
      search.reach(n, Step::BEGIN_PUT, e, round);
    }
    for (int round = 0; round < rounds; round++)
      if (s.has_landed[e][round] && !s.is_put[e][round]) {
        State n = s;
        n.is_put[e][round] = 1;
        search.reach(n, Step::PUT_ANSWERED, e, round);
      }
    // A look serves the rounds whose PUTs, and those of all before them, were answered when it began.
    int without_gap = 0, last = 0;
    while (without_gap < rounds && s.is_put[e][without_gap]) without_gap++;
    for (int round = 0; round < rounds; round++)
      if (s.is_put[e][round]) last = round + 1;
    const int serves = !all_before ? last : !look_after_put ? s.begun[e] : without_gap;
    if (serves > s.answered[e] && (s.look[e] == NO_LOOK || s.looks_for[e] < serves)) {
      State n = s;
      n.look[e] = BEGAN;
      n.looks_for[e] = serves;
      search.reach(n, Step::LOOK_BEGINS, e, serves);
    }
    const bool is_followed = e + 1 < E && s.epoch[e + 1];
    if (s.look[e] == BEGAN) {
      State n = s;
      n.look[e] = is_followed ? SAW_AN_EPOCH : SAW_NOTHING;
      search.reach(n, Step::LOOK_CARRIED_OUT, e, s.looks_for[e]);
    }
    if (s.look[e] == SAW_NOTHING) {  // it may be used however late it comes
      State n = s;
      int answers = s.looks_for[e];
      if (!look_after_put && without_gap < answers) answers = without_gap;
      n.look[e] = NO_LOOK;
      n.looks_for[e] = 0;
      if (answers > n.answered[e]) {
        n.answered[e] = answers;
        if (is_followed) search.late_answers++;
      }
      if (look_after_put || answers == s.looks_for[e]) search.reach(n, Step::LOOK_USED, e, answers);
    }
    if (s.look[e] == SAW_AN_EPOCH) {
      State n = s;
      n.phase[e] = STEPPED_DOWN;
      n.look[e] = NO_LOOK;
      n.looks_for[e] = 0;
      search.reach(n, Step::LOOK_USED, e);
    }
  }

  // A base is complete in one step: its manifest is written last. An owner may write it after it stepped down.
  static void write_base(const State& s, int e, Search& search) {
    const int rounds = answered_bases ? s.answered[e] : s.begun[e];
    if (s.bases[e] >> rounds) return;  // there is one that holds as much
    State n = s;
    n.bases[e] |= 1 << rounds;
    search.reach(n, Step::WRITE_BASE, e, rounds);
  }

  static void land(const State& s, int e, Search& search) {
    for (int round = 0; round < rounds_of[e]; round++)
      if (s.under_way[e][round]) {
        State n = s;
        n.under_way[e][round]--;
        n.has_landed[e][round] = n.stored[e][round] = 1;  // its name may be free again: what it wrote was deleted
        search.reach(n, Step::PUT_LANDS, e, round);
      }
  }

  // DELETEs of what the newest base makes superfluous, each at a time of its own.
  static void trim(const State& s, int e, Search& search) {
    const auto [base_epoch, base_rounds] = newest_base(s, E - 1, false);
    if (base_epoch < 0) return;
    for (int round = 0; round < rounds_of[e]; round++)
      if (s.stored[e][round] && (base_epoch > e || (base_epoch == e && round < base_rounds))) {
        State n = s;
        n.stored[e][round] = 0;
        search.reach(n, Step::DELETE_ROUND, e, round);
      }
    const u8 newest = 1 << base_rounds;
    if ((base_epoch > e && s.bases[e]) || (base_epoch == e && (s.bases[e] & (newest - 1)))) {
      State n = s;
      n.bases[e] = base_epoch == e ? newest : 0;
      search.reach(n, Step::DELETE_BASE, e);
    }
    if (!ends_stay && s.end[e] && base_epoch > e) {
      State n = s;
      n.end[e] = 0;
      search.reach(n, Step::DELETE_END, e);
    }
  }
};

}  // namespace

int main(int count, char** words) {
  LogModel model;
  Search<LogModel> search(model);
  bool asks_progress = false;
  int states_max = 30'000'000;
  Arguments arguments(count, words);
  arguments.clear("without-consecutive-epochs", numbers_follow);
  arguments.clear("without-keeping-epochs", epochs_stay);
  arguments.clear("without-keeping-ends", ends_stay);
  arguments.clear("without-looking-after-the-put", look_after_put);
  arguments.clear("without-all-before", all_before);
  arguments.clear("without-new-gets", forgets_404s);
  arguments.clear("without-list-after-404", lists_after_404);
  arguments.clear("without-giving-up-beyond-the-end", gives_up_beyond);
  arguments.clear("without-reading-up-to-the-end", reads_up_to);
  arguments.clear("without-answered-bases", answered_bases);
  arguments.set("bases-checked-by-readers", skips_bases_beyond);
  arguments.clear("no-standby", has_standby);
  arguments.clear("no-trim", has_trim);
  arguments.set("progress", asks_progress);  // is there always a way on to an answer of the last owner?
  arguments.digits("rounds", rounds_of, E);
  arguments.number("copies", copies);
  arguments.number("states_max", states_max);
  arguments.refuse_others();
  search.states_max = states_max;
  search.keeps_edges = asks_progress;

  LogState first{};
  first.epoch[0] = 1;  // the first owner serves, of nothing
  first.phase[0] = SERVES;
  const int status = search.run("log", arguments, first);
  const int stuck = search.unreachable_from("the last owner has answered", [](const LogState& s) {
    return s.phase[E - 1] == SERVES && s.answered[E - 1] > 0;
  });
  return status ? status : stuck;
}
