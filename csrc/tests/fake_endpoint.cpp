#include "fake_endpoint.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <condition_variable>
#include <mutex>

#include "base/error.h"

using namespace giant;

namespace {

using Ends = std::pair<Fd, Fd>;

void require(bool fine, const char* what) {
  if (!fine) throw Error(what);
}

Ends unix_ends() {
  int ends[2];
  const int type = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
  require(::socketpair(AF_UNIX, type, 0, ends) == 0, "socketpair failed");
  return {Fd(ends[0]), Fd(ends[1])};
}

Ends tcp_ends() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  const Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  require(::bind(listener.get(), generic, length) == 0, "bind failed");
  require(::listen(listener.get(), 1) == 0, "listen failed");
  require(::getsockname(listener.get(), generic, &length) == 0, "getsockname failed");
  Fd first(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  require(::connect(first.get(), generic, length) == 0, "connect failed");
  Fd second(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  require(static_cast<bool>(second), "accept failed");
  require(::fcntl(first.get(), F_SETFL, O_NONBLOCK) == 0, "fcntl failed");
  const int one = 1;
  for (const Fd* end : {&first, &second})
    require(::setsockopt(end->get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0, "nodelay");
  return {std::move(first), std::move(second)};
}

/// What waits to be accepted by one rank.
struct Desk {
  Fd bell;
  std::vector<Accepted> queue;
  bool held = false;
  bool closed = false;
};

}  // namespace

struct FakeNetwork::State {
  std::vector<std::string> identities;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Desk> desks;

  Fd connect(int from, int to, Purpose purpose, Deadline deadline) {
    std::unique_lock lock(mutex);
    Desk& desk = desks.at(to);
    const std::string name = "rank " + std::to_string(to);
    if (!changed.wait_for(lock, deadline.remaining(), [&] { return !desk.held || desk.closed; }))
      throw TimeoutError(name + " does not answer");
    if (desk.closed) throw PeerError(name + " does not listen");
    Ends ends = identities.at(from) == identities[to] ? unix_ends() : tcp_ends();
    desk.queue.push_back({from, purpose, std::move(ends.second)});
    const uint64_t one = 1;
    require(::write(desk.bell.get(), &one, sizeof one) == sizeof one, "the bell does not ring");
    return std::move(ends.first);
  }
};

namespace {

class FakeEndpoint final : public Endpoint {
 public:
  FakeEndpoint(std::shared_ptr<FakeNetwork::State> state, int rank)
      : state_(std::move(state)), rank_(rank) {}

  ~FakeEndpoint() override {
    const std::lock_guard lock(state_->mutex);
    Desk& desk = state_->desks[rank_];
    desk.closed = true;
    desk.queue.clear();
    desk.bell.reset();
    state_->changed.notify_all();
  }

  const std::vector<std::string>& identities() const override { return state_->identities; }

  Fd connect(int peer, Purpose purpose, Deadline deadline) override {
    return state_->connect(rank_, peer, purpose, deadline);
  }

  std::vector<int> pollable() const override { return {state_->desks[rank_].bell.get()}; }

  std::vector<Accepted> accept() override {
    const std::lock_guard lock(state_->mutex);
    Desk& desk = state_->desks[rank_];
    uint64_t rings = 0;
    // Nothing to read where accept() is called without a ring.
    [[maybe_unused]] const auto count = ::read(desk.bell.get(), &rings, sizeof rings);
    return std::exchange(desk.queue, {});
  }

 private:
  std::shared_ptr<FakeNetwork::State> state_;
  int rank_;
};

}  // namespace

FakeNetwork::FakeNetwork(std::vector<std::string> identities) : state_(std::make_shared<State>()) {
  state_->desks.resize(identities.size());
  state_->identities = std::move(identities);
  for (Desk& desk : state_->desks) {
    desk.bell = Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!desk.bell) throw Error("eventfd failed");
  }
}

std::unique_ptr<Endpoint> FakeNetwork::endpoint(int rank) {
  return std::make_unique<FakeEndpoint>(state_, rank);
}

void FakeNetwork::hold(int rank, bool held) {
  const std::lock_guard lock(state_->mutex);
  state_->desks[rank].held = held;
  state_->changed.notify_all();
}

Fd FakeNetwork::dial(int from, int to, Purpose purpose) {
  return state_->connect(from, to, purpose, Deadline::after(milliseconds(1000)));
}
