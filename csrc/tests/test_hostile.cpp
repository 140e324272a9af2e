// What strangers can do to a rank: nothing that keeps a real peer from getting through.

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "net/address.h"
#include "net/connector.h"
#include "net/handshake.h"
#include "net/listener.h"
#include "net/named_endpoint.h"
#include "net/socket.h"
#include "store.h"

using namespace giant;
using giant::testing::MapStore;

namespace {

constexpr int kSize = 2;
constexpr milliseconds kSoon{1500};  // for a real peer to get through

Deadline soon(int ms = 10000) { return Deadline::after(milliseconds(ms)); }

int count_fds() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<int>(std::distance(begin(all), end(all))) - 1;  // its own
}

Address loopback() { return own_address("", "127.0.0.1"); }

Secret some_secret() { return sha256(std::vector<uint8_t>{1, 2, 3}); }

std::vector<uint8_t> to_bytes(std::span<const uint8_t> span) { return {span.begin(), span.end()}; }

/// A blocking connection that has proven nothing; none where the system refuses.
Fd dial(const Address& address) {
  Fd stream(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval patience{5, 0};
  setsockopt(stream.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  if (connect(stream.get(), address.get(), address.length) != 0) stream.reset();
  return stream;
}

void say(const Fd& stream, std::span<const uint8_t> bytes) {
  // It may be hung up on meanwhile.
  [[maybe_unused]] const auto sent = send(stream.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

std::vector<uint8_t> hear(const Fd& stream, size_t bytes) {
  std::vector<uint8_t> found(bytes);
  const ssize_t got = recv(stream.get(), found.data(), bytes, MSG_WAITALL);
  found.resize(got < 0 ? 0 : got);
  return found;
}

/// Ends, however much else comes before; false where it stays open for 5 s.
bool is_hung_up(const Fd& stream) {
  std::vector<uint8_t> space(256);
  while (true) {
    const ssize_t got = recv(stream.get(), space.data(), space.size(), 0);
    if (got == 0 || (got < 0 && errno == ECONNRESET)) return true;
    if (got < 0) return false;
  }
}

/// Ranks 0 and 1, of one host or two, as threads. Rank 1 accepts all the time.
class Victim {
 public:
  explicit Victim(bool same_host) : same_host_(same_host) {
    std::thread other([&] { one_ = open(1, same_host ? "a" : "b"); });
    zero_ = open(0, "a");
    other.join();
    server_ = std::thread([this] { serve(); });
  }

  ~Victim() {
    stop_ = true;
    server_.join();
  }

  Address address() {
    if (!same_host_) return parse_address(text("giant/address/1"));
    const std::string member = text("giant/rank/1");
    return unix_address(member.substr(member.rfind('\n') + 1));
  }

  Secret secret() {
    const Bytes found = store_.get("giant/secret", soon());
    Secret secret;
    std::copy(found.begin(), found.end(), secret.begin());
    return secret;
  }

  /// Rank 0 connects to rank 1, soon, and nobody else has.
  void check_open() {
    const auto start = Clock::now();
    const Fd stream = zero_->connect(1, Purpose::rail, soon());
    const Accepted accepted = next();
    CHECK(Clock::now() - start < kSoon);
    CHECK_EQ(accepted.peer, 0);
    CHECK(accepted.purpose == Purpose::rail);
    const std::vector<uint8_t> sent = {42};
    say(stream, sent);
    CHECK(wait_for(accepted.stream.get(), POLLIN, soon()));
    CHECK(hear(accepted.stream, 1) == sent);
    const std::lock_guard lock(mutex_);
    CHECK(accepted_.empty());
  }

  Accepted next() {
    std::unique_lock lock(mutex_);
    if (!came_.wait_for(lock, std::chrono::seconds(5), [&] { return !accepted_.empty(); }))
      throw TimeoutError("nobody got through");
    Accepted first = std::move(accepted_.front());
    accepted_.erase(accepted_.begin());
    return first;
  }

 private:
  std::unique_ptr<Endpoint> open(int rank, const std::string& identity) {
    return open_endpoint_on({identity, loopback}, store_, {rank, kSize, milliseconds(10000)});
  }

  std::string text(const std::string& key) {
    const Bytes found = store_.get(key, soon());
    return {found.begin(), found.end()};
  }

  void serve() {
    while (!stop_) {
      wait_for(one_->pollable().front(), POLLIN, soon(20));
      for (Accepted& each : one_->accept()) {
        const std::lock_guard lock(mutex_);
        accepted_.push_back(std::move(each));
        came_.notify_all();
      }
    }
  }

  const bool same_host_;
  MapStore store_;
  std::unique_ptr<Endpoint> zero_, one_;
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<Accepted> accepted_;
  std::atomic<bool> stop_{false};
  std::thread server_;
};

/// The attack on both kinds of sockets: a real peer gets through during it, and nothing is left.
void attack(const std::function<void(Victim&)>& body) {
  for (const bool same_host : {true, false}) {
    const int before = count_fds();
    {
      Victim victim(same_host);
      victim.check_open();
      body(victim);
      victim.check_open();
    }
    CHECK_EQ(count_fds(), before);
  }
}

std::vector<uint8_t> hello_bytes(const Hello& hello) {
  const auto* const start = reinterpret_cast<const uint8_t*>(&hello);
  return {start, start + sizeof hello};
}

Hello good_hello() {
  Hello hello;
  hello.from = 0;
  hello.to = 1;
  hello.purpose = static_cast<uint32_t>(Purpose::mail);
  hello.nonce.fill(7);
  return hello;
}

/// Moves what `from` has to say to `to`; those bytes.
std::vector<uint8_t> pass(Handshake& from, Handshake& to) {
  const std::vector<uint8_t> bytes = to_bytes(from.unsent());
  from.mark_sent(bytes.size());
  to.take(bytes);
  return bytes;
}

bool is_readable(const Listener& listener, int ms) {
  return wait_for(listener.pollable(), POLLIN, soon(ms));
}

struct Listening {
  explicit Listening(milliseconds patience = Listener::kPatience)
      : listener(some_secret(), 1, kSize, patience) {
    Fd socket = listen_on(loopback());
    address = address_of(socket);
    listener.add(std::move(socket), true);
  }

  std::vector<Accepted> accept() {
    std::vector<Accepted> found;
    listener.accept(found);
    return found;
  }

  /// Until `done`, for 5 s; what came.
  std::vector<Accepted> accept_until(const std::function<bool()>& done) {
    std::vector<Accepted> found;
    for (const Deadline until = soon(5000); !done() && !until.expired();) {
      is_readable(listener, 20);
      listener.accept(found);
    }
    return found;
  }

  Listener listener;
  Address address;
};

/// Connects to a listener that is none of ours.
void connect_to_impostor(const std::function<void(Fd)>& impostor, int ms) {
  const Fd socket = listen_on(loopback());
  std::atomic<bool> stop{false};
  std::thread thread([&] {
    while (!stop) {
      if (!wait_for(socket.get(), POLLIN, soon(20))) continue;
      Fd stream(accept(socket.get(), nullptr, nullptr));
      if (stream) impostor(std::move(stream));
    }
  });
  const Target target{1, address_of(socket), "rank 1 at there"};
  std::exception_ptr thrown;
  try {
    connect_to(target, some_secret(), 0, Purpose::mail, soon(ms));
  } catch (...) {
    thrown = std::current_exception();
  }
  stop = true;
  thread.join();
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace

TEST(says_nothing) {
  attack([](Victim& victim) {
    const Fd stream = dial(victim.address());
    victim.check_open();
  });
}

TEST(says_garbage) {
  attack([](Victim& victim) {
    std::mt19937 random(1);
    for (const size_t length : {1, 4, 55, 56, 57, 1000, 100000}) {
      const Fd stream = dial(victim.address());
      std::vector<uint8_t> garbage(length);
      for (uint8_t& byte : garbage) byte = static_cast<uint8_t>(random());
      say(stream, garbage);
      if (length >= sizeof(Hello)) CHECK(is_hung_up(stream));
      victim.check_open();
    }
  });
}

TEST(says_half_a_hello_and_no_more) {
  attack([](Victim& victim) {
    const std::vector<uint8_t> hello = hello_bytes(good_hello());
    std::vector<Fd> streams;
    for (size_t length = 0; length < hello.size(); ++length) {
      streams.push_back(dial(victim.address()));
      say(streams.back(), std::span(hello).first(length));
    }
    victim.check_open();
  });
}

TEST(names_absurd_numbers) {
  attack([](Victim& victim) {
    std::vector<std::vector<uint8_t>> all;
    const auto add = [&](const std::function<void(Hello&)>& change) {
      Hello hello = good_hello();
      change(hello);
      all.push_back(hello_bytes(hello));
    };
    for (const int rank : {-1, 1, 2, 1 << 30, INT32_MAX, INT32_MIN}) {
      add([&](Hello& hello) { hello.from = rank; });
      if (rank != 1) add([&](Hello& hello) { hello.to = rank; });
    }
    for (const uint32_t purpose : {0u, 4u, 255u, 257u, UINT32_MAX})
      add([&](Hello& hello) { hello.purpose = purpose; });
    add([](Hello& hello) { hello.version = 2; });
    add([](Hello& hello) { hello.magic = 0; });
    add([](Hello& hello) { hello.reserved = 1; });
    // A length of 2^60 where another protocol has one.
    const uint64_t huge = uint64_t{1} << 60;
    for (size_t at = 0; at + sizeof huge <= sizeof(Hello) - sizeof(Nonce); at += sizeof huge)
      add([&](Hello& hello) {
        std::memcpy(reinterpret_cast<uint8_t*>(&hello) + at, &huge, sizeof huge);
      });
    for (const auto& each : all) {
      const Fd stream = dial(victim.address());
      say(stream, each);
      CHECK(hear(stream, 1).empty());
    }
    victim.check_open();
  });
}

TEST(has_another_secret) {
  attack([](Victim& victim) {
    const Fd stream = dial(victim.address());
    const Hello hello = good_hello();
    say(stream, hello_bytes(hello));
    const std::vector<uint8_t> heard = hear(stream, sizeof(Answer));
    CHECK_EQ(heard.size(), sizeof(Answer));
    std::vector<uint8_t> text = {'c', 'o', 'n', 'n', 'e', 'c', 't', 's'};
    for (const uint8_t byte : hello_bytes(hello)) text.push_back(byte);
    text.insert(text.end(), heard.begin(), heard.begin() + sizeof(Nonce));
    // The recipe is right, as the right secret shows.
    const Fd honest = dial(victim.address());
    say(stream, hmac_sha256(some_secret(), text));
    CHECK(is_hung_up(stream));
    victim.check_open();
    say(honest, hello_bytes(hello));
    const std::vector<uint8_t> answer = hear(honest, sizeof(Answer));
    std::copy_n(answer.begin(), sizeof(Nonce), text.end() - sizeof(Nonce));
    say(honest, hmac_sha256(victim.secret(), text));
    CHECK_EQ(hear(honest, 1).size(), 1u);
    CHECK_EQ(victim.next().peer, 0);
  });
}

TEST(sends_the_victims_own_proof_back) {
  attack([](Victim& victim) {
    const Fd stream = dial(victim.address());
    say(stream, hello_bytes(good_hello()));
    const std::vector<uint8_t> answer = hear(stream, sizeof(Answer));
    CHECK_EQ(answer.size(), sizeof(Answer));
    say(stream, std::span(answer).last(sizeof(Digest)));
    CHECK(is_hung_up(stream));
    victim.check_open();
  });
}

TEST(replays_a_handshake) {
  attack([](Victim& victim) {
    Handshake real = Handshake::connecting(victim.secret(), 0, 1, Purpose::mail);
    const Fd stream = dial(victim.address());
    const std::vector<uint8_t> hello = to_bytes(real.unsent());
    say(stream, hello);
    real.mark_sent(hello.size());
    real.take(hear(stream, real.wanted()));
    const std::vector<uint8_t> proof = to_bytes(real.unsent());
    say(stream, proof);
    real.mark_sent(proof.size());
    real.take(hear(stream, real.wanted()));
    CHECK(real.state() == Handshake::State::proven);
    CHECK_EQ(victim.next().peer, 0);

    const Fd again = dial(victim.address());
    say(again, hello);
    CHECK_EQ(hear(again, sizeof(Answer)).size(), sizeof(Answer));
    say(again, proof);
    CHECK(is_hung_up(again));
    victim.check_open();
  });
}

TEST(five_hundred_say_nothing) {
  attack([](Victim& victim) {
    std::vector<Fd> streams;
    for (int i = 0; i < 500; ++i) streams.push_back(dial(victim.address()));
    victim.check_open();
    // Few of them are kept.
    size_t open = 0;
    for (const Fd& each : streams) {
      char byte;
      const ssize_t got = recv(each.get(), &byte, 1, MSG_DONTWAIT);
      open += got < 0 && errno == EAGAIN;
    }
    CHECK(open <= Listener::kMostStrangers + kSize);
  });
}

TEST(a_flood_goes_on_while_a_peer_connects) {
  attack([](Victim& victim) {
    std::atomic<int> made{0};
    const std::jthread flood([&, address = victim.address()](const std::stop_token& stop) {
      std::vector<Fd> streams;
      while (!stop.stop_requested()) {
        streams.push_back(dial(address));
        say(streams.back(), hello_bytes(good_hello()));  // as like a peer as it can be
        if (streams.size() >= 300) streams.clear();
        ++made;
      }
    });
    while (made < 200) std::this_thread::yield();
    for (int i = 0; i < 5; ++i) victim.check_open();
  });
}

TEST(another_user_of_this_host) {
  if (geteuid() != 0) return;  // only root can be another user
  const auto as_another = [](const std::function<void()>& body) {
    std::thread([&] {
      // The system call is of this thread alone, unlike the function of that name.
      CHECK_EQ(syscall(SYS_setresuid, -1, 65534, -1), 0);
      body();
    }).join();
  };
  Victim victim(true);
  as_another([&] {
    const Fd stream = dial(victim.address());
    say(stream, hello_bytes(good_hello()));
    CHECK(is_hung_up(stream));
    Handshake knows = Handshake::connecting(victim.secret(), 0, 1, Purpose::mail);
    const Fd second = dial(victim.address());
    say(second, knows.unsent());
    CHECK(hear(second, 1).empty());
  });
  victim.check_open();
  Fd theirs;
  as_another([&] { theirs = listen_on(unix_address("giant-test-of-another-user")); });
  const Target target{1, unix_address("giant-test-of-another-user"), "rank 1 of this host"};
  CHECK_THROWS(PeerError, "belongs to another user",
               connect_to(target, some_secret(), 0, Purpose::mail, soon(500)));
}

TEST(a_peer_that_speaks_slowly_and_goes_on_speaking_is_let_through) {
  Listening there;
  std::vector<Accepted> accepted;
  std::thread peer([&] {
    Handshake real = Handshake::connecting(some_secret(), 0, 1, Purpose::handover);
    const Fd stream = dial(there.address);
    for (const uint8_t byte : to_bytes(real.unsent())) {
      say(stream, std::vector<uint8_t>{byte});
      std::this_thread::sleep_for(milliseconds(1));
    }
    real.mark_sent(sizeof(Hello));
    real.take(hear(stream, real.wanted()));
    std::vector<uint8_t> end = to_bytes(real.unsent());
    end.insert(end.end(), {'x', 'y', 'z'});
    say(stream, end);
    CHECK_EQ(hear(stream, 1).size(), 1u);
  });
  std::vector<Accepted> found;
  for (const Deadline until = soon(); found.empty() && !until.expired();) {
    is_readable(there.listener, 20);
    there.listener.accept(found);
  }
  peer.join();
  CHECK_EQ(found.size(), 1u);
  if (found.size() != 1) return;
  CHECK(found[0].purpose == Purpose::handover);
  CHECK(hear(found[0].stream, 3) == std::vector<uint8_t>({'x', 'y', 'z'}));  // not the listener's
}

TEST(who_is_late_is_dropped_though_nobody_else_comes) {
  const int before = count_fds();
  {
    Listening there(milliseconds(150));
    const Fd silent = dial(there.address);
    there.accept_until([&] { return there.listener.num_strangers() == 1; });
    CHECK_EQ(there.listener.num_strangers(), 1u);
    CHECK(!is_readable(there.listener, 30));  // not a reason to ask all the time
    CHECK(is_readable(there.listener, 5000));
    there.accept();
    CHECK_EQ(there.listener.num_strangers(), 0u);
    CHECK(is_hung_up(silent));
    CHECK(!is_readable(there.listener, 30));
  }
  CHECK_EQ(count_fds(), before);
}

TEST(who_was_in_time_while_nobody_asked_is_let_through) {
  Listening there(milliseconds(50));
  Handshake real = Handshake::connecting(some_secret(), 0, 1, Purpose::mail);
  const Fd stream = dial(there.address);
  say(stream, real.unsent());
  real.mark_sent(sizeof(Hello));
  std::vector<uint8_t> answer;
  std::thread peer([&] { answer = hear(stream, sizeof(Answer)); });
  // Until the answer is there; then nobody asks for longer than the patience.
  std::this_thread::sleep_for(milliseconds(20));
  CHECK(there.accept().empty());
  peer.join();
  real.take(answer);
  say(stream, real.unsent());
  std::this_thread::sleep_for(milliseconds(100));
  CHECK_EQ(there.accept().size(), 1u);
}

TEST(so_many_in_time_while_nobody_asked_are_all_let_through) {
  Listening there(milliseconds(500));
  const size_t count = Listener::kMostStrangers + kSize;  // more than are looked at in one call
  std::vector<Fd> streams;
  std::vector<Handshake> handshakes;
  for (size_t i = 0; i < count; ++i) {
    streams.push_back(dial(there.address));
    handshakes.push_back(Handshake::connecting(some_secret(), 0, 1, Purpose::mail));
    say(streams[i], handshakes[i].unsent());
    handshakes[i].mark_sent(sizeof(Hello));
  }
  const auto all_answered = [&] {
    return std::ranges::all_of(streams, [](const Fd& each) {
      std::vector<uint8_t> space(sizeof(Answer));
      return recv(each.get(), space.data(), space.size(), MSG_PEEK | MSG_DONTWAIT) ==
             static_cast<ssize_t>(space.size());
    });
  };
  CHECK(there.accept_until(all_answered).empty());
  for (size_t i = 0; i < count; ++i) {
    handshakes[i].take(hear(streams[i], sizeof(Answer)));
    say(streams[i], handshakes[i].unsent());
  }
  std::this_thread::sleep_for(milliseconds(600));
  CHECK_EQ(there.accept().size(), count);
}

TEST(who_has_proven_itself_is_not_pushed_out_by_who_came_at_the_same_time) {
  Listening there;
  const size_t most = Listener::kMostStrangers + kSize;
  Handshake real = Handshake::connecting(some_secret(), 0, 1, Purpose::mail);
  const Fd stream = dial(there.address);
  say(stream, real.unsent());
  real.mark_sent(sizeof(Hello));
  there.accept_until([&] { return there.listener.num_strangers() == 1; });
  std::vector<Fd> silent;
  while (silent.size() < most - 1) silent.push_back(dial(there.address));
  there.accept_until([&] { return there.listener.num_strangers() == most; });
  real.take(hear(stream, sizeof(Answer)));
  silent.push_back(dial(there.address));  // it is reported first
  say(stream, real.unsent());
  std::this_thread::sleep_for(milliseconds(50));
  CHECK_EQ(there.accept().size(), 1u);
}

TEST(the_number_of_strangers_is_bounded) {
  Listening there;
  std::vector<Fd> streams;
  const size_t most = Listener::kMostStrangers + kSize;
  for (int i = 0; i < 300; ++i) {
    streams.push_back(dial(there.address));
    there.accept();
    CHECK(there.listener.num_strangers() <= most);
  }
  there.accept_until([&] { return there.listener.num_strangers() == most; });
  CHECK_EQ(there.listener.num_strangers(), most);
  CHECK(!is_readable(there.listener, 50));
  // The oldest went: the last ones are still there.
  CHECK(is_hung_up(streams.front()));
  char byte;
  CHECK(recv(streams.back().get(), &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
  streams.clear();
  there.accept_until([&] { return there.listener.num_strangers() == 0; });
  CHECK_EQ(there.listener.num_strangers(), 0u);
}

/// For its lifetime this process can open no more descriptors.
struct Starvation {
  Starvation() {
    getrlimit(RLIMIT_NOFILE, &limit);
    const int lowest_free = Fd(dup(0)).get();
    const rlimit tight{static_cast<rlim_t>(lowest_free), limit.rlim_max};
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  }
  ~Starvation() { CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0); }
  rlimit limit{};
};

TEST(without_descriptors_it_pauses_and_recovers) {
  Listening there(milliseconds(5000));
  const Fd stream = dial(there.address);
  {
    const Starvation starvation;
    CHECK(is_readable(there.listener, 1000));
    CHECK(there.accept().empty());
    CHECK(!is_readable(there.listener, 50));  // else it would keep a processor busy
    CHECK(is_readable(there.listener, 1000));
    CHECK(there.accept().empty());
  }
  there.accept_until([&] { return there.listener.num_strangers() == 1; });
  CHECK_EQ(there.listener.num_strangers(), 1u);
}

TEST(without_descriptors_for_long_it_says_so) {
  Listening there(milliseconds(150));
  const Fd stream = dial(there.address);
  const Starvation starvation;
  CHECK_THROWS(PeerError, "cannot accept connections: Too many open files",
               there.accept_until([] { return false; }));
}

TEST(an_impostor_that_listens) {
  const int before = count_fds();
  std::mt19937 random(2);
  std::vector<Fd> kept;
  CHECK_THROWS(TimeoutError, "rank 1 at there did not answer",
               connect_to_impostor([&](Fd stream) { kept.push_back(std::move(stream)); }, 150));
  CHECK_THROWS(TimeoutError, "rank 1 at there hung up", connect_to_impostor([](Fd) {}, 150));
  CHECK_THROWS(PeerError, "does not know the group's secret", connect_to_impostor([&](Fd stream) {
                 std::vector<uint8_t> garbage(1000);
                 for (uint8_t& byte : garbage) byte = static_cast<uint8_t>(random());
                 say(stream, garbage);
                 kept.push_back(std::move(stream));
               }, 5000));
  CHECK_THROWS(PeerError, "does not know the group's secret", connect_to_impostor([&](Fd stream) {
                 std::vector<uint8_t> heard = hear(stream, sizeof(Hello));
                 heard.resize(sizeof(Answer));
                 say(stream, heard);
                 kept.push_back(std::move(stream));
               }, 5000));
  CHECK_THROWS(PeerError, "does not know the group's secret", connect_to_impostor([&](Fd stream) {
                 Handshake wrong = Handshake::accepting(sha256({}), 1, kSize);
                 wrong.take(hear(stream, sizeof(Hello)));
                 say(stream, wrong.unsent());
                 kept.push_back(std::move(stream));
               }, 5000));
  kept.clear();
  CHECK_EQ(count_fds(), before);
}

TEST(a_peer_that_hangs_up_as_on_one_of_too_many_is_asked_again) {
  Fd socket = listen_on(loopback());
  const Target target{1, address_of(socket), "rank 1"};
  std::thread peer([&] {
    for (int i = 0; i < 3; ++i) {
      wait_for(socket.get(), POLLIN, soon());
      Fd(accept(socket.get(), nullptr, nullptr)).reset();
    }
    Listener listener(some_secret(), 1, kSize);
    listener.add(std::move(socket), true);
    std::vector<Accepted> found;
    for (const Deadline until = soon(); found.empty() && !until.expired();) {
      wait_for(listener.pollable(), POLLIN, soon(20));
      listener.accept(found);
    }
    CHECK_EQ(found.size(), 1u);
  });
  CHECK(connect_to(target, some_secret(), 0, Purpose::mail, soon()).get() >= 0);
  peer.join();
}

TEST(handshake_by_itself) {
  Handshake left = Handshake::connecting(some_secret(), 0, 1, Purpose::rail);
  Handshake right = Handshake::accepting(some_secret(), 1, kSize);
  CHECK_EQ(right.wanted(), sizeof(Hello));
  CHECK(right.unsent().empty());
  CHECK_THROWS(UsageError, "more than it wanted", right.take(std::vector<uint8_t>(57)));
  pass(left, right);
  CHECK(right.state() == Handshake::State::open);
  pass(right, left);
  CHECK(left.state() == Handshake::State::open);
  CHECK_THROWS(UsageError, "less to send", left.mark_sent(33));
  pass(left, right);
  CHECK(right.state() == Handshake::State::proven);
  CHECK_EQ(right.peer(), 0);
  CHECK(right.purpose() == Purpose::rail);
  CHECK(left.state() == Handshake::State::open);
  pass(right, left);
  CHECK(left.state() == Handshake::State::proven);
  CHECK_EQ(left.peer(), 1);
  CHECK_EQ(left.wanted() + right.wanted(), 0u);
}

/// Gives `bytes` to `to` in pieces of random length, as long as it takes them.
void feed(Handshake& to, std::span<const uint8_t> bytes, std::mt19937& random) {
  while (!bytes.empty() && to.wanted() > 0) {
    const size_t piece = std::min({bytes.size(), to.wanted(), size_t{1} + random() % 64});
    to.take(bytes.first(piece));
    bytes = bytes.subspan(piece);
    CHECK(to.wanted() <= Handshake::kLongestMessage);
    CHECK(to.unsent().size() <= Handshake::kLongestMessage);
  }
}

/// One to four bytes are not what they were.
std::vector<uint8_t> mutated(std::span<const uint8_t> bytes, std::mt19937& random) {
  std::vector<uint8_t> changed = to_bytes(bytes);
  do {
    const size_t count = 1 + random() % 4;
    for (size_t i = 0; i < count; ++i)
      changed[random() % changed.size()] ^= static_cast<uint8_t>(1 + random() % 255);
  } while (std::ranges::equal(changed, bytes));
  return changed;
}

TEST(fuzzed_handshakes_never_succeed) {
  std::mt19937 random(3);
  int answered = 0, proven = 0;
  for (int i = 0; i < 20000; ++i) {
    Handshake left = Handshake::connecting(some_secret(), 0, 1, Purpose::mail);
    Handshake right = Handshake::accepting(some_secret(), 1, kSize);
    const int where = i % 4;  // which message is changed; of the last, none
    const auto give = [&](int message, Handshake& from, Handshake& to) {
      const std::vector<uint8_t> bytes = to_bytes(from.unsent());
      if (bytes.empty()) return;
      from.mark_sent(bytes.size());
      feed(to, message == where ? mutated(bytes, random) : bytes, random);
    };
    give(0, left, right);
    answered += where == 0 && !right.unsent().empty();
    give(1, right, left);
    give(2, left, right);
    give(-1, right, left);
    const bool both = left.state() == Handshake::State::proven &&
                      right.state() == Handshake::State::proven;
    CHECK_EQ(both, where == 3);
    if (where != 3) CHECK(right.state() != Handshake::State::proven);
    if (where != 3) CHECK(left.state() != Handshake::State::proven);
    proven += both;
  }
  CHECK_EQ(proven, 5000);
  CHECK(answered > 0);  // a changed number of the hello is no reason not to ask for the proof
}

TEST(random_bytes_never_succeed) {
  std::mt19937 random(4);
  for (int i = 0; i < 20000; ++i) {
    Handshake side = i % 2 == 0 ? Handshake::accepting(some_secret(), 1, kSize)
                                : Handshake::connecting(some_secret(), 0, 1, Purpose::mail);
    std::vector<uint8_t> bytes(random() % 200);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    // Half of them begin as they should.
    const std::vector<uint8_t> good = hello_bytes(good_hello());
    if (i % 4 == 0)
      std::copy_n(good.begin(), std::min(good.size(), bytes.size()), bytes.begin());
    feed(side, bytes, random);
    CHECK(side.state() != Handshake::State::proven);
  }
}
