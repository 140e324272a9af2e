#pragma once

#include <poll.h>

#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "net/endpoint.h"
#include "p2p/matcher.h"
#include "p2p/peer.h"
#include "p2p/transfer.h"

namespace giant::p2p {

/// The state of a mailbox, under one lock, and the work on it.
///
/// All reading and writing is done under the lock and never blocks; whoever holds the lock may do
/// it. A waiting thread does it for all ("driver"); the background thread does while none waits.
/// The background thread keeps out for a moment after a wait, so that it is not woken for messages
/// that the next wait would fetch itself.
class Core : public std::enable_shared_from_this<Core> {
 public:
  Core(std::unique_ptr<Endpoint> endpoint, int rank, int size, std::string group);
  ~Core();

  TransferPtr start(const Transfer::Request& request);
  void wait(Transfer& transfer, Deadline deadline);
  /// False where the transfer is done already: the caller calls it then.
  bool add_callback(Transfer& transfer, std::function<void(std::exception_ptr)>& function);
  void abort(const std::string& why);
  void close(milliseconds grace);

 private:
  using Lock = std::unique_lock<std::mutex>;

  /// A thread in drive_until().
  struct Waiter {
    const Transfer* transfer = nullptr;  // null: waits for something else
    std::condition_variable turn;
  };

  /// Who may sleep in poll(): each has a bell of its own, so that none takes another's ring.
  enum Sleeper { kDriver, kBackground, kSleepers };
  struct Bell {
    Fd event;
    bool asleep = false;
    Clock::time_point until;
  };

  /// What poll() is asked, and whom each answer concerns.
  struct PollSet {
    enum class What { bell, endpoint, in, out };
    struct Slot {
      What what;
      int index;
    };
    std::vector<pollfd> fds;
    std::vector<Slot> slots;

    void clear();
    void add(int fd, short events, What what, int index);
  };

  class InHandler;
  class OutHandler;

  // core.cpp: messages
  void check(const Transfer::Request& request) const;
  void post_send(const TransferPtr& send);
  void post_send_to_self(const TransferPtr& send);
  void post_receive(const TransferPtr& receive);
  void deliver(Arrival& arrival, const TransferPtr& receive);
  void take_back(const TransferPtr& receive);
  void enlist(const TransferPtr& transfer);
  void complete(const TransferPtr& transfer);
  void fail(const TransferPtr& transfer, Failure why);
  void finish(const TransferPtr& transfer, Failure why);
  void expire();
  void detach(const TransferPtr& transfer);
  void detach_send(const TransferPtr& send);
  void detach_receive(const TransferPtr& receive);
  Failure mismatch(size_t sent, int from, size_t wanted, int to, uint64_t tag) const;
  Failure peer_failure(const Transfer& transfer, const Failure& why) const;
  Failure end_of_sources(int peer) const;
  std::string in_group() const;
  void run_callbacks(Lock& lock);

  // streams.cpp: what comes and goes
  void accept();
  bool read_in(int peer);
  bool read_out(int peer);
  void flush_in(int peer);
  void flush_out(int peer);
  void feed_chunk(Outgoing& out);
  void chunk_has_gone(Outgoing& out);
  void answer(int peer, const Frame& frame);
  void give_credit(int peer, size_t bytes);
  void close_in(int peer);
  void end_in(int peer, End end, const std::string& text);
  void lose(int peer, const std::string& text);
  void break_out(int peer);
  void end_out(int peer, End end, const std::string& text);
  void no_more_from(int peer, End end, const std::string& text);

  // progress.cpp: who does it, and when
  void start_background();
  void run_background();
  void rest(Lock& lock);
  bool drive_until(Lock& lock, Waiter& me, const std::function<bool()>& over, Deadline deadline);
  std::list<Waiter*>::iterator enter(Waiter& me);
  void hand_over(const Waiter& me);
  void leave(const Waiter& me, std::list<Waiter*>::iterator place);
  bool look(const Waiter& me, unsigned round);
  bool touch(const Transfer& transfer, bool* touched);
  bool sweep();
  void sleep(Lock& lock, Sleeper who, Clock::time_point until);
  void fill(PollSet& set, int bell) const;
  bool handle(const PollSet& set);
  void ring(Sleeper who);
  void ring_all();

  // lifecycle.cpp: how streams and mailboxes begin and end
  void start_connecting(int peer);
  void connect(int peer);
  void adopt(int peer, Fd stream);
  bool flushed() const;
  bool quiet() const;
  void say_goodbye();
  void end_all(const Failure& why);
  void join_all();

  const int rank_;
  const std::string group_;
  std::unique_ptr<Endpoint> endpoint_;
  std::mutex closing_mutex_;

  std::mutex mutex_;  // guards all below
  std::vector<Peer> peers_;
  Matcher matcher_;
  std::map<std::pair<Clock::time_point, const Transfer*>, TransferPtr> live_;  // by deadline
  std::vector<std::function<void()>> callbacks_;  // due, to be called without the lock
  Failure ended_;  // what new messages fail with
  bool stop_ = false;

  Bell bells_[kSleepers];
  PollSet look_set_;
  std::list<Waiter*> waiters_;
  const Waiter* driver_ = nullptr;
  Clock::time_point left_at_{};
  bool resting_deep_ = false;
  std::condition_variable background_turn_;
  std::thread background_;
};

}  // namespace giant::p2p
