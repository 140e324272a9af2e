#include <dirent.h>
#include <sys/socket.h>

#include <atomic>
#include <cstring>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "check.h"
#include "fake_endpoint.h"
#include "p2p/frame.h"
#include "p2p/mailbox.h"

using namespace giant;
using namespace std::chrono_literals;

namespace {

constexpr milliseconds kPatience = 20s;
constexpr size_t kEager = Mailbox::kEagerBytes;
constexpr size_t kLarge = 5'000'001;

Deadline soon() { return Deadline::after(kPatience); }

using Buffer = std::vector<char>;

/// Bytes that tell one message from another.
Buffer filled(size_t bytes, uint32_t seed) {
  Buffer buffer(bytes);
  uint32_t state = seed * 2654435761u + 1;
  for (char& byte : buffer) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<char>(state >> 24);
  }
  return buffer;
}

milliseconds since(Clock::time_point start) {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - start);
}

struct Ranks {
  explicit Ranks(int size, bool apart = false) : network(hosts(size, apart)) {
    for (int rank = 0; rank < size; ++rank)
      boxes.push_back(open_mailbox(network.endpoint(rank), rank, size, "tp"));
  }

  // A wake-up that is missed shows as a wait until some timeout, after which all is well.
  ~Ranks() { CHECK(since(born) < 10s); }

  static std::vector<std::string> hosts(int size, bool apart) {
    std::vector<std::string> names;
    for (int rank = 0; rank < size; ++rank) names.push_back("host" + std::to_string(apart * rank));
    return names;
  }

  Mailbox& operator[](int rank) { return *boxes[rank]; }

  /// Runs `body` as every rank at once.
  void run(const std::function<void(int, Mailbox&)>& body) {
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < boxes.size(); ++rank)
      threads.emplace_back([&, rank] {
        try {
          body(static_cast<int>(rank), *boxes[rank]);
        } catch (const std::exception& error) {
          check::fail(__FILE__, __LINE__, "rank " + std::to_string(rank) + ": " + error.what());
        }
      });
    for (auto& thread : threads) thread.join();
  }

  void close() {
    run([](int, Mailbox& box) { box.close(5s); });
  }

  Clock::time_point born = Clock::now();
  FakeNetwork network;
  std::vector<std::unique_ptr<Mailbox>> boxes;
};

auto send(Mailbox& box, const Buffer& data, int peer, uint64_t tag, milliseconds timeout = 20s) {
  return box.send(data.data(), data.size(), peer, tag, timeout);
}

auto receive(Mailbox& box, Buffer& data, int peer, uint64_t tag, milliseconds timeout = 20s) {
  return box.receive(data.data(), data.size(), peer, tag, timeout);
}

size_t entries(const char* path) {
  DIR* const directory = ::opendir(path);
  size_t count = 0;
  while (::readdir(directory)) ++count;
  ::closedir(directory);
  return count;
}

void raw_write(const Fd& stream, const void* data, size_t bytes) {
  CHECK_EQ(::send(stream.get(), data, bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
}

void all_pairs(int size, bool apart) {
  Ranks ranks(size, apart);
  ranks.run([&](int rank, Mailbox& box) {
    const size_t sizes[] = {0, 1, 1000, kEager, kEager + 1, 300'000};
    std::vector<std::shared_ptr<Message>> messages;
    std::vector<Buffer> sent, received, wanted;
    for (int peer = 0; peer < size; ++peer)
      for (size_t i = 0; i < std::size(sizes); ++i) {
        sent.push_back(filled(sizes[i], rank * 100 + peer * 10 + i));
        wanted.push_back(filled(sizes[i], peer * 100 + rank * 10 + i));
        received.emplace_back(sizes[i]);
      }
    for (size_t i = 0; i < sent.size(); ++i) {
      const int peer = static_cast<int>(i / std::size(sizes));
      const uint64_t tag = i % std::size(sizes);
      if (rank % 2) messages.push_back(receive(box, received[i], peer, tag));
      messages.push_back(send(box, sent[i], peer, tag));
      if (rank % 2 == 0) messages.push_back(receive(box, received[i], peer, tag));
    }
    for (auto& message : messages) message->wait(soon());
    for (size_t i = 0; i < sent.size(); ++i) CHECK(received[i] == wanted[i]);
  });
  ranks.close();
}

}  // namespace

// Within a host and between hosts.
#define TEST_BOTH(name)                             \
  static void body_##name(bool apart);              \
  TEST(name) { body_##name(false); }                \
  TEST(name##_between_hosts) { body_##name(true); } \
  static void body_##name(bool apart)

TEST_BOTH(all_pairs_of_two_ranks) { all_pairs(2, apart); }
TEST_BOTH(all_pairs_of_three_ranks) { all_pairs(3, apart); }
TEST_BOTH(all_pairs_of_eight_ranks) { all_pairs(8, apart); }

TEST_BOTH(large_messages_posted_before_and_after) {
  Ranks ranks(2, apart);
  ranks.run([](int rank, Mailbox& box) {
    const Buffer data = filled(kLarge, 5);
    for (const bool receiver_first : {true, false}) {
      Buffer got(kLarge);
      if ((rank == 1) != receiver_first) std::this_thread::sleep_for(20ms);
      if (rank == 0) send(box, data, 1, 9)->wait(soon());
      if (rank == 1) receive(box, got, 0, 9)->wait(soon());
      if (rank == 1) CHECK(got == data);
    }
  });
  ranks.close();
}

TEST_BOTH(large_messages_both_ways_at_once) {
  Ranks ranks(3, apart);
  ranks.run([](int rank, Mailbox& box) {
    const Buffer data = filled(kLarge, rank);
    for (int round = 0; round < 3; ++round) {
      Buffer got(kLarge);
      const auto sent = send(box, data, (rank + 1) % 3, 1);
      const auto came = receive(box, got, (rank + 2) % 3, 1);
      sent->wait(soon());
      came->wait(soon());
      CHECK(got == filled(kLarge, (rank + 2) % 3));
    }
  });
  ranks.close();
}

TEST_BOTH(tags_out_of_order) {
  Ranks ranks(2, apart);
  for (const size_t bytes : {size_t(100), kEager + 1}) {
    ranks.run([&](int rank, Mailbox& box) {
      std::vector<std::shared_ptr<Message>> messages;
      std::vector<Buffer> data;
      for (uint64_t tag = 0; tag < 20; ++tag)
        data.push_back(rank == 0 ? filled(bytes, tag) : Buffer(bytes));
      if (rank == 0)
        for (uint64_t tag = 0; tag < 20; ++tag)
          messages.push_back(send(box, data[tag], 1, tag << 40));
      else
        for (int tag = 19; tag >= 0; --tag)
          messages.push_back(receive(box, data[tag], 0, uint64_t(tag) << 40));
      for (auto& message : messages) message->wait(soon());
      for (uint64_t tag = 0; tag < 20; ++tag) CHECK(data[tag] == filled(bytes, tag));
    });
  }
  ranks.close();
}

TEST_BOTH(messages_of_one_tag_come_in_order) {
  Ranks ranks(2, apart);
  ranks.run([](int rank, Mailbox& box) {
    constexpr int kMessages = 10'000;
    for (int i = 0; i < kMessages; ++i) {
      // Some are announced, most are not: they may not overtake each other.
      const size_t bytes = i % 500 == 499 ? kEager + 4 : 4;
      Buffer data(bytes);
      std::memcpy(data.data(), &i, 4);
      if (rank == 0) {
        send(box, data, 1, 3)->wait(soon());
        continue;
      }
      std::fill(data.begin(), data.end(), 0);
      const auto message = receive(box, data, 0, 3);
      message->wait(soon());
      int got;
      std::memcpy(&got, data.data(), 4);
      if (got != i) return CHECK_EQ(got, i);
      CHECK_EQ(message->source(), 0);
    }
  });
  ranks.close();
}

TEST_BOTH(any_source_takes_what_came_first) {
  Ranks ranks(3, apart);
  const Buffer first = filled(10, 1), second = filled(10, 2), third = filled(kEager + 1, 3);
  send(ranks[2], first, 0, 7);
  // Of its own: told apart by tag.
  Buffer got(10);
  std::this_thread::sleep_for(50ms);
  send(ranks[1], second, 0, 7);
  std::this_thread::sleep_for(50ms);
  send(ranks[1], second, 0, 8);
  auto message = receive(ranks[0], got, Mailbox::kAnySource, 8);
  message->wait(soon());
  CHECK_EQ(message->source(), 1);
  message = receive(ranks[0], got, Mailbox::kAnySource, 7);
  message->wait(soon());
  CHECK_EQ(message->source(), 2);
  CHECK(got == first);
  message = receive(ranks[0], got, Mailbox::kAnySource, 7);
  message->wait(soon());
  CHECK_EQ(message->source(), 1);
  CHECK(got == second);
  Buffer large(third.size());
  message = receive(ranks[0], large, Mailbox::kAnySource, 7);
  const auto sent = send(ranks[2], third, 0, 7);
  message->wait(soon());
  sent->wait(soon());
  CHECK_EQ(message->source(), 2);
  CHECK(large == third);
  ranks.close();
}

TEST_BOTH(posted_receives_of_any_and_one_source_keep_their_order) {
  Ranks ranks(2, apart);
  Buffer a(4), b(4), c(4);
  const auto one = receive(ranks[0], a, 1, 5);
  const auto any = receive(ranks[0], b, Mailbox::kAnySource, 5);
  const auto last = receive(ranks[0], c, 1, 5);
  for (uint32_t i = 0; i < 3; ++i) send(ranks[1], filled(4, i), 0, 5);
  for (auto& message : {one, any, last}) message->wait(soon());
  CHECK(a == filled(4, 0));
  CHECK(b == filled(4, 1));
  CHECK(c == filled(4, 2));
  ranks.close();
}

TEST_BOTH(to_oneself) {
  Ranks ranks(1, apart);
  for (const size_t bytes : {size_t(0), size_t(1), kEager, kEager + 1, kLarge})
    for (const bool send_first : {true, false}) {
      const Buffer data = filled(bytes, 1);
      Buffer got(bytes);
      std::shared_ptr<Message> sent, came;
      if (send_first) sent = send(ranks[0], data, 0, 1);
      came = receive(ranks[0], got, send_first ? 0 : Mailbox::kAnySource, 1);
      if (!send_first) sent = send(ranks[0], data, 0, 1);
      sent->wait(soon());
      came->wait(soon());
      CHECK(got == data);
      CHECK_EQ(came->source(), 0);
    }
  Buffer data(kEager + 1), got(3);
  const auto sent = send(ranks[0], data, 0, 1);
  CHECK_THROWS(UsageError, "but rank 0 receives 3 bytes",
               receive(ranks[0], got, 0, 1)->wait(soon()));
  CHECK_THROWS(UsageError, "rank 0 sends 65537 bytes", sent->wait(soon()));
  CHECK_THROWS(TimeoutError, "send of 65537 bytes to rank 0",
               send(ranks[0], data, 0, 1, 20ms)->wait(soon()));
  // It is withdrawn: its memory is not read any more.
  CHECK_THROWS(TimeoutError, "receive", receive(ranks[0], data, 0, 1, 20ms)->wait(soon()));
  ranks.close();
}

TEST_BOTH(short_messages_are_done_at_once) {
  Ranks ranks(2, apart);
  ranks.network.hold(1, true);
  const Buffer data = filled(kEager, 1);
  const auto start = Clock::now();
  CHECK(send(ranks[0], data, 1, 1)->done());
  CHECK(since(start) < 500ms);
  ranks.network.hold(1, false);
  Buffer got(kEager);
  receive(ranks[1], got, 0, 1)->wait(soon());
  CHECK(got == data);
  ranks.close();
}

TEST_BOTH(a_peer_that_does_not_answer_holds_up_no_other) {
  Ranks ranks(3, apart);
  ranks.network.hold(1, true);
  const Buffer data = filled(kEager + 1, 1);
  Buffer got(data.size());
  const auto stuck = send(ranks[0], data, 1, 1, 100ms);
  const auto sent = send(ranks[0], data, 2, 1);
  receive(ranks[2], got, 0, 1)->wait(soon());
  sent->wait(soon());
  CHECK(got == data);
  CHECK_THROWS(TimeoutError, "was not received within 100 ms (group tp)", stuck->wait(soon()));
  ranks.network.hold(1, false);
  send(ranks[0], data, 1, 2);
  receive(ranks[1], got, 0, 2)->wait(soon());
  ranks.close();
}

// Much more than the kernel and the receiver may keep; the one that is wanted comes last.
TEST_BOTH(unexpected_messages_are_bounded_and_block_nothing) {
  Ranks ranks(2, apart);
  const size_t count = 2 * p2p::kKeptBytes / kEager;
  const Buffer data = filled(kEager, 1), last = filled(8, 2);
  std::vector<std::shared_ptr<Message>> sent;
  for (size_t i = 0; i < count; ++i) sent.push_back(send(ranks[0], data, 1, 1));
  CHECK(sent.front()->done());
  CHECK(!sent.back()->done());
  sent.push_back(send(ranks[0], last, 1, 2));
  Buffer got(8), block(kEager);
  receive(ranks[1], got, 0, 2)->wait(soon());
  CHECK(got == last);
  for (size_t i = 0; i < count; ++i) {
    receive(ranks[1], block, 0, 1)->wait(soon());
    if (block != data) return CHECK(block == data);
  }
  for (auto& message : sent) message->wait(soon());
  // Credit has come back.
  CHECK(send(ranks[0], data, 1, 3)->done());
  receive(ranks[1], block, 0, 3)->wait(soon());
  ranks.close();
}

TEST_BOTH(lengths_that_differ) {
  Ranks ranks(2, apart);
  for (const bool receive_first : {true, false}) {
    const Buffer data = filled(kEager + 8, 1);
    Buffer got(100);
    std::shared_ptr<Message> sent, came;
    if (receive_first) came = receive(ranks[1], got, 0, 7);
    sent = send(ranks[0], data, 1, 7);
    if (!receive_first) came = receive(ranks[1], got, 0, 7);
    const auto words =
        "rank 0 sends 65544 bytes to rank 1 with tag 7, but rank 1 receives 100 bytes (group tp)";
    CHECK_THROWS(UsageError, words, came->wait(soon()));
    CHECK_THROWS(UsageError, words, sent->wait(soon()));
  }
  for (const bool receive_first : {true, false}) {
    const Buffer data = filled(8, 1);
    Buffer got(100);
    std::shared_ptr<Message> came;
    if (receive_first) came = receive(ranks[1], got, 0, 7);
    send(ranks[0], data, 1, 7);
    if (!receive_first) std::this_thread::sleep_for(50ms);
    if (!receive_first) came = receive(ranks[1], got, 0, 7);
    const auto words = "rank 0 sends 8 bytes to rank 1 with tag 7, but rank 1 receives 100 bytes";
    CHECK_THROWS(UsageError, words, came->wait(soon()));
    // The send was done already: the next one tells.
    std::this_thread::sleep_for(50ms);
    CHECK_THROWS(UsageError, words, send(ranks[0], data, 1, 8)->wait(soon()));
  }
  // The streams have taken no harm.
  const Buffer data = filled(kLarge, 3);
  Buffer got(kLarge);
  const auto sent = send(ranks[0], data, 1, 7);
  receive(ranks[1], got, 0, 7)->wait(soon());
  CHECK(got == data);
  ranks.close();
}

TEST_BOTH(timeouts) {
  Ranks ranks(2, apart);
  const Buffer data = filled(kEager + 1, 1);
  Buffer got(kEager + 1);
  auto start = Clock::now();
  CHECK_THROWS(TimeoutError,
               "receive of 65537 bytes from rank 1 (tag 4) did not arrive within 50 ms (group tp)",
               receive(ranks[0], got, 1, 4, 50ms)->wait(soon()));
  CHECK(since(start) >= 50ms);
  CHECK(since(start) < 2s);
  CHECK_THROWS(TimeoutError, "send of 65537 bytes to rank 1 (tag 7) was not received within 50 ms",
               send(ranks[0], data, 1, 7, 50ms)->wait(soon()));
  // What timed out does not match any more, on either side.
  send(ranks[1], data, 0, 4);
  CHECK_THROWS(TimeoutError, "receive", receive(ranks[1], got, 0, 7, 50ms)->wait(soon()));
  receive(ranks[0], got, 1, 4)->wait(soon());
  CHECK(got == data);
  // Nobody waits: noticed all the same.
  std::atomic<bool> told{false};
  receive(ranks[0], got, 1, 5, 50ms)->on_done([&](std::exception_ptr error) {
    CHECK_THROWS(TimeoutError, "50 ms", std::rethrow_exception(error));
    told = true;
  });
  for (int i = 0; i < 200 && !told; ++i) std::this_thread::sleep_for(10ms);
  CHECK(told);
  // The wait for it may end sooner; the message goes on.
  const auto message = receive(ranks[0], got, 1, 6);
  CHECK_THROWS(TimeoutError, "still under way", message->wait(Deadline::after(20ms)));
  const auto sent = send(ranks[1], data, 0, 6);
  message->wait(soon());
  sent->wait(soon());
  ranks.close();
}

// A message given up harms no other: the receive waits for the next one.
TEST_BOTH(a_withdrawn_message_leaves_its_receive) {
  using p2p::FrameKind;
  Ranks ranks(2, apart);
  Buffer first(100'000), second(100'000);
  const auto one = receive(ranks[0], first, 1, 7);
  const auto two = receive(ranks[0], second, 1, 7);
  const Fd stream = ranks.network.dial(1, 0);
  const p2p::Frame frames[] = {p2p::make_frame(FrameKind::announce, 7, first.size(), 0),
                               p2p::make_frame(FrameKind::withdraw, 7, 0, 0),
                               p2p::make_frame(FrameKind::announce, 7, first.size(), 1)};
  raw_write(stream, frames, sizeof frames);
  const auto data = p2p::make_frame(FrameKind::data, 7, first.size(), 1);
  raw_write(stream, &data, sizeof data);
  raw_write(stream, filled(first.size(), 1).data(), first.size());
  one->wait(soon());
  CHECK(first == filled(first.size(), 1));
  CHECK(!two->done());
}

TEST_BOTH(a_sender_gives_up_in_the_middle) {
  using p2p::FrameKind;
  Ranks ranks(2, apart);
  Buffer got(100'000);
  const auto came = receive(ranks[0], got, 1, 7);
  const Fd stream = ranks.network.dial(1, 0);
  const p2p::Frame frames[] = {p2p::make_frame(FrameKind::announce, 7, got.size(), 0),
                               p2p::make_frame(FrameKind::data, 7, 10, 0)};
  raw_write(stream, frames, sizeof frames);
  raw_write(stream, got.data(), 10);
  const auto end = p2p::make_frame(FrameKind::withdraw, 7, 0, 0);
  raw_write(stream, &end, sizeof end);
  CHECK_THROWS(PeerError, "rank 1 gave up sending it", came->wait(soon()));
}

// The memory is free as soon as the receive has failed; the stream goes on.
TEST_BOTH(a_receive_times_out_in_the_middle) {
  using p2p::FrameKind;
  Ranks ranks(2, apart);
  Buffer got(100'000), next(8);
  const auto came = receive(ranks[0], got, 1, 7, 50ms);
  const Fd stream = ranks.network.dial(1, 0);
  const Buffer data = filled(got.size(), 1);
  const p2p::Frame frames[] = {p2p::make_frame(FrameKind::announce, 7, got.size(), 0),
                               p2p::make_frame(FrameKind::data, 7, got.size(), 0)};
  raw_write(stream, frames, sizeof frames);
  raw_write(stream, data.data(), 1000);
  CHECK_THROWS(TimeoutError, "receive of 100000 bytes", came->wait(soon()));
  const Buffer zeros(got.size());
  got = zeros;
  raw_write(stream, data.data() + 1000, data.size() - 1000);
  const auto small = p2p::make_frame(FrameKind::eager, 8, 8, 1);
  raw_write(stream, &small, sizeof small);
  raw_write(stream, data.data(), 8);
  receive(ranks[0], next, 1, 8)->wait(soon());
  CHECK(std::equal(next.begin(), next.end(), data.begin()));
  CHECK(got == zeros);
}

TEST(a_send_times_out_in_the_middle) {
  using p2p::FrameKind;
  FakeNetwork network({"a", "a"});
  const auto box = open_mailbox(network.endpoint(0), 0, 2, "tp");
  const auto other = network.endpoint(1);
  Buffer data = filled(kLarge, 1);
  const auto sent = send(*box, data, 1, 7, 300ms);
  std::vector<Accepted> accepted;
  for (int i = 0; i < 200 && accepted.empty(); ++i) {
    std::this_thread::sleep_for(1ms);
    accepted = other->accept();
  }
  const Fd stream = std::move(accepted.at(0).stream);
  const auto read_all = [&](void* target, size_t bytes) {
    for (size_t have = 0, tries = 0; have < bytes && tries < 5000; ++tries) {
      const auto count = ::recv(stream.get(), static_cast<char*>(target) + have, bytes - have, 0);
      if (count > 0) have += count;
      if (count < 0) std::this_thread::sleep_for(1ms);
    }
  };
  p2p::Frame frame;
  read_all(&frame, sizeof frame);
  CHECK_EQ(frame.length, kLarge);
  const auto clear = p2p::make_frame(FrameKind::clear, 7, kLarge, 0);
  raw_write(stream, &clear, sizeof clear);
  // The first chunk fills the socket; then the time is over.
  CHECK_THROWS(TimeoutError, "was not received within 300 ms", sent->wait(soon()));
  std::fill(data.begin(), data.end(), 0);
  read_all(&frame, sizeof frame);
  CHECK(frame.kind == FrameKind::data);
  CHECK_EQ(frame.length, p2p::kChunkBytes);
  Buffer chunk(frame.length);
  read_all(chunk.data(), chunk.size());
  const Buffer wanted = filled(kLarge, 1);
  CHECK(std::equal(chunk.begin(), chunk.end(), wanted.begin()));
  read_all(&frame, sizeof frame);
  CHECK(frame.kind == FrameKind::withdraw);
}

TEST_BOTH(callbacks) {
  Ranks ranks(2, apart);
  std::atomic<int> called{0};
  Buffer got(8), large(kEager + 1);
  const auto came = receive(ranks[1], got, 0, 1);
  // A callback may use the mailbox, and wait.
  came->on_done([&](std::exception_ptr error) {
    CHECK(!error);
    Buffer again(8);
    send(ranks[1], got, 1, 99);
    receive(ranks[1], again, 1, 99)->wait(soon());
    CHECK(again == got);
    ++called;
  });
  send(ranks[0], filled(8, 1), 1, 1);
  for (int i = 0; i < 500 && called < 1; ++i) std::this_thread::sleep_for(10ms);
  CHECK_EQ(called.load(), 1);
  CHECK(got == filled(8, 1));
  came->on_done([&](std::exception_ptr error) { called += error ? 0 : 10; });
  CHECK_EQ(called.load(), 11);
  receive(ranks[1], large, 0, 2)->on_done([&](std::exception_ptr error) {
    CHECK_THROWS(PeerError, "enough", std::rethrow_exception(error));
    called += 100;
  });
  ranks[1].abort("enough");
  CHECK_EQ(called.load(), 111);
}

TEST_BOTH(a_peer_that_aborts) {
  Ranks ranks(3, apart);
  Buffer got(8), large(kLarge);
  // Streams in both directions.
  send(ranks[0], got, 1, 1);
  receive(ranks[1], got, 0, 1)->wait(soon());
  send(ranks[1], got, 0, 1);
  receive(ranks[0], got, 1, 1)->wait(soon());
  send(ranks[1], filled(8, 5), 0, 50);
  const auto waiting = receive(ranks[0], got, 1, 2);
  const auto any = receive(ranks[0], got, Mailbox::kAnySource, 3);
  const auto sent = send(ranks[0], large, 1, 4);
  const auto other = receive(ranks[0], got, 2, 5);
  const auto mine = receive(ranks[1], got, 0, 6);
  std::this_thread::sleep_for(50ms);
  const auto start = Clock::now();
  ranks[1].abort("rank 1 has had enough");
  CHECK_THROWS(PeerError, "rank 1 is gone: ", waiting->wait(soon()));
  CHECK_THROWS(PeerError, "rank 1 is gone: ", sent->wait(soon()));
  CHECK_THROWS(PeerError, "rank 1 is gone: ", any->wait(soon()));
  CHECK(since(start) < 500ms);
  CHECK_THROWS(PeerError, "rank 1 has had enough", mine->wait(soon()));
  CHECK_THROWS(PeerError, "rank 1 has had enough", send(ranks[1], got, 0, 1)->wait(soon()));
  CHECK_THROWS(PeerError, "rank 1 is gone: ", send(ranks[0], got, 1, 1)->wait(soon()));
  CHECK_THROWS(PeerError, "rank 1 is gone: ", receive(ranks[0], got, 1, 1)->wait(soon()));
  // What came whole before can still be had, and other ranks are not concerned.
  receive(ranks[0], got, 1, 50)->wait(soon());
  CHECK(got == filled(8, 5));
  CHECK(!other->done());
  send(ranks[2], got, 0, 5);
  other->wait(soon());
  ranks.boxes[1].reset();
  ranks.boxes[0]->close(5s);
  ranks.boxes[2]->close(5s);
}

TEST_BOTH(a_receiver_that_dies_before_it_says_clear) {
  Ranks ranks(2, apart);
  Buffer large(kLarge);
  const auto sent = send(ranks[0], large, 1, 4);
  Buffer got(1);
  CHECK_THROWS(TimeoutError, "", receive(ranks[1], got, 0, 1, 20ms)->wait(soon()));
  ranks.boxes[1].reset();
  CHECK_THROWS(PeerError, "rank 1 is gone: ", sent->wait(soon()));
}

TEST_BOTH(a_stream_that_ends_in_the_middle) {
  for (const size_t bytes : {size_t(10), size_t(40), size_t(32 + 1000)}) {
    Ranks ranks(3, apart);
    const Buffer data = filled(1000, 1);
    Buffer wire(32 + 1000), got(1000);
    const auto frame = p2p::make_frame(p2p::FrameKind::eager, 7, 1000, 0);
    std::memcpy(wire.data(), &frame, 32);
    std::memcpy(wire.data() + 32, data.data(), 1000);
    const auto first = receive(ranks[0], got, 1, 7);
    Buffer more(1000);
    const auto second = receive(ranks[0], more, 1, 7);
    Fd stream = ranks.network.dial(1, 0);
    raw_write(stream, wire.data(), bytes);
    stream.reset();
    if (bytes == wire.size()) {
      first->wait(soon());
      CHECK(got == data);
    } else {
      CHECK_THROWS(PeerError, "rank 1 is gone: its stream ended", first->wait(soon()));
    }
    CHECK_THROWS(PeerError, "rank 1 is gone: its stream ended", second->wait(soon()));
    CHECK_THROWS(PeerError, "rank 1 is gone", send(ranks[0], got, 1, 1)->wait(soon()));
  }
}

TEST_BOTH(an_attempt_to_connect_that_was_given_up_does_no_harm) {
  Ranks ranks(2, apart);
  Buffer got(8);
  const auto came = receive(ranks[0], got, 1, 1);
  ranks.network.dial(1, 0).reset();
  std::this_thread::sleep_for(20ms);
  const Fd unused = ranks.network.dial(1, 0);
  send(ranks[1], filled(8, 1), 0, 1);
  came->wait(soon());
  CHECK(got == filled(8, 1));
  ranks.close();
}

TEST_BOTH(garbage_harms_only_its_own_stream) {
  using p2p::FrameKind;
  using p2p::make_frame;
  auto wrong = make_frame(FrameKind::eager, 0, 1, 0);
  wrong.magic ^= 1;
  const p2p::Frame frames[] = {
      wrong,
      make_frame(static_cast<FrameKind>(77), 0, 1, 0),
      make_frame(FrameKind::clear, 0, 1, 0),             // goes the other way
      make_frame(FrameKind::eager, 0, kEager + 1, 0),    // too long
      make_frame(FrameKind::eager, 0, uint64_t(-1), 0),
      make_frame(FrameKind::announce, 0, uint64_t(-1), 0),
      make_frame(FrameKind::eager, 0, 1, 5),             // out of turn
      make_frame(FrameKind::data, 0, 1, 0),              // of nothing
      make_frame(FrameKind::data, 0, p2p::kChunkBytes + 1, 0),
  };
  for (const auto& frame : frames) {
    Ranks ranks(3, apart);
    Buffer got(8);
    const auto from_one = receive(ranks[0], got, 1, 1);
    const auto from_two = receive(ranks[0], got, 2, 1);
    const Fd stream = ranks.network.dial(1, 0);
    raw_write(stream, &frame, sizeof frame);
    CHECK_THROWS(PeerError, "rank 1 sent what it may not", from_one->wait(soon()));
    send(ranks[2], filled(8, 2), 0, 1);
    from_two->wait(soon());
    CHECK(got == filled(8, 2));
    send(ranks[0], got, 1, 1);
    receive(ranks[1], got, 0, 1)->wait(soon());
  }
}

TEST_BOTH(too_much_data_for_an_announced_message) {
  using p2p::FrameKind;
  using p2p::make_frame;
  Ranks ranks(2, apart);
  Buffer got(100'000, 1);
  const auto came = receive(ranks[0], got, 1, 1);
  const Fd stream = ranks.network.dial(1, 0);
  const p2p::Frame frames[] = {make_frame(FrameKind::announce, 1, got.size(), 0),
                               make_frame(FrameKind::data, 1, got.size() + 1, 0)};
  raw_write(stream, frames, sizeof frames);
  CHECK_THROWS(PeerError, "data that was not asked for", came->wait(soon()));
}

TEST_BOTH(wrong_arguments) {
  Ranks ranks(2, apart);
  char byte = 0;
  CHECK_THROWS(UsageError, "no rank 2", ranks[0].send(&byte, 1, 2, 0, 1s));
  CHECK_THROWS(UsageError, "no rank -1", ranks[0].send(&byte, 1, Mailbox::kAnySource, 0, 1s));
  CHECK_THROWS(UsageError, "no rank -2", ranks[0].receive(&byte, 1, -2, 0, 1s));
  CHECK_THROWS(UsageError, "no memory", ranks[0].receive(nullptr, 1, 1, 0, 1s));
  CHECK_THROWS(UsageError, "too long", ranks[0].send(&byte, size_t(-1), 1, 0, 1s));
}

TEST_BOTH(close_sends_what_is_left_and_says_goodbye) {
  Ranks ranks(3, apart);
  const Buffer data = filled(kEager, 1), large = filled(kLarge, 2);
  Buffer got(kEager), got_large(kLarge);
  for (int i = 0; i < 100; ++i) send(ranks[0], data, 1, 1);
  const auto sent = send(ranks[0], large, 1, 2);
  std::thread closing([&] { ranks[0].close(10s); });
  std::this_thread::sleep_for(20ms);
  receive(ranks[1], got_large, 0, 2)->wait(soon());
  CHECK(got_large == large);
  closing.join();
  sent->wait(soon());
  CHECK_THROWS(UsageError, "closed", send(ranks[0], data, 1, 1)->wait(soon()));
  for (int i = 0; i < 100; ++i) receive(ranks[1], got, 0, 1)->wait(soon());
  CHECK(got == data);
  CHECK_THROWS(PeerError, "rank 0 has left the group", receive(ranks[1], got, 0, 1)->wait(soon()));
  // From any source: until all have left.
  const auto any = receive(ranks[1], got, Mailbox::kAnySource, 3);
  std::this_thread::sleep_for(20ms);
  CHECK(!any->done());
  send(ranks[2], data, 1, 4);
  receive(ranks[1], got, 2, 4)->wait(soon());
  ranks[2].close(10s);
  CHECK_THROWS(PeerError, "has left the group", any->wait(soon()));
  ranks[1].close(10s);
}

TEST_BOTH(the_receiver_leaves) {
  Ranks ranks(2, apart);
  Buffer large(kLarge), got(8);
  send(ranks[0], got, 1, 1);
  receive(ranks[1], got, 0, 1)->wait(soon());
  const auto sent = send(ranks[0], large, 1, 2);
  const auto came = receive(ranks[0], got, 1, 3);
  ranks[1].close(5s);
  CHECK_THROWS(PeerError, "rank 1 has left the group", sent->wait(soon()));
  // It has never sent anything, and says so.
  CHECK_THROWS(PeerError, "rank 1 has left the group", came->wait(soon()));
}

TEST_BOTH(close_with_nobody_receiving_ends_in_time) {
  Ranks ranks(2, apart);
  Buffer large(kLarge);
  const auto sent = send(ranks[0], large, 1, 2);
  const auto start = Clock::now();
  ranks[0].close(200ms);
  CHECK(since(start) >= 200ms);
  CHECK(since(start) < 2s);
  CHECK_THROWS(UsageError, "closed", sent->wait(soon()));
  ranks[0].close(1s);
}

TEST_BOTH(close_while_the_peer_does_not_answer) {
  Ranks ranks(2, apart);
  ranks.network.hold(1, true);
  send(ranks[0], Buffer(8), 1, 2);
  const auto start = Clock::now();
  ranks[0].close(100ms);
  CHECK(since(start) < 3s);
}

TEST_BOTH(abort_wakes_those_who_wait) {
  Ranks ranks(2, apart);
  std::vector<std::thread> threads;
  for (uint64_t tag = 0; tag < 4; ++tag)
    threads.emplace_back([&, tag] {
      Buffer got(8);
      CHECK_THROWS(PeerError, "stop it", receive(ranks[0], got, 1, tag)->wait(soon()));
    });
  std::this_thread::sleep_for(50ms);
  const auto start = Clock::now();
  ranks[0].abort("stop it");
  for (auto& thread : threads) thread.join();
  CHECK(since(start) < 1s);
}

TEST_BOTH(many_threads_on_one_mailbox) {
  Ranks ranks(2, apart);
  constexpr int kThreads = 6, kRounds = 150;
  ranks.run([&](int rank, Mailbox& box) {
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread)
      threads.emplace_back([&, thread] {
        try {
          for (int round = 0; round < kRounds; ++round) {
            const size_t bytes = round % 10 == 9 ? kEager + thread : 100 + round;
            const Buffer data = filled(bytes, rank * 1000 + thread * 100 + round);
            Buffer got(bytes);
            const auto sent = send(box, data, 1 - rank, thread);
            receive(box, got, 1 - rank, thread)->wait(soon());
            sent->wait(soon());
            if (got != filled(bytes, (1 - rank) * 1000 + thread * 100 + round))
              check::fail(__FILE__, __LINE__, "wrong bytes");
          }
        } catch (const std::exception& error) {
          check::fail(__FILE__, __LINE__, error.what());
        }
      });
    for (auto& thread : threads) thread.join();
  });
  ranks.close();
}

// The one that waits first drives; when its message has come the others must go on.
TEST_BOTH(the_role_of_the_driver_is_handed_on) {
  Ranks ranks(2, apart);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::thread> threads;
    for (uint64_t tag = 0; tag < 5; ++tag)
      threads.emplace_back([&, tag] {
        Buffer got(8);
        try {
          receive(ranks[0], got, 1, tag)->wait(soon());
        } catch (const std::exception& error) {
          check::fail(__FILE__, __LINE__, error.what());
        }
      });
    for (uint64_t tag = 0; tag < 5; ++tag) {
      std::this_thread::sleep_for(500us);
      send(ranks[1], Buffer(8), 0, (tag + round) % 5);
    }
    for (auto& thread : threads) thread.join();
  }
  ranks.close();
}

TEST_BOTH(nothing_is_left_behind) {
  const size_t threads = entries("/proc/self/task"), fds = entries("/proc/self/fd");
  for (int round = 0; round < 6; ++round) {
    Ranks ranks(3, apart);
    CHECK_EQ(entries("/proc/self/task"), threads);
    Buffer got(kEager + 1);
    ranks.run([&](int rank, Mailbox& box) {
      const Buffer data(kEager + 1);
      Buffer came(kEager + 1);
      const auto sent = send(box, data, (rank + 1) % 3, 1);
      receive(box, came, (rank + 2) % 3, 1)->wait(soon());
      sent->wait(soon());
    });
    const auto pending = receive(ranks[0], got, 1, 5);
    if (round % 3 == 0) ranks.close();
    if (round % 3 == 1)
      for (auto& box : ranks.boxes) box->abort("the end");
    ranks.boxes.clear();
    CHECK(pending->done());
    CHECK_EQ(entries("/proc/self/task"), threads);
  }
  CHECK_EQ(entries("/proc/self/fd"), fds);
}
