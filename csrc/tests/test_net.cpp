#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "net/address.h"
#include "net/handover.h"
#include "net/identity.h"
#include "net/named_endpoint.h"
#include "net/sha256.h"
#include "net/socket.h"
#include "store.h"

using namespace giant;
using giant::testing::MapStore;

namespace {

Deadline soon(int ms = 10000) { return Deadline::after(milliseconds(ms)); }

std::string hex(const Digest& digest) {
  std::string text;
  for (const uint8_t byte : digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

std::vector<uint8_t> bytes(const std::string& text) { return {text.begin(), text.end()}; }

std::set<int> fds_there() {
  std::set<int> found;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(each.path().filename().string());
    found.insert(fd);
  }
  // That of the iterator is gone by now.
  std::erase_if(found, [](int fd) { return fcntl(fd, F_GETFD) < 0; });
  return found;
}

int count_fds() { return static_cast<int>(fds_there().size()); }

Host host(const std::string& identity) {
  return {identity, [] { return own_address("", "127.0.0.1"); }};
}

/// Two ranks that do nothing, of given hosts.
struct Couple {
  Couple(const std::string& left_host, const std::string& right_host) {
    std::thread other([&] {
      right = open_endpoint_on(host(right_host), store, {1, 2, milliseconds(5000)});
    });
    left = open_endpoint_on(host(left_host), store, {0, 2, milliseconds(5000)});
    other.join();
  }
  MapStore store;
  std::unique_ptr<Endpoint> left, right;
};

struct Variable {
  Variable(const char* name, const char* value) : name(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name); }
  const char* name;
};

using Body = std::function<void(int, Endpoint&)>;

/// Ranks as threads, each on the host of its identity. Endpoints close when all are done.
void run_ranks(MapStore& store, const std::vector<std::string>& identities, const Body& body) {
  std::vector<std::unique_ptr<Endpoint>> endpoints(identities.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < identities.size(); ++i) {
    threads.emplace_back([&, rank = static_cast<int>(i)] {
      try {
        const int size = static_cast<int>(identities.size());
        const EndpointOptions options{rank, size, milliseconds(10000)};
        endpoints[rank] = open_endpoint_on(host(identities[rank]), store, options);
        body(rank, *endpoints[rank]);
      } catch (const std::exception& error) {
        check::fail(__FILE__, __LINE__, "rank " + std::to_string(rank) + ": " + error.what());
      }
    });
  }
  for (auto& each : threads) each.join();
}

void send_text(int stream, const std::string& text) {
  CHECK_EQ(send(stream, text.data(), text.size(), MSG_NOSIGNAL), ssize_t(text.size()));
}

std::string receive_text(int stream, size_t size) {
  std::string text;
  while (text.size() < size) {
    char space[64];
    const ssize_t got = recv(stream, space, std::min(sizeof space, size - text.size()), 0);
    if (got < 0 && errno == EAGAIN && wait_for(stream, POLLIN, soon())) continue;
    if (got <= 0) break;
    text.append(space, got);
  }
  return text;
}

std::vector<Accepted> accept_some(Endpoint& endpoint, size_t count, Deadline deadline) {
  std::vector<Accepted> found;
  while (found.size() < count && !deadline.expired()) {
    for (Accepted& each : endpoint.accept()) found.push_back(std::move(each));
    if (found.size() < count)
      for (const int fd : endpoint.pollable()) wait_for(fd, POLLIN, soon(100));
  }
  return found;
}

Purpose purpose_of(int from, int to) { return static_cast<Purpose>(1 + (from + to) % 3); }

std::string greeting(int from, int to) {
  return "from " + std::to_string(from) + " to " + std::to_string(to) + ".";
}

bool is_tcp(int stream) {
  int family = 0;
  socklen_t length = sizeof family;
  CHECK_EQ(getsockopt(stream, SOL_SOCKET, SO_DOMAIN, &family, &length), 0);
  return family != AF_UNIX;
}

int option(int stream, int level, int name) {
  int value = -1;
  socklen_t length = sizeof value;
  CHECK_EQ(getsockopt(stream, level, name, &value, &length), 0);
  return value;
}

void check_stream(int stream, bool tcp) {
  CHECK_EQ(is_tcp(stream), tcp);
  CHECK((fcntl(stream, F_GETFL) & O_NONBLOCK) != 0);
  CHECK((fcntl(stream, F_GETFD) & FD_CLOEXEC) != 0);
  if (!tcp) return;
  CHECK(option(stream, IPPROTO_TCP, TCP_NODELAY) != 0);
  CHECK(option(stream, SOL_SOCKET, SO_KEEPALIVE) != 0);
  // It would end the streams of a rank that lives but is late.
  CHECK_EQ(option(stream, IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
}

/// Connects to all others on one thread while another accepts, and passes text both ways.
void meet_all(int rank, Endpoint& endpoint, const std::vector<std::string>& identities) {
  const int size = static_cast<int>(identities.size());
  CHECK(endpoint.identities() == identities);
  std::vector<Accepted> accepted;
  std::thread acceptor([&] { accepted = accept_some(endpoint, size - 1, soon()); });
  std::vector<Fd> streams(size);
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    try {
      streams[peer] = endpoint.connect(peer, purpose_of(rank, peer), soon());
      send_text(streams[peer].get(), greeting(rank, peer));
    } catch (const std::exception& error) {
      check::fail(__FILE__, __LINE__, error.what());
    }
  }
  acceptor.join();
  std::vector<int> peers;
  for (const Accepted& each : accepted) {
    const std::string expected = greeting(each.peer, rank);
    peers.push_back(each.peer);
    CHECK(each.purpose == purpose_of(each.peer, rank));
    CHECK_EQ(receive_text(each.stream.get(), expected.size()), expected);
    check_stream(each.stream.get(), identities[each.peer] != identities[rank]);
    send_text(each.stream.get(), greeting(rank, each.peer));
  }
  std::sort(peers.begin(), peers.end());
  std::vector<int> others(size);
  std::iota(others.begin(), others.end(), 0);
  others.erase(others.begin() + rank);
  CHECK(peers == others);
  for (const int peer : others) {
    if (!streams[peer]) continue;
    const std::string expected = greeting(peer, rank);
    CHECK_EQ(receive_text(streams[peer].get(), expected.size()), expected);
    check_stream(streams[peer].get(), identities[peer] != identities[rank]);
  }
}

struct SocketPair {
  SocketPair() {
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0) std::abort();
    a = Fd(fds[0]);
    b = Fd(fds[1]);
  }
  Fd a, b;
};

Fd new_memory(const std::string& text) {
  Fd memory(memfd_create("test", MFD_CLOEXEC));
  CHECK_EQ(pwrite(memory.get(), text.data(), text.size(), 0), ssize_t(text.size()));
  return memory;
}

std::string text_of(const Fd& memory) {
  char space[64];
  const ssize_t got = pread(memory.get(), space, sizeof space, 0);
  return got < 0 ? "nothing" : std::string(space, got);
}

}  // namespace

// FIPS 180-4's examples, and the lengths around the end of a block (from Python's hashlib).
TEST(sha256) {
  CHECK_EQ(hex(sha256({})), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK_EQ(hex(sha256(bytes("abc"))),
           "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK_EQ(hex(sha256(bytes("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"))),
           "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK_EQ(hex(sha256(bytes("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
                            "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu"))),
           "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  CHECK_EQ(hex(sha256(std::vector<uint8_t>(1000000, 'a'))),
           "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  const std::vector<std::pair<size_t, std::string>> lengths = {
      {55, "463eb28e72f82e0a96c0a4cc53690c571281131f672aa229e0d45ae59b598b59"},
      {56, "da2ae4d6b36748f2a318f23e7ab1dfdf45acdc9d049bd80e59de82a60895f562"},
      {63, "29af2686fd53374a36b0846694cc342177e428d1647515f078784d69cdb9e488"},
      {64, "fdeab9acf3710362bd2658cdc9a29e8f9c757fcf9811603a8c447cd1d9151108"},
      {65, "4bfd2c8b6f1eec7a2afeb48b934ee4b2694182027e6d0fc075074f2fabb31781"},
      {119, "da18797ed7c3a777f0847f429724a2d8cd5138e6ed2895c3fa1a6d39d18f7ec6"},
      {120, "f52b23db1fbb6ded89ef42a23ce0c8922c45f25c50b568a93bf1c075420bbb7c"},
      {1000, "4e4c294b331f7a2099a379bec34b9f9fc03dc46ab465d998f4d683da53487e6d"}};
  for (const auto& [length, expected] : lengths) {
    std::vector<uint8_t> data(length);
    for (size_t i = 0; i < length; ++i) data[i] = static_cast<uint8_t>(i % 251);
    CHECK_EQ(hex(sha256(data)), expected);
  }
}

// RFC 4231, cases 1 to 4, 6 and 7.
TEST(hmac_sha256) {
  using Data = std::vector<uint8_t>;
  Data counting(25);
  std::iota(counting.begin(), counting.end(), 1);
  const auto check = [](const Data& key, const Data& data, const std::string& expected) {
    CHECK_EQ(hex(hmac_sha256(key, data)), expected);
  };
  check(Data(20, 0x0b), bytes("Hi There"),
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  check(bytes("Jefe"), bytes("what do ya want for nothing?"),
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  check(Data(20, 0xaa), Data(50, 0xdd),
        "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  check(counting, Data(50, 0xcd),
        "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
  check(Data(131, 0xaa), bytes("Test Using Larger Than Block-Size Key - Hash Key First"),
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  check(Data(131, 0xaa),
        bytes("This is a test using a larger than block-size key and a larger than block-size "
              "data. The key needs to be hashed before being used by the HMAC algorithm."),
        "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST(digests_are_compared_whole) {
  const Digest one = sha256({});
  CHECK(equal_in_constant_time(one, one));
  for (size_t i = 0; i < one.size(); ++i) {
    Digest other = one;
    other[i] ^= 0x80;
    CHECK(!equal_in_constant_time(one, other));
  }
}

TEST(identity_of_this_host_or_as_given) {
  const std::string real = host_identity();
  CHECK_EQ(real, host_identity());
  CHECK(real.find("net:[") != std::string::npos);
  CHECK(real.size() > 36);  // a boot id
  const Variable given("GIANT_HOST_ID", "left");
  CHECK_EQ(host_identity(), "left");
  const Variable empty("GIANT_HOST_ID", "");
  CHECK_EQ(host_identity(), real);
}

TEST(address_to_listen_on) {
  CHECK_EQ(own_address("", "127.0.0.1").text(), "127.0.0.1:0");
  CHECK_EQ(own_address("lo", "").text(), "127.0.0.1:0");
  CHECK_EQ(own_address("nosuch0,lo", "").text(), "127.0.0.1:0");
  CHECK_THROWS(UsageError,
               "GIANT_SOCKET_IFNAME is nosuch0; interfaces that have an address are: lo",
               own_address("nosuch0", ""));
  // A name that says nothing of the way, or one that is loopback on the master alone.
  for (const std::string master : {"", "no.such.host.invalid", "0.0.0.0"}) {
    const Address own = own_address("", master);
    CHECK(own.text().find("0.0.0.0") == std::string::npos);
    CHECK(own.text().find("[::]") == std::string::npos);
    CHECK_EQ(own.text(), own_address("", "").text());
    const Fd listener = listen_on(own);
    CHECK(!address_of(listener).text().ends_with(":0"));
  }
  const Variable names("GIANT_SOCKET_IFNAME", "lo");
  CHECK_EQ(own_address().text(), "127.0.0.1:0");
}

TEST(addresses_as_text) {
  for (const std::string text : {"10.0.0.2:4711", "[fd00::2]:1", "[::1]:65535", "127.0.0.1:0"})
    CHECK_EQ(parse_address(text).text(), text);
  for (const std::string text : {"", "10.0.0.2", "10.0.0.2:", "10.0.0.2:65536", "10.0.0.2:-1",
                                 "10.0.0:1", "fd00::2:1", "[]:1", "[10.0.0.2]:1", "host:1",
                                 "10.0.0.2:1 ", ":1"})
    CHECK_THROWS(UsageError, "no ", parse_address(text));
}

TEST(five_ranks_of_one_host) {
  const std::vector<std::string> identities(5, "here\nand there");
  MapStore store;
  run_ranks(store, identities,
            [&](int rank, Endpoint& endpoint) { meet_all(rank, endpoint, identities); });
  CHECK(!store.has("giant/address/0"));  // nobody listens for other hosts
}

TEST(five_ranks_of_three_hosts) {
  const std::vector<std::string> identities = {"a", "b", "a", "c", "b"};
  MapStore store;
  run_ranks(store, identities,
            [&](int rank, Endpoint& endpoint) { meet_all(rank, endpoint, identities); });
}

TEST(several_threads_connect_at_once) {
  MapStore store;
  const int count = 8;
  run_ranks(store, {"a", "b"}, [&](int rank, Endpoint& endpoint) {
    std::vector<Accepted> accepted;
    std::thread acceptor([&] { accepted = accept_some(endpoint, count, soon()); });
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) {
      threads.emplace_back([&] {
        try {
          endpoint.connect(1 - rank, Purpose::mail, soon());
        } catch (const std::exception& error) {
          check::fail(__FILE__, __LINE__, error.what());
        }
      });
    }
    for (auto& each : threads) each.join();
    acceptor.join();
    CHECK_EQ(accepted.size(), size_t{count});
  });
}

TEST(a_rank_alone) {
  MapStore store;
  const auto endpoint = open_endpoint(store, {0, 1, milliseconds(1000)});
  CHECK_EQ(endpoint->identities().size(), 1u);
  CHECK(endpoint->accept().empty());
  CHECK_THROWS(UsageError, "rank 0 cannot connect to rank 0 of 1",
               endpoint->connect(0, Purpose::mail, soon()));
  CHECK_THROWS(UsageError, "cannot connect to rank 1", endpoint->connect(1, Purpose::mail, soon()));
  CHECK_THROWS(UsageError, "cannot connect to rank -1",
               endpoint->connect(-1, Purpose::mail, soon()));
  CHECK_THROWS(UsageError, "rank 1 of 1", open_endpoint(store, {1, 1, milliseconds(100)}));
}

TEST(ranks_that_do_not_come_are_named) {
  MapStore store;
  std::vector<std::thread> threads;
  for (const int rank : {0, 1, 3}) {
    threads.emplace_back([&, rank] {
      CHECK_THROWS(TimeoutError, "ranks 2, 4 did not join within 300 ms",
                   open_endpoint(store, {rank, 5, milliseconds(300)}));
    });
  }
  for (auto& each : threads) each.join();
  MapStore other;
  CHECK_THROWS(TimeoutError, "rank 0 did not join within 1 s",
               open_endpoint(other, {1, 2, milliseconds(1000)}));
}

TEST(a_rank_that_comes_to_the_first_step_alone_is_named) {
  MapStore store;
  store.set("giant/rank/1", bytes("giant 1\nelsewhere\ngiant-name"));
  CHECK_THROWS(TimeoutError, "rank 1 did not join within 200 ms",
               open_endpoint_on(host("here"), store, {0, 2, milliseconds(200)}));
}

TEST(what_the_store_holds_is_checked) {
  const auto open_beside = [](const std::string& member, const std::string& address) {
    MapStore store;
    store.set("giant/rank/1", bytes(member));
    store.set("giant/address/1", bytes(address));
    open_endpoint_on(host("here"), store, {0, 2, milliseconds(200)});
  };
  CHECK_THROWS(PeerError, "rank 1 runs another version", open_beside("giant 2\na\nb", ""));
  CHECK_THROWS(PeerError, "rank 1 runs another version", open_beside("", ""));
  CHECK_THROWS(PeerError, "no name of rank 1", open_beside("giant 1\na", ""));
  CHECK_THROWS(PeerError, "no address of rank 1", open_beside("giant 1\na\nb", "nonsense"));
  MapStore store;
  store.set("giant/rank/0", bytes("giant 1\na\nb"));
  store.set("giant/secret", bytes("short"));
  CHECK_THROWS(PeerError, "no secret", open_endpoint(store, {1, 2, milliseconds(200)}));
}

TEST(a_rank_that_is_gone_refuses) {
  for (const std::string other : {"a", "b"}) {
    Couple couple("a", other);
    couple.right.reset();
    const auto start = Clock::now();
    try {
      couple.left->connect(1, Purpose::mail, soon(200));
      check::fail(__FILE__, __LINE__, "it connected to nobody");
    } catch (const PeerError& error) {
      const std::string text = error.what();
      CHECK(text.starts_with(other == "a" ? "rank 1 of this host " : "rank 1 at 127.0.0.1:"));
      CHECK(text.find(" refused the connection, tried for 2") != std::string::npos);
    }
    const auto took = Clock::now() - start;
    CHECK(took >= milliseconds(190));  // it may have been about to come
    CHECK(took < milliseconds(2000));
  }
}

TEST(a_rank_that_does_not_accept_times_out) {
  for (const std::string other : {"a", "b"}) {
    Couple couple("a", other);
    CHECK_THROWS(TimeoutError, other == "a" ? "rank 1 of this host " : "rank 1 at 127.0.0.1:",
                 couple.left->connect(1, Purpose::mail, soon(150)));
    CHECK_THROWS(TimeoutError, " did not answer, tried for 1",
                 couple.left->connect(1, Purpose::mail, soon(150)));
  }
}

TEST(descriptors_are_handed_over) {
  SocketPair pair;
  const int before = count_fds();
  {
    const Fd first = new_memory("first"), second = new_memory("second");
    send_fds(pair.a.get(), {first.get(), second.get()}, soon());
    const auto found = receive_fds(pair.b.get(), 2, soon());
    CHECK_EQ(found.size(), 2u);
    CHECK_EQ(text_of(found[0]), "first");
    CHECK_EQ(text_of(found[1]), "second");
    CHECK(found[0].get() != first.get());
    for (const Fd& each : found) CHECK((fcntl(each.get(), F_GETFD) & FD_CLOEXEC) != 0);
  }
  CHECK_EQ(count_fds(), before);
}

TEST(many_descriptors_are_handed_over_in_order) {
  SocketPair pair;
  const int before = count_fds();
  {
    std::vector<Fd> memories;
    std::vector<int> fds;
    for (int i = 0; i < 450; ++i) {
      memories.push_back(new_memory(std::to_string(i)));
      fds.push_back(memories.back().get());
    }
    std::vector<Fd> found;
    std::thread receiver([&] { found = receive_fds(pair.b.get(), fds.size(), soon()); });
    std::this_thread::sleep_for(milliseconds(20));  // it waits
    send_fds(pair.a.get(), fds, soon());
    receiver.join();
    CHECK_EQ(found.size(), fds.size());
    for (size_t i = 0; i < found.size(); ++i) CHECK_EQ(text_of(found[i]), std::to_string(i));
    send_fds(pair.a.get(), {}, soon());
    CHECK(receive_fds(pair.b.get(), 0, soon()).empty());
  }
  CHECK_EQ(count_fds(), before);
}

TEST(handing_over_fails_in_words) {
  const int before = count_fds();
  {
    SocketPair pair;
    CHECK_THROWS(TimeoutError, "in time", receive_fds(pair.b.get(), 1, soon(50)));
    const Fd memory = new_memory("x");
    send_fds(pair.a.get(), {memory.get(), memory.get()}, soon());
    CHECK_THROWS(PeerError, "more descriptors", receive_fds(pair.b.get(), 1, soon()));
    send_text(pair.a.get(), "not one");
    CHECK_THROWS(PeerError, "something else", receive_fds(pair.b.get(), 1, soon()));
    CHECK_THROWS(PeerError, "cannot hand over", send_fds(pair.a.get(), {-1}, soon()));
    pair.a.reset();
    CHECK_EQ(receive_text(pair.b.get(), 6), "ot one");
    CHECK_THROWS(PeerError, "hung up", receive_fds(pair.b.get(), 1, soon()));
    CHECK_THROWS(PeerError, "hung up", send_fds(pair.b.get(), {memory.get()}, soon()));
  }
  CHECK_EQ(count_fds(), before);
}

TEST(descriptors_that_cannot_be_opened_are_an_error) {
  SocketPair pair;
  const Fd memory = new_memory("x");
  send_fds(pair.a.get(), {memory.get(), memory.get(), memory.get()}, soon());
  rlimit limit{};
  CHECK_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const int lowest_free = Fd(dup(memory.get())).get();
  const rlimit tight{static_cast<rlim_t>(lowest_free) + 1, limit.rlim_max};
  CHECK_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  const int before = count_fds();
  CHECK_THROWS(PeerError, "ulimit", receive_fds(pair.b.get(), 3, soon(1000)));
  CHECK_EQ(count_fds(), before);
  CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

TEST(nothing_is_leaked) {
  const std::vector<std::string> identities = {"a", "b", "a"};
  const int before = count_fds();
  for (int i = 0; i < 5; ++i) {
    MapStore store;
    run_ranks(store, identities,
              [&](int rank, Endpoint& endpoint) { meet_all(rank, endpoint, identities); });
  }
  CHECK_EQ(count_fds(), before);
}

TEST(nothing_is_inherited) {
  const std::set<int> before = fds_there();
  Couple couple("a", "b");
  int count = 0;
  for (const int fd : fds_there()) {
    if (before.count(fd) > 0) continue;
    ++count;
    CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
  }
  CHECK_EQ(count, 2 * 4);  // of each: two sockets that listen, what is polled, a timer
}
