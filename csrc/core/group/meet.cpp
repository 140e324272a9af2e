#include "group/meet.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.h"
#include "group/group.h"
#include "group/member.h"
#include "net/handover.h"
#include "shm/arena.h"

namespace giant {
namespace {

/// Connections for the mailbox may come while others still meet: kept until it asks.
class Receptionist : public Endpoint {
 public:
  explicit Receptionist(std::unique_ptr<Endpoint> inner)
      : inner_(std::move(inner)), waiting_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

  const std::vector<std::string>& identities() const override { return inner_->identities(); }

  Fd connect(int peer, Purpose purpose, Deadline deadline) override {
    return inner_->connect(peer, purpose, deadline);
  }

  std::vector<int> pollable() const override {
    std::vector<int> list = inner_->pollable();
    list.push_back(waiting_.get());
    return list;
  }

  std::vector<Accepted> accept() override {
    uint64_t count = 0;
    if (read(waiting_.get(), &count, sizeof count) < 0 && errno != EAGAIN)
      throw PeerError(std::string("eventfd: ") + std::strerror(errno));
    std::vector<Accepted> found = std::exchange(kept_, {});
    for (Accepted& each : inner_->accept()) found.push_back(std::move(each));
    return found;
  }

  /// The next connection that is not for the mailbox. Throws TimeoutError saying who is `awaited`.
  Accepted next(Deadline deadline, const std::string& awaited) {
    while (early_.empty()) {
      for (Accepted& each : inner_->accept()) {
        const bool is_mail = each.purpose == Purpose::mail;
        (is_mail ? kept_ : early_).push_back(std::move(each));
      }
      if (!early_.empty()) break;
      if (deadline.expired()) throw TimeoutError(awaited + " did not connect in time");
      std::vector<pollfd> list;
      for (const int fd : inner_->pollable()) list.push_back({fd, POLLIN, 0});
      poll(list.data(), list.size(), deadline.poll_ms(milliseconds(1000)));
    }
    Accepted first = std::move(early_.front());
    early_.erase(early_.begin());
    return first;
  }

  /// Puts back what another step of the meeting waits for.
  void keep(Accepted accepted) { later_.push_back(std::move(accepted)); }
  void reopen() {
    for (Accepted& each : std::exchange(later_, {})) early_.push_back(std::move(each));
  }

  /// From now on the mailbox asks.
  void finish() {
    const uint64_t one = 1;
    if (!kept_.empty() && write(waiting_.get(), &one, sizeof one) < 0)
      throw PeerError(std::string("eventfd: ") + std::strerror(errno));
  }

 private:
  std::unique_ptr<Endpoint> inner_;
  Fd waiting_;
  std::vector<Accepted> kept_, early_, later_;
};

Fd own_life() { return Fd(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0))); }

Fd new_bell() {
  Fd bell(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!bell) throw PeerError(std::string("eventfd: ") + std::strerror(errno));
  return bell;
}

struct Shared {
  Fd memory;
  std::vector<Fd> bells, lives;
};

/// The leader of a host takes everyone's bell and pidfd, and gives all of them to everyone.
Shared gather_of_host(Receptionist& desk, const Topology& topology, int host, Deadline deadline) {
  const int local_size = topology.local_size(host);
  Shared shared;
  shared.bells.resize(local_size);
  shared.lives.resize(local_size);
  shared.bells[0] = new_bell();
  shared.lives[0] = own_life();
  std::vector<Fd> streams;
  while (static_cast<int>(streams.size()) < local_size - 1) {
    Accepted member = desk.next(deadline, "a rank of this host");
    if (member.purpose != Purpose::handover) {
      desk.keep(std::move(member));
      continue;
    }
    std::vector<Fd> fds = receive_fds(member.stream.get(), 2, deadline);
    const int index = topology.local_index(member.peer);
    shared.bells[index] = std::move(fds[0]);
    shared.lives[index] = std::move(fds[1]);
    streams.push_back(std::move(member.stream));
  }
  desk.reopen();
  const Region region = Region::make(Arena::bytes_needed(local_size));
  std::vector<int> all{region.fd()};
  for (const Fd& bell : shared.bells) all.push_back(bell.get());
  for (const Fd& life : shared.lives) all.push_back(life.get());
  for (const Fd& stream : streams) send_fds(stream.get(), all, deadline);
  shared.memory = Fd(dup(region.fd()));
  return shared;
}

Shared join_host(Receptionist& desk, const Topology& topology, int host, int local,
                 Deadline deadline) {
  const size_t local_size = topology.local_size(host);
  const Fd stream = desk.connect(topology.leader(host), Purpose::handover, deadline);
  const Fd bell = new_bell();
  const Fd life = own_life();
  send_fds(stream.get(), {bell.get(), life.get()}, deadline);
  std::vector<Fd> fds = receive_fds(stream.get(), 1 + 2 * local_size, deadline);
  Shared shared;
  shared.memory = std::move(fds[0]);
  for (size_t i = 0; i < local_size; ++i) shared.bells.push_back(std::move(fds[1 + i]));
  for (size_t i = 0; i < local_size; ++i) shared.lives.push_back(std::move(fds[1 + local_size + i]));
  return shared;
}

/// Of two hosts the one with the lower number connects.
std::vector<Fd> connect_rails(Receptionist& desk, const Topology& topology, int rank,
                              Deadline deadline) {
  const int own = topology.host_of(rank);
  const int rail = topology.local_index(rank);
  std::vector<Fd> rails(topology.num_hosts());
  if (rail >= topology.num_rails()) return rails;
  for (int host = own + 1; host < topology.num_hosts(); ++host)
    rails[host] = desk.connect(topology.rank_on_rail(host, rail), Purpose::rail, deadline);
  for (int missing = own; missing > 0; --missing) {
    Accepted peer = desk.next(deadline, "a rank of another host");
    rails[topology.host_of(peer.peer)] = std::move(peer.stream);
  }
  return rails;
}

}  // namespace

Links meet(Store& store, int rank, int size, milliseconds timeout) {
  const Deadline deadline = Deadline::after(timeout);
  auto desk = std::make_unique<Receptionist>(
      open_endpoint(store, {.rank = rank, .size = size, .timeout = timeout}));
  Topology topology(desk->identities());
  const int host = topology.host_of(rank);
  const int local = topology.local_index(rank);
  Shared shared = local == 0 ? gather_of_host(*desk, topology, host, deadline)
                             : join_host(*desk, topology, host, local, deadline);
  Region region =
      Region::map(std::move(shared.memory), Arena::bytes_needed(topology.local_size(host)));
  std::vector<Fd> rails = connect_rails(*desk, topology, rank, deadline);
  desk->finish();
  return {rank,
          std::move(topology),
          std::move(region),
          std::move(shared.bells),
          std::move(shared.lives),
          std::move(rails),
          std::move(desk)};
}

std::unique_ptr<Group> Group::open(Store& store, int rank, int size, const GroupOptions& options) {
  return make_group(meet(store, rank, size, options.timeout), options);
}

}  // namespace giant
