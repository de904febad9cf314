// Lease, hand-outs and "done": one message, over a log whose order is that of log.cpp.
//
// Three owners, one after the other, each on a machine of its own. Time is whole ticks of true time; anything may come
// in any tick, or never: an owner may stand still at any place and for any time. Wall clocks have an offset, drawn at
// the claim, and never moved but by the switch `clock-steps`. A wall clock shows tick + offset; due times and clocks of
// rounds are of that kind. Rounds land in their order, and a new owner reads and seals what has landed in one step,
// which log.cpp shows to be right.
//
// The message is due at `due`; while it is pending a client may cancel it, or move it to the earlier `moved_due`. It is
// handed out, acknowledged, handed out again. Owners write a round whenever they like, which stands for heartbeats too.
//
// Invariants:
//   I2  an older owner hands nothing out that a newer one has handed out (but see `stops-before-send`)
//   I3  what "done" was answered of (a cancel) is not handed out, before or after
//   I4  what was acknowledged is not handed out by the owner that answered, or by a later one
//   I5  what was acknowledged at a newer owner is not handed out by an older one
//   I6  "delivered" and "done" are not both answered
#include "search.hpp"

namespace {

constexpr int E = 3;           // the most owners
constexpr int R = 3;           // the most rounds of one
int owners = E;                // owners=N
int rounds_of[E] = {2, 2, 1};  // rounds=221: so many rounds does each owner write at most; the first has written one
int ticks = 4;                 // ticks=N: time passes up to here
int lease_ticks = 2;           // lease=N
int drift = 0;                 // drift=N: the clock of a lease is slower than true time, it ends so many ticks later
int margin = 0;                // margin=N: a new owner waits so much longer than a lease. The x 1.05 of the design
int due = 3;                   // due=N
int moved_due = 1;             // moved_due=N
int offsets = 2;               // offsets=N: a claim draws the offset of its wall clock from 0 ... N-1
int first_offset = 1;          // first_offset=N: that of the first owner

// Clauses of the design, each with the switch that takes it away.
bool bound_by_log_clock = true;    // without-log-clock-bound: handed out is only what is due up to the clock of the last
                                   // answered round + a lease
bool clocks_never_back = true;     // without-clocks-of-before: a round's clock is no lower than any before it
bool rests_on_answered = true;     // without-answered-reasons: what makes a message due is answered before its hand-out
bool acks_wait = true;             // without-wait-of-acks: acknowledgements come after the wait
bool released_waits = true;        // without-wait-of-released: `released` is written after the wait only
bool has_floor = true;             // without-floor: what is due up to the log's clock + a lease counts as taken
bool lease_from_answer = true;     // without-answered-lease: a lease begins with an answered round of its own epoch
bool lease_from_put = true;        // without-lease-from-the-put: it is counted from the beginning of that round's PUT
bool has_lease = true;             // without-lease: hand-outs need a lease that lasts (what rests on it: I2 alone)
bool changes_wait = false;         // changes-wait: cancels and moves come after the wait, which the design does not ask
bool changes_need_lease = false;   // changes-need-lease: and with a lease that lasts
bool stops_before_send = false;    // stops-before-send: a thread stands still between its last look and the hand-out.
                                   // The design leaves that over: I2 breaks, I3 does not
bool clock_steps = false;          // clock-steps: the first owner's wall clock may be set ahead, once, by 3

// What a run leaves out, to be smaller.
bool is_new = false;         // new-message: it is sent by a client; else it was there before the first owner
bool has_moves = true;       // no-moves
bool has_releases = true;    // no-released
bool has_acks = true;        // no-acks
bool has_cancels = true;     // no-cancels
bool has_delivered = true;   // no-delivered: cancels that come too late get no answer
bool checks_i2 = true, checks_i3 = true, checks_i4 = true, checks_i5 = true, checks_i6 = true;  // unchecked-I2 ...

enum Phase : u8 { NOTHING, CLAIMS, WAS_TOLD, SERVES };
enum Message : u8 { PENDING, CANCELLED, TAKEN, ACKNOWLEDGED, NOT_THERE };
// What a round says, besides that its owner was alive.
enum Content : u8 { CANCEL = 1, READY = 2, ACK = 4, RELEASED = 8, MOVE = 16, DELIVERED = 32, SENT = 64 };

struct LeaseState {
  u8 now;                   // ticks
  u8 is_done;               // "done" was answered of a cancel
  u8 acknowledged_at;       // 1 + the owner that answered an acknowledgement; 0: none
  u8 is_delivered;          // "delivered" was answered of a cancel
  u8 phase[E];              // Phase
  u8 offset[E];             // of the wall clock
  // The rounds of owner e.
  u8 begun[E];              // so many
  u8 clock[E][R];           // that a round has
  u8 begun_at[E][R];        // tick in which its PUT began
  u8 content[E][R];         // Content
  u8 landed[E];             // so many
  u8 seen[E];               // so many had landed when a look found no later epoch; its answer was not used yet
  u8 answered[E];           // so many: clients may have been told
  u8 end[E];                // end/e: 0 it is not there, else 1 + its position
  u8 lease[E];              // 1 + tick from which the lease counts; 0: none
  u8 waits_until[E];        // tick from which it hands out
  u8 floor[E];              // what is due up to here, in the epochs before, counts as taken
  // What owner e holds of the message.
  u8 message[E];            // Message
  u8 due[E];                // as it has decided
  u8 answered_due[E];       // as it has answered
  u8 handed_out[E];         // by this owner
  u8 in_ready_log[E];       // a round with its ready frame was begun
  u8 is_stopped[E];         // it has written `released`
  u8 has_looked[E];         // a thread is between its last look and the hand-out
  u8 was_in_ready_log[E];   // a ready frame was in the log that it read
  u8 has_stepped[E];        // its wall clock was set ahead
};

struct LeaseModel {
  using State = LeaseState;
  enum class Step : u8 {
    FIRST, TICK, CLAIM, CLAIM_KNOWN, READ, BEAT, CANCEL, MOVE, LAST_LOOK, HAND_OUT, ACK, ACK_OF_BEFORE, RELEASE,
    PUT_LANDS, LOOK, LOOK_USED, TOO_LATE, CLOCK_STEPS, SEND
  };
  using Search = ::Search<LeaseModel>;

  static std::string time_of(const State& s) { return "t=" + std::to_string(s.now) + " "; }
  static const char* text_of(Step step) {
    static const char* const TEXTS[] = {
        "", "a tick passes", "creates epoch/ (its wall clock's offset)", "knows that it has claimed",
        "reads and ends the log", "begins a round (a beat, and the ready frame of what was handed out)",
        "decides a cancel, begins its round", "decides a move to an earlier time, begins its round",
        "last look: the lease lasts", "HANDS OUT the message", "acknowledges, begins a round, with the ready frame",
        "acknowledges by a handle of an older owner, begins a round", "writes 'released'", "the oldest PUT lands",
        "look is carried out: no later epoch", "look's answer is used: so many rounds are answered",
        "decides 'delivered' of a cancel, begins its round", "its wall clock is set ahead",
        "accepts a send, begins its round"};
    return TEXTS[static_cast<int>(step)];
  }

  const char* broken_by(const State&) const { return nullptr; }  // invariants are about steps here

  void steps_from(const State& s, Search& search) const {
    if (s.now < ticks) {
      State n = s;
      n.now++;
      search.reach(n, Step::TICK, 0);
    }
    for (int e = 0; e < owners; e++) {
      claim(s, e, search);
      if (s.phase[e] == SERVES) {
        change(s, e, search);
        hand_out(s, e, search);
        acknowledge(s, e, search);
        look(s, e, search);
      }
      if (s.landed[e] < s.begun[e] && !s.end[e]) {  // behind the end, nobody would see it
        State n = s;
        n.landed[e]++;
        search.reach(n, Step::PUT_LANDS, e, n.landed[e]);
      }
      if (clock_steps && e == 0 && s.phase[e] == SERVES && !s.has_stepped[e]) {
        State n = s;
        n.offset[e] += 3;
        n.has_stepped[e] = 1;
        search.reach(n, Step::CLOCK_STEPS, e);
      }
    }
  }

 private:
  static int wall(const State& s, int e) { return s.now + s.offset[e]; }
  static int end_of(const State& s, int e) { return s.end[e] ? s.end[e] - 1 : 0; }
  static bool is_over(const State& s, int e) { return e + 1 < E && s.phase[e + 1]; }
  static bool wait_is_over(const State& s, int e) { return s.now >= s.waits_until[e]; }

  static bool lease_lasts(const State& s, int e) {
    if (!has_lease) return s.lease[e];
    return s.lease[e] && s.now < s.lease[e] - 1 + lease_ticks + drift;
  }

  // The clock of the sealed epochs before e: the highest, or without that clause the last one.
  static int sealed_clock(const State& s, int e) {
    int clock = 0;
    for (int former = 0; former < e; former++)
      for (int r = 0; r < end_of(s, former); r++)
        if (!clocks_never_back || s.clock[former][r] > clock) clock = s.clock[former][r];
    return clock;
  }

  // A round takes what was handed out into the ready log.
  static void begin_round(State& n, int e, int content) {
    const int r = n.begun[e]++;
    int clock = wall(n, e);
    if (clocks_never_back) {
      const int before = sealed_clock(n, e);
      if (before > clock) clock = before;
      if (r && n.clock[e][r - 1] > clock) clock = n.clock[e][r - 1];
    }
    if (n.handed_out[e] && !n.in_ready_log[e]) {
      content |= READY;
      n.in_ready_log[e] = 1;
    }
    n.clock[e][r] = clock;
    n.begun_at[e][r] = n.now;
    n.content[e][r] = content;
  }

  // Rounds begun after the seal are behind the end: they can be neither read nor answered, so they are left out.
  static bool may_begin_round(const State& s, int e) {
    return s.begun[e] < rounds_of[e] && !s.is_stopped[e] && !s.end[e];
  }

  static void claim(const State& s, int e, Search& search) {
    if (e > 0 && s.phase[e - 1] && !s.phase[e])
      for (int offset = 0; offset < offsets; offset++) {
        State n = s;
        n.phase[e] = CLAIMS;
        n.offset[e] = offset;
        search.reach(n, Step::CLAIM, e, offset);
      }
    if (s.phase[e] == CLAIMS) {
      State n = s;
      n.phase[e] = WAS_TOLD;
      n.waits_until[e] = s.now + lease_ticks + margin;
      search.reach(n, Step::CLAIM_KNOWN, e);
    }
    if (s.phase[e] == WAS_TOLD) {
      State n = s;
      take_over(n, e);
      search.reach(n, Step::READ, e);
    }
  }

  // Seal the epochs before at what has landed, read them, set the floor.
  static void take_over(State& n, int e) {
    u8 message = is_new ? NOT_THERE : PENDING, message_due = due;
    bool was_released = false, was_in_ready_log = false;
    for (int former = 0; former < e; former++) {
      if (!n.end[former]) n.end[former] = n.landed[former] + 1;
      for (int r = 0; r < end_of(n, former); r++) {
        const int content = n.content[former][r];
        if (content & SENT) message = PENDING;
        if (content & MOVE) message_due = moved_due;
        if (content & CANCEL) message = CANCELLED;
        if (content & READY) {
          if (message == PENDING) message = TAKEN;
          was_in_ready_log = true;
        }
        if (content & ACK) message = ACKNOWLEDGED;
        was_released = content & RELEASED;  // it counts as the last round only
      }
    }
    int floor = wall(n, e);
    if (has_floor && sealed_clock(n, e) + lease_ticks > floor) floor = sealed_clock(n, e) + lease_ticks;
    if (message == PENDING && message_due <= floor) message = TAKEN;
    n.floor[e] = floor;
    n.message[e] = message;
    n.due[e] = n.answered_due[e] = message_due;
    n.was_in_ready_log[e] = was_in_ready_log;
    if (was_released) n.waits_until[e] = 0;
    n.phase[e] = SERVES;
    if (!lease_from_answer) n.lease[e] = n.now + 1;
  }

  // Beats, sends, cancels, moves. From the claim's first round on, they need neither wait nor lease.
  static void change(const State& s, int e, Search& search) {
    if (!may_begin_round(s, e)) return;
    const bool waited = wait_is_over(s, e) || !changes_wait;
    const bool may_change = waited && (lease_lasts(s, e) || !changes_need_lease);
    const auto decide = [&](Step step, int content, auto effect) {
      State n = s;
      effect(n);
      begin_round(n, e, content);
      search.reach(n, step, e);
    };
    decide(Step::BEAT, 0, [](State&) {});
    if (is_new && s.message[e] == NOT_THERE) decide(Step::SEND, SENT, [=](State& n) { n.message[e] = PENDING; });
    if (has_cancels && may_change && s.message[e] == PENDING)
      decide(Step::CANCEL, CANCEL, [=](State& n) { n.message[e] = CANCELLED; });
    if (has_cancels && has_delivered && s.message[e] == TAKEN && waited)
      decide(Step::TOO_LATE, DELIVERED, [](State&) {});
    if (has_moves && may_change && s.message[e] == PENDING && s.due[e] == due)
      decide(Step::MOVE, MOVE, [=](State& n) { n.due[e] = moved_due; });
  }

  static bool is_due(const State& s, int e) {
    const int message_due = rests_on_answered ? s.answered_due[e] : s.due[e];
    if (message_due > wall(s, e)) return false;
    if (!bound_by_log_clock) return true;
    return s.answered[e] && message_due <= s.clock[e][s.answered[e] - 1] + lease_ticks;
  }

  // The send is answered: by this owner, or it is in what was sealed, or the message is in the ready log.
  static bool is_sent(const State& s, int e) {
    if (!rests_on_answered || !is_new || s.in_ready_log[e] || s.was_in_ready_log[e]) return true;
    for (int former = 0; former <= e; former++)
      for (int r = 0; r < (former < e ? end_of(s, former) : s.answered[e]); r++)
        if (s.content[former][r] & SENT) return true;
    return false;
  }

  static void hand_out(const State& s, int e, Search& search) {
    const bool is_there = s.message[e] == PENDING || s.message[e] == TAKEN;
    const bool may = !s.is_stopped[e] && is_there && is_sent(s, e) && is_due(s, e) && wait_is_over(s, e) && lease_lasts(s, e);
    if (may && stops_before_send && !s.has_looked[e]) {
      State n = s;
      n.has_looked[e] = 1;
      n.message[e] = TAKEN;
      search.reach(n, Step::LAST_LOOK, e);
    }
    if (stops_before_send ? s.has_looked[e] : may) {
      State n = s;
      n.message[e] = TAKEN;
      n.handed_out[e] = 1;
      n.has_looked[e] = 0;
      search.reach(n, Step::HAND_OUT, e, 0, broken_by_hand_out(n, e));
    }
  }

  static const char* broken_by_hand_out(const State& n, int e) {
    if (checks_i3 && n.is_done) return "I3: 'done' was answered, then the message is handed out";
    for (int later = e + 1; later < E; later++)
      if (checks_i2 && n.handed_out[later]) return "I2: an older owner hands out what a newer one has handed out";
    if (!n.acknowledged_at) return nullptr;
    const int at = n.acknowledged_at - 1;
    if (checks_i4 && at < e) return "I4: acknowledged at an older owner, handed out by a later one";
    if (checks_i5 && at > e) return "I5: acknowledged at a newer owner, then handed out by an older one";
    if (checks_i4 && at == e) return "I4: acknowledged, handed out again by the same owner";
    return nullptr;
  }

  // By a handle of this owner, or of an older one whose hand-out was in the log that was read. And the clean stop.
  static void acknowledge(const State& s, int e, Search& search) {
    if (!may_begin_round(s, e)) return;
    const bool may = has_acks && s.message[e] == TAKEN && !s.has_looked[e] && (wait_is_over(s, e) || !acks_wait);
    bool older_has = false;
    for (int former = 0; former < e; former++) older_has |= s.handed_out[former];
    const auto begin = [&](Step step) {
      State n = s;
      n.message[e] = ACKNOWLEDGED;
      begin_round(n, e, ACK);
      search.reach(n, step, e);
    };
    if (may && s.handed_out[e]) begin(Step::ACK);
    if (may && !s.handed_out[e] && s.was_in_ready_log[e] && older_has) begin(Step::ACK_OF_BEFORE);
    if (has_releases && (wait_is_over(s, e) || !released_waits) && !s.has_looked[e]) {
      State n = s;
      begin_round(n, e, RELEASED);
      n.is_stopped[e] = 1;
      search.reach(n, Step::RELEASE, e);
    }
  }

  // A look for the next epoch, and the answers that rest on it.
  static void look(const State& s, int e, Search& search) {
    if (s.landed[e] > s.seen[e] && !is_over(s, e)) {
      State n = s;
      n.seen[e] = s.landed[e];
      search.reach(n, Step::LOOK, e, s.landed[e]);
    }
    if (s.seen[e] <= s.answered[e]) return;
    State n = s;
    const char* broken = nullptr;
    for (int r = s.answered[e]; r < s.seen[e]; r++) {
      if (n.begun_at[e][r] + 1 > n.lease[e]) n.lease[e] = (lease_from_put ? n.begun_at[e][r] : s.now) + 1;
      const int content = n.content[e][r];
      if (content & MOVE) n.answered_due[e] = moved_due;
      if (content & CANCEL) {
        n.is_done = 1;
        for (int other = 0; other < E; other++)
          if (checks_i3 && n.handed_out[other]) broken = "I3: handed out, then 'done' is answered";
        if (checks_i6 && n.is_delivered) broken = "I6: 'delivered' was answered, then 'done'";
      }
      if (content & DELIVERED) {
        n.is_delivered = 1;
        if (checks_i6 && n.is_done) broken = "I6: 'done' was answered, then 'delivered'";
      }
      if (content & ACK) n.acknowledged_at = e + 1;
    }
    n.answered[e] = n.seen[e];
    if (is_over(s, e)) search.late_answers++;
    search.reach(n, Step::LOOK_USED, e, n.answered[e], broken);
  }
};

}  // namespace

int main(int count, char** words) {
  LeaseModel model;
  Search<LeaseModel> search(model);
  int states_max = 25'000'000;
  Arguments arguments(count, words);
  arguments.clear("without-log-clock-bound", bound_by_log_clock);
  arguments.clear("without-clocks-of-before", clocks_never_back);
  arguments.clear("without-answered-reasons", rests_on_answered);
  arguments.clear("without-wait-of-acks", acks_wait);
  arguments.clear("without-wait-of-released", released_waits);
  arguments.clear("without-floor", has_floor);
  arguments.clear("without-answered-lease", lease_from_answer);
  arguments.clear("without-lease-from-the-put", lease_from_put);
  arguments.clear("without-lease", has_lease);
  arguments.set("changes-wait", changes_wait);
  arguments.set("changes-need-lease", changes_need_lease);
  arguments.set("stops-before-send", stops_before_send);
  arguments.set("clock-steps", clock_steps);
  arguments.set("new-message", is_new);
  arguments.clear("no-moves", has_moves);
  arguments.clear("no-released", has_releases);
  arguments.clear("no-acks", has_acks);
  arguments.clear("no-cancels", has_cancels);
  arguments.clear("no-delivered", has_delivered);
  arguments.clear("unchecked-I2", checks_i2);
  arguments.clear("unchecked-I3", checks_i3);
  arguments.clear("unchecked-I4", checks_i4);
  arguments.clear("unchecked-I5", checks_i5);
  arguments.clear("unchecked-I6", checks_i6);
  arguments.number("owners", owners);
  arguments.digits("rounds", rounds_of, E);
  arguments.number("ticks", ticks);
  arguments.number("lease", lease_ticks);
  arguments.number("drift", drift);
  arguments.number("margin", margin);
  arguments.number("due", due);
  arguments.number("moved_due", moved_due);
  arguments.number("offsets", offsets);
  arguments.number("first_offset", first_offset);
  arguments.number("states_max", states_max);
  arguments.refuse_others();
  search.states_max = states_max;

  LeaseState first{};
  first.phase[0] = SERVES;  // the first owner has one answered round, begun at tick 0
  first.offset[0] = first.clock[0][0] = first_offset;
  first.due[0] = first.answered_due[0] = due;
  first.message[0] = is_new ? NOT_THERE : PENDING;
  first.begun[0] = first.landed[0] = first.seen[0] = first.answered[0] = 1;
  first.lease[0] = 1;
  return search.run("lease", arguments, first);
}
